// Planted truth: traces whose overlap, waits and clocks are known.
#include <gtest/gtest.h>

#include <cmath>

#include "moetax/analyze/analysis.h"
#include "moetax/base/random.h"

namespace moetax {
namespace {

constexpr const char* kGemm = "gemm";
constexpr const char* kAllToAll = "ncclDevKernel_SendRecv(int)";
constexpr const char* kAllReduce = "ncclDevKernel_AllReduce(int)";

class Builder {
 public:
  explicit Builder(Rank rank, std::int64_t clock = 0) : clock_(clock) {
    trace_.rank = rank;
    trace_.names.intern("");
    for (int stream : {1, 2}) trace_.tracks.push_back({0, stream, "0", ""});
    trace_.tracks.push_back({-1, 0, "7", "7"});
  }
  Builder& kernel(const char* name, std::int64_t begin, std::int64_t end, std::uint32_t correlation = 0) {
    return add(GpuEventKind::kKernel, name, begin, end, correlation, 0);
  }
  Builder& launch(std::int64_t begin, std::int64_t end, std::uint32_t correlation) {
    return add(GpuEventKind::kRuntime, "launch", begin, end, correlation, 2);
  }
  Builder& copy(std::int64_t begin, std::int64_t end) { return add(GpuEventKind::kCopy, "copy", begin, end, 0, 1); }
  Builder& noted(const char* name, const char* group, std::int64_t sequence, std::int64_t begin, std::int64_t end) {
    kernel(name, begin, end);
    CollectiveNote note;
    note.group = trace_.names.intern(group);
    note.operation = trace_.names.intern("op");
    note.dtype = trace_.names.intern("BFloat16");
    note.sequence = sequence;
    note.in_elements = 500;
    trace_.events[trace_.events.size() - 1].collective = static_cast<std::int32_t>(trace_.collectives.size());
    trace_.collectives.push_back(note);
    return *this;
  }
  GpuTrace take() { return std::move(trace_); }

 private:
  Builder& add(GpuEventKind kind, const char* name, std::int64_t begin, std::int64_t end, std::uint32_t correlation,
               std::uint32_t track) {
    GpuEvent event{begin + clock_, end - begin, trace_.names.intern(name)};
    event.kind_bits = static_cast<std::uint8_t>(kind);
    event.track = track;
    event.correlation = correlation;
    trace_.events.push_back(event);
    return *this;
  }
  std::int64_t clock_;
  GpuTrace trace_;
};

template <class... Traces>
Analysis analyzed(Traces... trace) {
  std::vector<GpuTrace> traces;
  (traces.push_back(std::move(trace)), ...);
  return analyze(traces, KernelRules());
}

TEST(Analysis, OneDeviceAddsUp) {
  const Analysis analysis = analyzed(Builder(0)
                                         .kernel(kGemm, 0, 100)
                                         .kernel(kGemm, 50, 120)  // on another stream: counted once
                                         .kernel(kAllToAll, 110, 150)
                                         .copy(140, 170)
                                         .kernel(kGemm, 200, 210)
                                         .take());
  ASSERT_EQ(analysis.devices.size(), 1u);
  const DeviceTimes& times = analysis.devices[0];
  EXPECT_EQ(times.compute_ns, 130);
  EXPECT_EQ(times.comm_ns, 40);
  EXPECT_EQ(times.hidden_ns, 10);
  EXPECT_EQ(times.exposed_ns, 30);
  EXPECT_EQ(times.copy_ns, 20);
  EXPECT_EQ(times.idle_ns, 30);
  EXPECT_EQ(times.end_ns - times.begin_ns, times.compute_ns + times.exposed_ns + times.copy_ns + times.idle_ns);
  EXPECT_FALSE(times.wait_ns) << "one rank cannot tell";
  EXPECT_FALSE(analysis.alignment);
}

TEST(Analysis, IdleForTheHostIsUntilTheLaunch) {
  const Analysis analysis = analyzed(Builder(0)
                                         .kernel(kGemm, 0, 100)
                                         .launch(150, 160, 5)
                                         .kernel(kGemm, 200, 300, 5)  // launched 60 after the device fell idle
                                         .launch(210, 220, 6)
                                         .kernel(kGemm, 350, 360, 6)  // launched long before: not the host's fault
                                         .take());
  EXPECT_EQ(analysis.devices[0].idle_ns, 150);
  EXPECT_EQ(analysis.devices[0].idle_host_ns, 60);
}

TEST(Analysis, WaitsAreUntilTheLastArrival) {
  // Rank 1 computes until 80 and comes last; the exchange itself takes 20.
  const Analysis analysis = analyzed(Builder(0).kernel(kGemm, 0, 10).kernel(kAllToAll, 10, 100).take(),
                                     Builder(1).kernel(kGemm, 0, 80).kernel(kAllToAll, 80, 100).take());
  ASSERT_TRUE(analysis.alignment);
  EXPECT_EQ(analysis.alignment->collectives, 1);
  EXPECT_EQ(analysis.devices[0].wait_ns, 70);
  EXPECT_EQ(analysis.devices[1].wait_ns, 0);
  ASSERT_EQ(analysis.waits.size(), 1u);
  EXPECT_EQ(analysis.waits[0].late, 1u);
  EXPECT_EQ(analysis.waits[0].ns, 70);
  EXPECT_EQ(analysis.waits[0].late_did_ns[static_cast<int>(LateBecause::kCompute)], 70);
  EXPECT_EQ(analysis.waits[0].kernel, kGemm);
  EXPECT_EQ(analysis.comm[0].shortest_ns, 20);
  EXPECT_EQ(analysis.comm[0].longest_ns, 90);
  EXPECT_EQ(analysis.comm[0].longest_device, 0u);
}

TEST(Analysis, AWaitBesideComputeOrTransferIsNotExposed) {
  const Analysis analysis =
      analyzed(Builder(0).kernel(kAllToAll, 10, 100).kernel(kGemm, 20, 40).kernel(kAllReduce, 50, 60).take(),
               Builder(1).kernel(kAllReduce, 50, 60).kernel(kAllToAll, 80, 100).take());
  EXPECT_EQ(analysis.devices[0].wait_ns, 70 - 20 - 10);
}

TEST(Analysis, NotesMatchByGroupAndSequence) {
  // The second group's collective is not everybody's, and the order differs.
  const Analysis analysis =
      analyzed(Builder(0).noted(kAllReduce, "a", 1, 0, 10).noted(kAllReduce, "a", 2, 20, 50).take(),
               Builder(1).noted(kAllReduce, "a", 2, 40, 50).noted(kAllReduce, "b", 1, 60, 70).take());
  EXPECT_EQ(analysis.alignment->collectives, 1);
  EXPECT_EQ(analysis.alignment->unmatched, 2);
  EXPECT_EQ(analysis.devices[0].wait_ns, 20);
  EXPECT_EQ(analysis.comm[0].bytes, 4 * 500 * 2);
}

TEST(Analysis, OperationsThatNotAllRanEquallyOftenAreNotMatched) {
  const Analysis analysis = analyzed(Builder(0).kernel(kAllReduce, 0, 10).kernel(kAllReduce, 20, 30).take(),
                                     Builder(1).kernel(kAllReduce, 0, 10).take());
  EXPECT_EQ(analysis.alignment->collectives, 0);
  EXPECT_EQ(analysis.alignment->unmatched, 3);
  EXPECT_FALSE(analysis.devices[0].wait_ns);
}

// 16 ranks with clocks up to 10 s apart; in each collective another rank comes 5 ms late.
TEST(Analysis, PlantedStragglersAreFoundOnClocksThatDiffer) {
  constexpr int kRanks = 16, kCalls = 32;
  const RandomStream random(3, 0);
  std::vector<GpuTrace> traces;
  std::vector<std::int64_t> clock;
  for (int r = 0; r < kRanks; ++r) {
    clock.push_back(r == 0 ? 0
                           : static_cast<std::int64_t>(random.bits(static_cast<std::uint64_t>(r)) % 20'000'000'000) -
                                 10'000'000'000);
    Builder builder(r, clock.back());
    for (int call = 0; call < kCalls; ++call) {
      const std::int64_t begin = call * 10'000'000;
      const bool late = call % kRanks == r;
      const std::int64_t arrival = begin + (late ? 6'000'000 : 1'000'000);
      const auto jitter =
          static_cast<std::int64_t>(random.bits(static_cast<std::uint64_t>(1000 + r * kCalls + call)) % 4'000) - 2'000;
      builder.kernel(kGemm, begin, arrival).kernel(kAllToAll, arrival, begin + 7'000'000 + jitter);
    }
    traces.push_back(builder.take());
  }
  const Analysis analysis = analyze(traces, KernelRules());
  EXPECT_EQ(analysis.alignment->collectives, kCalls);
  EXPECT_LT(analysis.alignment->residual_us, 2);
  for (int r = 0; r < kRanks; ++r) {
    const auto off =
        *analysis.devices[static_cast<std::size_t>(r)].clock_offset_ns + clock[static_cast<std::size_t>(r)];
    EXPECT_LT(std::abs(off), 5'000) << r;
    EXPECT_NEAR(static_cast<double>(*analysis.devices[static_cast<std::size_t>(r)].wait_ns), 30 * 5e6, 1e6) << r;
  }
  EXPECT_EQ(analysis.waits.size(), static_cast<std::size_t>(kRanks * (kRanks - 1)));
  for (const WaitedFor& waited : analysis.waits) EXPECT_NEAR(static_cast<double>(waited.ns), 2 * 5e6, 1e5);
}

TEST(Analysis, TracesWithoutDevicesAddNothing) {
  const Analysis analysis = analyzed(Builder(0).launch(1, 2, 3).take());
  EXPECT_TRUE(analysis.devices.empty());
  EXPECT_TRUE(analyze({}, KernelRules()).devices.empty());
}

}  // namespace
}  // namespace moetax
