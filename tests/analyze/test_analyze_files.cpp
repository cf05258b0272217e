// Traces of real jobs, whose values were computed beforehand by other means.
#include <gtest/gtest.h>

#include <cmath>

#include "moetax/analyze/analysis.h"
#include "moetax/trace/kineto.h"
#include "moetax/trace/nsight.h"
#include "shared_data.h"

namespace moetax {
namespace {

Analysis of(const std::vector<std::string>& files) {
  std::vector<GpuTrace> traces;
  for (const std::string& file : files) {
    auto trace = read_kineto(shared_data() + "/traces/" + file);
    if (!trace) {
      ADD_FAILURE() << trace.error().message;
      return {};
    }
    traces.push_back(std::move(trace).value());
  }
  return analyze(traces, KernelRules());
}

double us(std::int64_t ns) {
  return static_cast<double>(ns) * 1e-3;
}

void expect_close(double value, double expected) {
  EXPECT_NEAR(value, expected, 0.005 * expected);
}

double share_of(const Analysis& analysis, bool (*of_these)(const CommTotals&)) {
  double all = 0, some = 0;
  for (const CommTotals& comm : analysis.comm) {
    all += us(comm.ns);
    if (of_these(comm)) some += us(comm.ns);
  }
  return some / all;
}

TEST(AnalyzeFiles, DeepSeekTraining) {
  MOETAX_NEEDS_SHARED_DATA();
  const Analysis analysis = of({"deepseek/train.json.gz"});
  ASSERT_EQ(analysis.devices.size(), 1u);
  const DeviceTimes& times = analysis.devices[0];
  expect_close(us(times.end_ns - times.begin_ns), 129'000);
  expect_close(us(times.comm_ns), 113'400);
  expect_close(us(times.exposed_ns), 4'190);
  expect_close(static_cast<double>(times.hidden_ns) / static_cast<double>(times.comm_ns), 0.963);
  expect_close(share_of(analysis, [](const CommTotals& comm) { return comm.what.sync_only; }), 0.287);
  EXPECT_EQ(share_of(analysis, [](const CommTotals& comm) { return comm.what.family == "NCCL"; }), 0);
}

std::vector<std::string> dlrm() {
  std::vector<std::string> files;
  const char* stamps[] = {"545", "556", "554", "557", "547", "549", "553", "553"};
  for (int r = 0; r < 8; ++r) {
    files.push_back("dlrm_8rank/worker" + std::to_string(r) + "_step_12.1694128201" + stamps[r] + ".pt.trace.json.gz");
  }
  return files;
}

TEST(AnalyzeFiles, EightRanksThatWaitForTheLast) {
  MOETAX_NEEDS_SHARED_DATA();
  const Analysis analysis = of(dlrm());
  ASSERT_EQ(analysis.devices.size(), 8u);
  ASSERT_TRUE(analysis.alignment);
  EXPECT_EQ(analysis.alignment->collectives, 8);
  EXPECT_EQ(analysis.alignment->doubtful, 0);
  EXPECT_LE(analysis.alignment->residual_us, 2);
  ASSERT_FALSE(analysis.comm.empty());
  const CommTotals& all_to_all = analysis.comm[0];
  EXPECT_EQ(all_to_all.what.operation, "all-to-all");
  EXPECT_EQ(all_to_all.calls, 5);
  EXPECT_EQ(us(all_to_all.shortest_ns), 42);
  EXPECT_EQ(us(all_to_all.longest_ns), 9'506);
  EXPECT_EQ(all_to_all.longest_device, 1u);
  EXPECT_EQ(all_to_all.last_device, 7u);
  ASSERT_FALSE(analysis.waits.empty());
  EXPECT_EQ(analysis.waits[0].late, 7u);
  // What is no waiting is at most 10 us in each call of each rank, and the clocks' error.
  EXPECT_LE(us(all_to_all.transfer_ns), 8 * 5 * (10 + 4));
}

TEST(AnalyzeFiles, SymmetricMemoryIsCommunicationToo) {
  MOETAX_NEEDS_SHARED_DATA();
  const Analysis analysis = of({"kineto/b200__eager_trace.json.gz"});
  expect_close(share_of(analysis, [](const CommTotals& comm) { return comm.what.family != "NCCL"; }), 0.99);
  ASSERT_EQ(analysis.comm.size(), 2u);
  EXPECT_EQ(analysis.comm[0].kernels, 73);
  expect_close(us(analysis.comm[0].ns), 2'120);
  expect_close(us(analysis.comm[1].ns), 22);
}

TEST(AnalyzeFiles, NotedCollectives) {
  MOETAX_NEEDS_SHARED_DATA();
  const Analysis analysis = of({"kineto/nccl_parser_config__nccl_data.json.gz"});
  ASSERT_EQ(analysis.devices.size(), 1u);
  const DeviceTimes& times = analysis.devices[0];
  expect_close(us(times.comm_ns), 46'900);
  expect_close(us(times.exposed_ns), 39'600);
  expect_close(static_cast<double>(times.hidden_ns) / static_cast<double>(times.comm_ns), 0.156);
  std::int64_t kernels = 0;
  for (const CommTotals& comm : analysis.comm) {
    kernels += comm.kernels;
    EXPECT_GT(comm.bytes, 0) << comm.what.operation;
  }
  EXPECT_EQ(kernels, 15 + 6);
}

TEST(AnalyzeFiles, TwoOfAHundredAndTwentyEightRanks) {
  MOETAX_NEEDS_SHARED_DATA();
  const Analysis analysis =
      of({"kineto/trace_filter__sampled_rank-0.json.gz", "kineto/trace_filter__sampled_rank-1.json.gz"});
  ASSERT_EQ(analysis.devices.size(), 2u);
  expect_close(us(analysis.devices[0].exposed_ns), 337'000);
  expect_close(us(analysis.devices[1].exposed_ns), 303'500);
  expect_close(us(analysis.comm[0].ns), 396'200 + 379'100);
}

TEST(AnalyzeFiles, NothingIsHidden) {
  MOETAX_NEEDS_SHARED_DATA();
  const Analysis analysis = of({"kineto/df_index_resolver__df_index_resolver.json.gz"});
  ASSERT_FALSE(analysis.devices.empty());
  EXPECT_EQ(analysis.comm.at(0).kernels, 2020);
  expect_close(us(analysis.comm[0].ns), 357'000);
  EXPECT_EQ(analysis.devices[0].hidden_ns, 0);
}

Analysis of_nsight(const char* file) {
  std::vector<GpuTrace> traces;
  auto trace = read_nsight(shared_data() + "/nsys/" + file);
  if (trace) traces.push_back(std::move(trace).value());
  return analyze(traces, KernelRules());
}

double all_to_all_us(const Analysis& analysis, std::size_t device) {
  const CommTotals& comm = analysis.comm.at(0);
  return us(device == comm.longest_device ? comm.longest_ns : comm.ns - comm.longest_ns);
}

// Two devices whose straggler changed between two runs, while the transfer did not.
TEST(AnalyzeFiles, NsightPairWhoseStragglerFlipped) {
  MOETAX_NEEDS_SHARED_DATA();
  const Analysis before = of_nsight("nsysai_mfu_2gpu_before.sqlite"), after = of_nsight("nsysai_mfu_2gpu_after.sqlite");
  ASSERT_EQ(before.devices.size(), 2u);
  ASSERT_EQ(after.devices.size(), 2u);
  EXPECT_EQ(before.comm.at(0).calls, 33);
  expect_close(all_to_all_us(before, 0), 17'170);
  expect_close(all_to_all_us(before, 1), 8'230);
  expect_close(us(before.comm[0].shortest_ns), 5'780);
  EXPECT_EQ(before.devices[0].hidden_ns, 0);
  expect_close(all_to_all_us(after, 0), 9'990);
  expect_close(all_to_all_us(after, 1), 23'750);
  expect_close(us(after.comm[0].shortest_ns), 5'480);
  EXPECT_EQ(before.comm[0].longest_device, 0u);
  EXPECT_EQ(after.comm[0].longest_device, 1u);
}

TEST(AnalyzeFiles, NsightOfOtherVersions) {
  MOETAX_NEEDS_SHARED_DATA();
  const Analysis old = of_nsight("pipit_saxpy-mpi-cuda_perlmutter0.sqlite");
  ASSERT_EQ(old.devices.size(), 1u);
  EXPECT_EQ(old.devices[0].kernels, 5);
  EXPECT_EQ(of_nsight("nsysai_healthy_1pct.sqlite").devices.at(0).kernels, 400);
}

TEST(AnalyzeFiles, NoCommunicationOrNoDevice) {
  MOETAX_NEEDS_SHARED_DATA();
  for (const char* file : {"kineto/ns_resolution_trace__rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz",
                           "kineto/call_stack__backward_thread.json", "legacy/gpu_metrics_input.json",
                           "kineto/amd_trace__mi250_minitoy_train_ROCm6_2_kineto.json.gz"}) {
    const Analysis analysis = of({file});
    ASSERT_EQ(analysis.devices.size(), 1u) << file;
    EXPECT_EQ(analysis.devices[0].comm_ns, 0) << file;
    EXPECT_GT(analysis.devices[0].compute_ns, 0) << file;
    EXPECT_TRUE(analysis.unknown.empty()) << file;
  }
  EXPECT_TRUE(of({"kineto/cpu_only__rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz"}).devices.empty());
  EXPECT_TRUE(of({"kineto/rank_unavailable__rank_not_found.json.gz"}).devices.empty());
}

}  // namespace
}  // namespace moetax
