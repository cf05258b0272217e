// Traces of real jobs: what is in them, counted beforehand by other means.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "moetax/trace/kineto.h"
#include "shared_data.h"

namespace moetax {
namespace {

struct Expected {
  const char* file;
  std::int64_t events, kernels;
  Rank rank;
  int world_size;
};

void PrintTo(const Expected& expected, std::ostream* out) {
  *out << expected.file;
}

class KinetoFiles : public testing::TestWithParam<Expected> {};

TEST_P(KinetoFiles, AreReadWhole) {
  MOETAX_NEEDS_SHARED_DATA();
  const Expected& expected = GetParam();
  const auto trace = read_kineto(shared_data() + "/traces/" + expected.file);
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_EQ(trace->read.events, expected.events);
  EXPECT_EQ(trace->read.damaged, 0);
  EXPECT_FALSE(trace->read.cut);
  EXPECT_EQ(trace->rank, expected.rank);
  EXPECT_EQ(trace->world_size, expected.world_size);
  std::int64_t kernels = 0;
  for (std::size_t i = 0; i < trace->events.size(); ++i) {
    kernels += trace->events[i].kind() == GpuEventKind::kKernel ? 1 : 0;
  }
  EXPECT_EQ(kernels, expected.kernels);
}

INSTANTIATE_TEST_SUITE_P(
    All, KinetoFiles,
    testing::Values(Expected{"deepseek/train.json.gz", 14240, 963, 0, 64},
                    Expected{"dlrm_8rank/worker0_step_12.1694128201545.pt.trace.json.gz", 3290, 245, 0, 8},
                    Expected{"dlrm_8rank/worker1_step_12.1694128201556.pt.trace.json.gz", 3424, 310, 1, 8},
                    Expected{"dlrm_8rank/worker2_step_12.1694128201554.pt.trace.json.gz", 3268, 246, 2, 8},
                    Expected{"dlrm_8rank/worker3_step_12.1694128201557.pt.trace.json.gz", 3474, 315, 3, 8},
                    Expected{"dlrm_8rank/worker4_step_12.1694128201547.pt.trace.json.gz", 3310, 251, 4, 8},
                    Expected{"dlrm_8rank/worker5_step_12.1694128201549.pt.trace.json.gz", 3250, 245, 5, 8},
                    Expected{"dlrm_8rank/worker6_step_12.1694128201553.pt.trace.json.gz", 3272, 246, 6, 8},
                    Expected{"dlrm_8rank/worker7_step_12.1694128201553.pt.trace.json.gz", 3250, 246, 7, 8},
                    Expected{"kineto/amd_trace__mi250_minitoy_train_ROCm6_2_kineto.json.gz", 220, 14, -1, -1},
                    Expected{"kineto/b200__eager_trace.json.gz", 24656, 768, 0, 8},
                    Expected{"kineto/call_stack__backward_thread.json", 7, 1, 0, -1},
                    Expected{"kineto/cpu_only__rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz", 30, 0, 34, 300},
                    Expected{"kineto/df_index_resolver__df_index_resolver.json.gz", 216092, 19370, 1, 2},
                    Expected{"kineto/mtia_inference_trace__mtia_inference_rank_0.json.gz", 16158, 1313, -1, -1},
                    Expected{"kineto/nccl_parser_config__nccl_data.json.gz", 40573, 2700, 0, 2},
                    Expected{"kineto/ns_resolution_trace__rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz", 68692, 4350, 0,
                             1},
                    Expected{"kineto/rank_unavailable__rank_not_found.json.gz", 2467, 0, -1, -1},
                    Expected{"kineto/trace_filter__sampled_rank-0.json.gz", 4855, 1154, 0, 128},
                    Expected{"kineto/trace_filter__sampled_rank-1.json.gz", 4720, 1104, 1, 128},
                    Expected{"legacy/gpu_metrics_input.json", 340, 30, -1, -1}));

TEST(KinetoFilesRefused, AMemoryTimeline) {
  MOETAX_NEEDS_SHARED_DATA();
  const auto trace = read_kineto(shared_data() + "/traces/kineto/memory_analysis__memory_timeline.raw.gz");
  ASSERT_FALSE(trace);
  EXPECT_THAT(trace.error().message, testing::HasSubstr("memory timeline"));
}

}  // namespace
}  // namespace moetax
