// dispatch + combine of 2 ranks against the same over MPI, and against plain copies of the bytes they must move.
//
// MPI starts its own processes and so does moetax, so each round runs both programs once, one after the other, and the
// ratios are of medians over the rounds. In a run, rows are rewritten before each exchange by the rank that owns them,
// both ranks start together, and the slower one counts. The plain copies know in advance where every row goes: dispatch
// reads each token once and writes its K rows, combine reads K rows for each token and writes one, and three flag
// rounds stand for the handshakes that no exchange can do without.
#include <fmt/format.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "exchange_case.h"
#include "harness.h"
#include "moetax/exchange/exchange.h"
#include "moetax/machine/host.h"
#include "moetax/transport/local.h"
#include "moetax/wire/rows.h"

namespace moetax::bench {
namespace {

// Time in us by name of what was timed.
using Times = std::map<std::string, std::vector<double>>;

// Both ranks meet on a flag each in shared memory; the shortest way to start together.
class Meeting {
 public:
  Meeting(Window window, Rank self) : window_(std::move(window)), self_(self) {}
  void operator()() {
    ++number_;
    flag(self_).store(number_, std::memory_order_release);
    while (flag(1 - self_).load(std::memory_order_acquire) < number_) {
    }
  }
  // The larger of both ranks' values.
  double slower(double us) {
    value(self_) = us;
    (*this)();
    const double most = std::max(value(0), value(1));
    (*this)();
    return most;
  }

 private:
  std::atomic<std::uint64_t>& flag(Rank rank) {
    return *reinterpret_cast<std::atomic<std::uint64_t>*>(window_.at(rank));
  }
  double& value(Rank rank) { return *reinterpret_cast<double*>(window_.at(rank) + 64); }
  Window window_;
  Rank self_;
  std::uint64_t number_ = 0;
};

// The same rows moved without an exchange: every place is known beforehand.
class PlainCopies {
 public:
  PlainCopies(Window rows, Window results, Rank self, std::int64_t tokens, Meeting& meet)
      : rows_(std::move(rows)), results_(std::move(results)), tokens_(tokens), meet_(meet) {
    const ExpertPlacement placement{kExperts, kRanks};
    std::vector<std::int64_t> count(kExperts + 1), next(kExperts);
    RoutingTable routing[kRanks];
    for (Rank r = 0; r < kRanks; ++r) {
      routing[r] = uniform_routing(r, tokens);
      for (std::int64_t i = 0; i < tokens * kTopK; ++i) ++count[static_cast<std::size_t>(routing[r].expert().data[i])];
    }
    for (int e = 0; e < kExperts; ++e) {
      const auto i = static_cast<std::size_t>(e);
      next[i] = e == placement.first(placement.owner(e)) ? 0 : next[i - 1] + count[i - 1];
    }
    for (Rank r = 0; r < kRanks; ++r) {
      for (std::int64_t i = 0; i < tokens * kTopK; ++i) {
        const int e = routing[r].expert().data[i];
        const std::int64_t row = next[static_cast<std::size_t>(e)]++;
        if (r == self) place_.push_back({placement.owner(e), row});
      }
    }
  }

  void dispatch(const std::byte* tokens, Store store) {
    meet_();
    for (std::int64_t t = 0; t < tokens_; ++t) {
      std::byte* to[kTopK];
      for (int k = 0; k < kTopK; ++k) to[k] = at(rows_, t, k);
      copy_row(tokens + static_cast<std::size_t>(t) * kRowBytes, kRowBytes, to, store);
    }
    finish_streaming();
    meet_();
  }

  void run_experts(std::int64_t rows) {
    bench::run_experts(rows_.local(), results_.local(), static_cast<std::size_t>(rows) * kRowBytes);
  }

  // Each row is copied over the one before: reads K rows, and writes one to memory.
  void combine(std::byte* out, bool prefetch) {
    meet_();
    for (std::int64_t t = 0; t < tokens_; ++t) {
      for (int k = 0; k < kTopK; ++k) {
        std::byte* to[] = {out + static_cast<std::size_t>(t) * kRowBytes};
        const std::byte* next = prefetch && t + 1 < tokens_ ? at(results_, t + 1, k) : nullptr;
        copy_row(at(results_, t, k), kRowBytes, to, Store::kCached, next);
      }
    }
  }

 private:
  struct Place {
    Rank rank;
    std::int64_t row;
  };
  std::byte* at(const Window& window, std::int64_t t, int k) const {
    const Place& place = place_[static_cast<std::size_t>(t * kTopK + k)];
    return window.at(place.rank) + static_cast<std::size_t>(place.row) * kRowBytes;
  }
  Window rows_, results_;
  std::int64_t tokens_;
  Meeting& meet_;
  std::vector<Place> place_;  // [T, K]
};

template <class T>
T require(Result<T> result) {
  if (!result) {
    std::fprintf(stderr, "bench_exchange: %s\n", result.error().message.c_str());
    std::exit(1);
  }
  return std::move(result).value();
}

// One rank's side of a run.
class RankBench {
 public:
  RankBench(Communicator& comm, std::int64_t tokens)
      : self_(comm.rank()),
        tokens_(tokens),
        meet_(window(comm, "meet", 128), self_),
        exchange_(require(Exchange::create(
            comm, {.max_tokens = tokens, .hidden = kHidden, .experts = kExperts, .topk = kTopK, .deadline_s = 60}))),
        routing_(uniform_routing(self_, tokens)),
        hidden_(require(PageBuffer::reserve(bytes(tokens)))),
        out_(require(PageBuffer::reserve(bytes(tokens)))),
        copies_(window(comm, "rows", bytes(kRanks * tokens * kTopK)),
                window(comm, "results", bytes(kRanks * tokens * kTopK)), self_, tokens, meet_) {}

  // In blocks, so that each finds the caches as it left them itself, as the MPI program does.
  void run(Times& times) {
    const int block = tokens_ > 64 ? 1 : 50;
    for (int i = 0; i < repeats(tokens_); i += block) {
      repeat(block, times["exchange"], [&](int salt) { return time_exchange(salt); });
      repeat(block, times["copies, normal stores"], [&](int salt) { return time_copies(salt, Store::kCached); });
      repeat(block, times["copies, streaming stores"], [&](int salt) { return time_copies(salt, Store::kStreaming); });
    }
  }

 private:
  static std::size_t bytes(std::int64_t rows) { return static_cast<std::size_t>(rows) * kRowBytes; }
  static Window window(Communicator& comm, const char* name, std::size_t size) {
    return require(comm.make_window(name, size, Deadline::in_seconds(60)));
  }

  template <class Body>
  static void repeat(int block, std::vector<double>& us, Body body) {
    for (int i = -2; i < block; ++i) {
      const double took = body(i);
      if (i >= 0) us.push_back(took);
    }
  }

  template <class Body>
  double time_us(Body body) {
    meet_();
    const std::int64_t start = now_ns();
    body();
    return meet_.slower(static_cast<double>(now_ns() - start) * 1e-3);
  }

  double time_exchange(int i) {
    const auto salt = static_cast<std::uint16_t>(i);
    refresh(hidden_.data(), bytes(tokens_), salt);
    Dispatched sent;
    const double there = time_us([&] {
      sent = require(exchange_.dispatch({hidden_.data(), DType::kBf16, tokens_, kHidden}, routing_));
    });
    run_experts(sent.batch.rows.data, sent.batch.out.data, sent.batch.out.bytes());
    const double back = time_us([&] {
      require(exchange_.combine(std::move(sent.handle), routing_, {}, {out_.data(), DType::kBf16, tokens_, kHidden}));
    });
    received_ = sent.batch.rows.rows;
    return there + back;
  }

  double time_copies(int i, Store store) {
    const auto salt = static_cast<std::uint16_t>(i);
    refresh(hidden_.data(), bytes(tokens_), salt);
    const double there = time_us([&] { copies_.dispatch(hidden_.data(), store); });
    copies_.run_experts(received_);
    const double back = time_us([&] { copies_.combine(out_.data(), tokens_ > 64); });
    return there + back;
  }

  Rank self_;
  std::int64_t tokens_, received_ = 0;
  Meeting meet_;
  Exchange exchange_;
  RoutingTable routing_;
  PageBuffer hidden_, out_;
  PlainCopies copies_;
};

// What this program does when it is asked to be one run: prints a line "name us" for each thing timed.
int run_once(std::int64_t tokens) {
  const auto outcomes = require(run_processes({.ranks = kRanks}, [&](Communicator& comm) {
    pin_rank(comm.rank(), kRanks, 1);
    Times times;
    RankBench(comm, tokens).run(times);
    if (comm.rank() != 0) return 0;
    for (const auto& [name, us] : times) std::printf("%s %.3f\n", name.c_str(), median(us));
    std::fflush(stdout);
    return 0;
  }));
  for (const RankOutcome& outcome : outcomes) {
    if (outcome.exit_status != 0) return 1;
  }
  return 0;
}

// Adds the "name us" lines that a command prints.
bool collect(const std::string& command, const std::string& suffix, Times& times) {
  FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) return false;
  char line[256];
  while (std::fgets(line, sizeof line, pipe)) {
    const std::string text(line);
    const std::size_t space = text.rfind(' ');
    if (space != std::string::npos) times[text.substr(0, space) + suffix].push_back(std::atof(line + space));
  }
  return pclose(pipe) == 0;
}

Timing timing_of(std::vector<double> us) {
  std::sort(us.begin(), us.end());
  const std::size_t last = us.size() - 1;
  return {us[us.size() / 2], us[last / 10], us[last - last / 10]};
}

// The fastest of the contenders whose name starts like this; empty when there is none.
std::string best_of(const Times& times, const std::string& prefix) {
  std::string best;
  for (const auto& [name, us] : times) {
    if (name.starts_with(prefix) && (best.empty() || median(us) < median(times.at(best)))) best = name;
  }
  return best;
}

// The two runs of a round are neighbours in time, and this machine's caches change their speed over minutes: the median
// of the rounds' quotients, not the quotient of medians.
double median_ratio(const std::vector<double>& over, const std::vector<double>& under) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < std::min(over.size(), under.size()); ++i) ratios.push_back(over[i] / under[i]);
  return median(ratios);
}

Times run_rounds(const std::string& program, std::int64_t tokens) {
  constexpr int kRounds = 15;
  Times times;
  for (int round = 0; round < kRounds; ++round) {
    if (!collect(fmt::format("{} --run {}", program, tokens), "", times)) return {};
#ifdef MOETAX_MPIRUN
    // The two settings of Open MPI that are best at one size or another.
    for (const char* setting : {"none", "cma"}) {
      collect(fmt::format("{} -n 2 --allow-run-as-root --bind-to core --mca btl_vader_single_copy_mechanism {} "
                          "{} {} 2>/dev/null",
                          MOETAX_MPIRUN, setting, MOETAX_MPI_PEER, tokens),
              fmt::format(", single copy {}", setting), times);
    }
#endif
  }
  return times;
}

int compare(const std::string& program, std::int64_t tokens, const char* mpi_reach, const char* copies_reach) {
  const Times times = run_rounds(program, tokens);
  if (times.empty()) {
    std::fprintf(stderr, "bench_exchange: a run with %lld tokens failed\n", static_cast<long long>(tokens));
    return 1;
  }
  const std::string what = fmt::format("dispatch + combine, T={}", tokens);
  const std::vector<double>& ours = times.at("exchange");
  const std::string copies = best_of(times, "copies"), mpi = best_of(times, "mpi");
  print_row(what, timing_of(ours), copies, timing_of(times.at(copies)), median_ratio(ours, times.at(copies)),
            copies_reach);
  if (mpi.empty()) {
    std::printf("%s against MPI_Alltoallv: skipped, no Open MPI to build against or to run\n", what.c_str());
    return 0;
  }
  print_row(what, timing_of(ours), mpi, timing_of(times.at(mpi)), median_ratio(times.at(mpi), ours), mpi_reach);
  return 0;
}

}  // namespace
}  // namespace moetax::bench

int main(int argc, char** argv) {
  using namespace moetax::bench;
  if (argc == 3 && std::strcmp(argv[1], "--run") == 0) return run_once(std::atoll(argv[2]));
  return compare(argv[0], 4096, "MPI takes 2 times as long or more", "1.4 times the copies or less") |
         compare(argv[0], 8, "MPI takes 3 times as long or more", "2 times the copies or less");
}
