// The kept spans as a timeline, and bills and traces to files.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <tuple>

#include "moetax/report/bill.h"
#include "moetax/trace/chrome_trace.h"

namespace moetax {
namespace {

enum Track : int { kParts = 0, kExchanges = 1, kWaits = 2 };

const char* part_name(Part part) {
  static constexpr std::array<const char*, kNumParts> kNames{"compute", "pack", "wire", "wait", "launch", "other"};
  return kNames[static_cast<std::size_t>(part)];
}

// When each rank arrived at each exchange, on rank 0's clock: where the arrows of the waits start.
using Arrivals = std::map<std::tuple<Rank, std::int32_t, std::uint64_t, std::string>, std::int64_t>;

std::string name_of(const RankLedger& ledger, std::int32_t i) {
  return ledger.names[static_cast<std::size_t>(i)];
}

Arrivals find_arrivals(const std::vector<RankLedger>& ledgers) {
  Arrivals arrivals;
  for (const RankLedger& ledger : ledgers) {
    for (const LedgerExchange& x : ledger.exchanges) {
      arrivals[{ledger.rank, x.step, x.number, name_of(ledger, x.name)}] = x.start_ns + ledger.clock_offset_ns;
    }
  }
  return arrivals;
}

// Where arrows and spans fall outside the kept ones, exchanges and waits are left out too: the timeline ends there.
std::int64_t end_of_spans(const RankLedger& ledger) {
  if (ledger.spans_dropped == 0 || ledger.spans.empty()) return INT64_MAX;
  std::int64_t end = INT64_MIN;
  for (const SpanRecord& span : ledger.spans) end = std::max(end, span.end_ns);
  return end;
}

class RankTimeline {
 public:
  RankTimeline(const RankLedger& ledger, ChromeTrace& trace)
      : ledger_(ledger), trace_(trace), offset_(ledger.clock_offset_ns), end_ns_(end_of_spans(ledger)) {
    trace.name_process(ledger.rank, fmt::format("rank {} (node {})", ledger.rank, ledger.node));
    trace.name_track(ledger.rank, kParts, "parts");
    trace.name_track(ledger.rank, kExchanges, "exchanges");
    trace.name_track(ledger.rank, kWaits, "waits");
  }

  void steps_and_spans() {
    for (std::size_t i = 0; i < ledger_.steps.size(); ++i) {
      const StepRecord& step = ledger_.steps[i];
      if (step.start_ns <= end_ns_) slice(fmt::format("step {}", i), "step", kParts, step.start_ns, step.end_ns, {});
    }
    for (const SpanRecord& span : ledger_.spans) {
      slice(name_of(ledger_, span.name), part_name(span.part), kParts, span.start_ns, span.end_ns,
            {{"part", part_name(span.part)}});
    }
  }

  void exchanges() {
    for (const LedgerExchange& x : ledger_.exchanges) {
      if (x.start_ns > end_ns_) break;
      slice(name_of(ledger_, x.name), "exchange", kExchanges, x.start_ns, x.end_ns,
            {{"number", static_cast<std::int64_t>(x.number)},
             {"phase", name_of(ledger_, x.phase)},
             {"logical bytes", x.logical_bytes},
             {"physical bytes", x.physical_bytes},
             {"wait ns", x.wait_ns},
             {"transfer ns", x.transfer_ns},
             {"last rank", std::int64_t{x.last_rank}}});
    }
  }

  // A wait, with an arrow from the peer's arrival at the exchange to the wait's end.
  void waits(const Arrivals& arrivals) {
    for (const LedgerWait& wait : ledger_.waits) {
      if (wait.start_ns > end_ns_) break;
      slice(fmt::format("wait for rank {}", wait.peer), "wait", kWaits, wait.start_ns, wait.end_ns,
            {{"peer", std::int64_t{wait.peer}}, {"idle ns", wait.idle_ns}, {"off CPU ns", wait.off_cpu_ns}});
      if (wait.exchange < 0) continue;
      const LedgerExchange& x = ledger_.exchanges[static_cast<std::size_t>(wait.exchange)];
      const auto peer = arrivals.find({wait.peer, x.step, x.number, name_of(ledger_, x.name)});
      const std::int64_t end = wait.end_ns + offset_;
      if (peer == arrivals.end() || peer->second > end) continue;
      trace_.arrow("arrival", {wait.peer, kExchanges, peer->second}, {ledger_.rank, kWaits, end});
    }
  }

 private:
  void slice(std::string name, std::string category, Track track, std::int64_t start, std::int64_t end,
             std::vector<TraceArg> args) {
    trace_.slice(
        {std::move(name), std::move(category), ledger_.rank, track, start + offset_, end + offset_, std::move(args)});
  }

  const RankLedger& ledger_;
  ChromeTrace& trace_;
  std::int64_t offset_;
  std::int64_t end_ns_;
};

}  // namespace

std::string to_chrome_trace(const std::vector<RankLedger>& ledgers) {
  std::int64_t origin = INT64_MAX;
  for (const RankLedger& ledger : ledgers) {
    for (const StepRecord& step : ledger.steps) origin = std::min(origin, step.start_ns + ledger.clock_offset_ns);
  }
  ChromeTrace trace(origin == INT64_MAX ? 0 : origin);
  const Arrivals arrivals = find_arrivals(ledgers);
  for (const RankLedger& ledger : ledgers) {
    RankTimeline timeline(ledger, trace);
    timeline.steps_and_spans();
    timeline.exchanges();
    timeline.waits(arrivals);
  }
  return std::move(trace).finish();
}

Result<void> write_text(const std::string& path, const std::string& text) {
  const bool to_stdout = path == "-";
  const std::string shown = to_stdout ? "standard output" : "'" + path + "'";
  const auto failed = [&](ErrorCode code) {
    return fail(code, fmt::format("cannot write {}: {}", shown, std::strerror(errno)));
  };
  std::FILE* file = to_stdout ? stdout : std::fopen(path.c_str(), "wb");
  if (!file) return failed(ErrorCode::kUsage);
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size() && std::fflush(file) == 0;
  const int error = errno;
  const bool closed = to_stdout || std::fclose(file) == 0;
  if (written && closed) return {};
  if (!written) errno = error;
  return failed(ErrorCode::kUnavailable);
}

}  // namespace moetax
