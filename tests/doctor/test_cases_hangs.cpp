// Jobs that stop because ranks do not enter the same collectives, and time-outs that are something else.
#include "doctor/cases.h"

namespace moetax::doctor {
namespace {

const char* const kZero3 =
    "{\n  \"zero_optimization\": {\n    \"stage\": 3\n  },\n  \"bf16\": {\"enabled\": true}\n}\n";

TEST(DoctorCases, Zero3OverExpertModules) {
  expect_verdict(
      {"fine-tune of a model with a module list of experts",
       {{"ds.json", kZero3}, mixtral()},
       "zero3-expert-modules",
       {"256 expert modules", "MixtralSparseMoeBlock", "set_z3_leaf_modules", "\"stage\": 3"},
       {{"ds.json", "3\n", "2\n"},
        {"ds.json", "\"stage\": 3", "\"stage\": 3, \"leaf_module\": {\"classes\": [\"MixtralSparseMoeBlock\"]}"},
        {"mixtral/config.json", "\"mixtral\"", "\"gpt_oss\""}}});
  expect_verdict(
      {"the same through accelerate, with the number of modules",
       {{"accelerate.yaml",
         "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 3\n"
         "  offload_param_device: cpu\n  offload_optimizer_device: cpu\nnum_processes: 4\n"},
        qwen3()},
       "zero3-expert-modules",
       {"6144 expert modules", "18432 linear layers", "deepspeed_moe_layer_cls_names: Qwen3MoeSparseMoeBlock"},
       {{"accelerate.yaml", "zero_stage: 3",
         "zero_stage: 3\n  deepspeed_moe_layer_cls_names: Qwen3MoeSparseMoeBlock"}}});
  expect_verdict({"the stage is in the name of the file that the launch line gives",
                  {{"run.sh",
                    "llamafactory-cli train --deepspeed examples/ds_z3_offload.json --model_name_or_path "
                    "mistralai/Mixtral-8x7B-v0.1\n"}},
                  "zero3-expert-modules",
                  {"Mixtral"},
                  {{"run.sh", "ds_z3", "ds_z2"}, {"run.sh", "Mixtral-8x7B", "Mistral-7B"}}});
}

TEST(DoctorCases, CollectivesOfDifferentSizes) {
  const std::string ahead =
      "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=8141, "
      "OpType=_ALLGATHER_BASE, NumelIn=75264, NumelOut=602112, Timeout(ms)=1800000) ran for 1800332 ms\n";
  const std::string others =
      "[Rank 5] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=8141, "
      "OpType=_ALLGATHER_BASE, NumelIn=2359296, NumelOut=18874368, Timeout(ms)=1800000) ran for 1800410 ms\n";
  expect_verdict({"one rank brings another number of elements to the same collective",
                  {{"train.log", "step 270\n" + ahead + others}},
                  "collective-mismatch",
                  {"collective 8141", "75264 elements on rank 0", "2359296 elements on rank 5"},
                  {{"train.log", "NumelIn=75264", "NumelIn=2359296"}, {"train.log", "SeqNum=8141", "SeqNum=8140"}}});
}

TEST(DoctorCases, TimeOutsThatAreCompiling) {
  expect_verdict(
      {"the warm-up of kernels had an hour to go",
       {{"server.log",
         "[2024-05-01 02:40:36] DeepGEMM warmup:   2%| 11/512 [01:09<57:05,  6.84s/it]\n"
         "RuntimeError: DeepEP error: timeout (dispatch CPU)\n"}},
       "jit-skew-timeout",
       {"not a fault of the network", "compile_deep_gemm"},
       {{"server.log", "DeepGEMM warmup", "Loading weights"}, {"server.log", "DeepEP error: timeout", "ready"}}});
}

}  // namespace
}  // namespace moetax::doctor
