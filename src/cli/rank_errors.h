// How the ranks of a bench tell the launcher why they stopped: one pipe, one line a rank.
#pragma once

#include <optional>
#include <vector>

#include "moetax/base/result.h"
#include "moetax/transport/local.h"

namespace moetax::cli {

class RankErrors {
 public:
  static Result<RankErrors> open();
  ~RankErrors();
  RankErrors(RankErrors&&) noexcept;
  RankErrors& operator=(RankErrors&&) = delete;

  // From a rank. One line, cut to what the pipe takes at once; never blocks.
  void send(const Error& error) const;
  // From the launcher, after all ranks have ended: the error that explains the others. An error of a rank's own comes
  // before one about a peer; a rank that a signal ended speaks only through the others, or through its outcome.
  std::optional<Error> cause(const std::vector<RankOutcome>& outcomes) const;

 private:
  RankErrors(int read_fd, int write_fd) : read_fd_(read_fd), write_fd_(write_fd) {}
  int read_fd_;
  int write_fd_;
};

}  // namespace moetax::cli
