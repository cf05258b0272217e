// What kernels do, from their names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "moetax/analyze/kernel_rules.h"

namespace moetax {
namespace {

TEST(FunctionName, LeavesOutWhatIsNotTheName) {
  EXPECT_EQ(function_name("void a::ep::combine<8, b<2> >(int*)"), "a::ep::combine");
  EXPECT_EQ(function_name("ncclDevKernel_AllReduce(ncclArgs<4096ul>)"), "ncclDevKernel_AllReduce");
  EXPECT_EQ(function_name("void (anonymous namespace)::multimem_x<T>(T*)"), "::multimem_x");
  EXPECT_EQ(function_name("std::enable_if<(a>b), void>::type moe::foo<int>(int)"), "moe::foo");
  EXPECT_EQ(function_name(""), "");
}

void expect_comm(const char* kernel, const char* family, const char* phase, bool sync = false) {
  const KernelClass what = KernelRules().classify(kernel);
  EXPECT_EQ(what.role, KernelRole::kCommunication) << kernel;
  EXPECT_EQ(what.family, family) << kernel;
  EXPECT_EQ(what.phase, phase) << kernel;
  EXPECT_EQ(what.sync_only, sync) << kernel;
}

TEST(KernelRules, FamiliesAndPhases) {
  expect_comm("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)", "NCCL", "unknown");
  expect_comm("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "NCCL", "unknown");
  expect_comm("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", "RCCL", "unknown");
  expect_comm("void x::ep::internode::dispatch<false, 8, true, 8>(int)", "DeepEP", "dispatch");
  expect_comm("void deep_ep::intranode::combine<__nv_bfloat16>(int)", "DeepEP", "combine");
  expect_comm("void deep_ep::internode_ll::dispatch<true>(int)", "DeepEP", "dispatch");
  expect_comm("void x::ep::internode::notify_dispatch<false, 8>(int)", "DeepEP", "notify", true);
  expect_comm("void x::ep::internode::cached_notify<false>(int)", "DeepEP", "notify", true);
  expect_comm("void (anonymous namespace)::multimem_all_reduce_kernel<float>(float*)", "symmetric-memory",
              "tensor-parallel");
  expect_comm("void vllm::cross_device_reduce_1stage<half, 8>(int)", "custom-all-reduce", "tensor-parallel");
  expect_comm("void tensorrt_llm::kernels::moe_a2a::moeA2ADispatchKernel<1>(int)", "TensorRT-LLM", "dispatch");
  expect_comm("hcom_alltoallv__123_0", "HCCL", "unknown");
  expect_comm("nvshmemi_barrier_on_stream_kernel(int)", "NVSHMEM", "notify", true);
}

TEST(KernelRules, FalseFriendsAreNoCommunication) {
  for (const char* kernel :
       {"groupnorm_kernel_dispatch_up(int)", "void cub::DispatchReduceByKey<int>(int)",
        "void cub::DeviceScanKernel<cub::DispatchScan<int> >(int)", "flash_fwd_splitkv_combine_kernel<4>(int)",
        "void moe::dev::routing::routingIndicesHistogramKernel<moe::dispatch>(int)",
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >(float)",
        "void splitKreduce_kernel<32, 16, int>(int)", "void reduce_1Block_kernel<float>(int)",
        "void gemm<all_reduce_tag>(int)", ""}) {
    const KernelClass what = KernelRules().classify(kernel);
    EXPECT_EQ(what.role, KernelRole::kCompute) << kernel;
    EXPECT_FALSE(what.looks_like_comm) << kernel;
  }
}

TEST(KernelRules, UnknownNamesThatLookLikeItAreSaid) {
  for (const char* kernel :
       {"void mylib::fast_all_to_all<8>(int)", "my_moe::dispatch(int)", "custom_AllReduce_v3(int)"}) {
    const KernelClass what = KernelRules().classify(kernel);
    EXPECT_EQ(what.role, KernelRole::kCompute) << kernel;
    EXPECT_TRUE(what.looks_like_comm) << kernel;
  }
}

TEST(KernelRules, AUsersRulesComeFirst) {
  KernelRules rules;
  ASSERT_TRUE(rules.add(
      "# ours\nsync  Mine barrier notify mylib::*BARRIER\ncommunication Mine x dispatch nccl*SendRecv\n\n", "r.txt"));
  EXPECT_TRUE(rules.classify("void mylib::grid_barrier<1>(int)").sync_only);
  EXPECT_EQ(rules.classify("ncclDevKernel_SendRecv(int)").family, "Mine");
  EXPECT_EQ(rules.classify("ncclDevKernel_AllReduce(int)").family, "NCCL");
}

TEST(KernelRules, BadRulesAreNamed) {
  KernelRules rules;
  EXPECT_THAT(rules.add("compute - - -  x\nfast A b c d\n", "r.txt").error().message, testing::StartsWith("r.txt:2:"));
  EXPECT_FALSE(rules.add("compute a b c", "r.txt")) << "no pattern";
}

}  // namespace
}  // namespace moetax
