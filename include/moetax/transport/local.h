// Ranks on this machine: as forked processes over an inherited memfd, or as threads of this process.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "moetax/base/result.h"
#include "moetax/transport/communicator.h"

namespace moetax {

struct LocalOptions {
  int ranks = 2;
  int ranks_per_node = 0;  // > 0: ranks [n * ranks_per_node, ...) form node n, and nodes share no memory: the way
                           // exchanges take between machines, on one
  double linger_s =
      10;  // processes only: once a rank ended badly, how long the others may go on before they are killed
};

// Exit status of a rank whose body let an exception escape; the others are told as by fail().
inline constexpr int kBodyThrew = 4;

// What became of one rank. `exit_status` is what `body` returned (its low 8 bits for a process), or -1 if a signal
// ended the process.
struct RankOutcome {
  Rank rank = 0;
  int exit_status = 0;
  int signal = 0;
  bool given_up = false;            // killed by the launcher when `linger_s` had passed: a consequence, not the cause
  std::optional<Error> error = {};  // what it told the others by fail(), its message cut to 1003 bytes
};

// Forks one process per rank, runs body(comm) in each, and waits for all. The children exit with body's return value
// (standard output is flushed, then _exit: no destructors or atexit handlers of the parent run), die when this process
// dies, and share nothing but one anonymous memfd, so nothing is left behind however they end. When a child is killed,
// the others' waits end at once with an error that names it and the signal.
// Must be called before this process has a second thread (kUnavailable otherwise: a child forked after OpenMP ran
// hangs in its first parallel region). kUsage for ranks outside 1..1024. Returns the outcome of every rank, in order.
Result<std::vector<RankOutcome>> run_processes(const LocalOptions& options,
                                               const std::function<int(Communicator&)>& body);

// Runs body(comm) on one thread per rank and joins them. For tests and for embedding: no isolation, same semantics of
// waits, deadlines and fail(). Returns what each body returned, in rank order.
Result<std::vector<RankOutcome>> run_threads(const LocalOptions& options,
                                             const std::function<int(Communicator&)>& body);

}  // namespace moetax
