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

TEST(DoctorCases, ManagersThatGatherInChunks) {
  expect_verdict(
      {"chunks over per-expert modules",
       {{"run.sh", "torchrun --nproc_per_node 8 train.py --plugin gemini --model mistralai/Mixtral-8x7B-v0.1\n"}},
       "gemini-expert-modules",
       {"8 experts a layer", "moe_hybrid"},
       {{"run.sh", "gemini", "torch_ddp"}}});
  expect_verdict({"ZeRO-2 with idle experts",
                  {{"ds.json", R"({"zero_optimization": {"stage": 2}, "train_batch_size": 8})"}, qwen3()},
                  "zero2-idle-experts",
                  {"128 experts a layer"},
                  {{"ds.json", "\"stage\": 2", "\"stage\": 1"}}});
  expect_verdict({"the order of parameters changes",
                  {{"log",
                    "Invalidate trace cache @ step 1: expected module 15, but got module 313\nInvalidate trace cache @ "
                    "step 1: expected module 20, but got module 21\n"}},
                  "trace-cache-invalid",
                  {"depends on the data"},
                  {}});
}

TEST(DoctorCases, RanksThatLeave) {
  expect_verdict({"generation ends at different lengths",
                  {{"run.sh", "deepspeed --num_gpus 4 eval.py --ep_size 4 --predict_with_generate --model x\n"}},
                  "generate-not-synced",
                  {"over 4 ranks", "synced_gpus=True"},
                  {{"run.sh", "--ep_size 4", "--ep_size 1"}, {"run.sh", " --model", " --synced_gpus true --model"}}});
  expect_verdict({"batches that do not divide, with an expert-parallel size of 1",
                  {{"log", "INFO step 0\nbatches per rank: [12, 12, 11, 11]\n"}},
                  "unequal-batches",
                  {"12/12/11/11", "1 forward passes", "drop_last=True"},
                  {{"log", "12, 12, 11, 11", "12, 12, 12, 12"}}});
  expect_verdict({"the last batch of an epoch",
                  {{"run.sh", "deepspeed --num_gpus 8 train.py --ep_size 8 --dataloader_drop_last false\n"}},
                  "uneven-last-batch",
                  {"every forward is a collective"},
                  {{"run.sh", "last false", "last true"}}});
  expect_verdict({"an evaluation forward on rank 0 only",
                  {{"log",
                    "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=99, OpType=ALLTOALL_BASE, "
                    "NumelIn=64, Timeout(ms)=600000)\nrank 1 process exited with code 0\n"}},
                  "rank-left",
                  {"rank 0 waits in an all-to-all, rank 1 has ended", "print on rank 0"},
                  {{"log", "ALLTOALL_BASE", "ALLREDUCE"}, {"log", "rank 1 process exited", "rank 1 process goes on"}}});
}

TEST(DoctorCases, RanksWithoutTokens) {
  expect_verdict({"a rank that skips its experts",
                  {{"log",
                    "layer 3 tokens per rank: [18, 24, 0, 12]\n[Rank 1] Watchdog caught collective operation timeout: "
                    "WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=1)\n"}},
                  "zero-token-rank",
                  {"rank 2 got no tokens", "weight zero", "the run has stopped"},
                  {{"log", "24, 0, 12", "24, 30, 12"}}});
  expect_verdict({"the same seen in a load",
                  {{"load.csv", "layer_id,expert_id,count\n7,0,90\n7,1,10\n7,2,0\n7,3,0\n"},
                   {"run.sh", "torchrun train.py --ep 2 --moe x\n"}},
                  "zero-token-rank",
                  {"rank 1 got no tokens in layer 7", "experts 2 to 3"},
                  {{"load.csv", "7,2,0", "7,2,5"}}});
}

TEST(DoctorCases, CollectivesOnWrongGroups) {
  expect_verdict({"adapters on experts cut in another way",
                  {{"run.sh",
                    "torchrun --nproc_per_node 8 finetune.py --tensor-model-parallel-size 4 "
                    "--expert-tensor-parallel-size 1 --expert-model-parallel-size 4 --num-experts 128 "
                    "--moe-router-topk 8 --hidden-size 2048 --target_modules linear_fc1 linear_fc2\n"}},
                  "lora-expert-tp",
                  {"expert TP 1 and TP 4", "--expert-tensor-parallel-size 4"},
                  {{"run.sh", "--expert-tensor-parallel-size 1", "--expert-tensor-parallel-size 4"},
                   {"run.sh", "linear_fc1 linear_fc2", "linear_qkv linear_proj"}}});
  expect_verdict({"an all-to-all here, a reduction there",
                  {{"log",
                    "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=72, OpType=ALLTOALL_BASE, "
                    "NumelIn=8)\n[Rank 9] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=40, "
                    "OpType=REDUCE_SCATTER, NumelIn=16)\n"}},
                  "collective-order",
                  {"rank 3 waits in ALLTOALL_BASE, rank 9 in REDUCE_SCATTER"},
                  {{"log", "REDUCE_SCATTER", "ALLTOALL_BASE"}}});
  expect_verdict({"a pipeline with an exchange over the world",
                  {{"run.sh",
                    "torchrun --nproc_per_node 8 pretrain.py --fmoefy --num-experts 4 --tensor-model-parallel-size 2 "
                    "--pipeline-model-parallel-size 2\n"}},
                  "pipeline-world-exchange",
                  {"across 2 pipeline stages"},
                  {{"run.sh", "parallel-size 2\n", "parallel-size 1\n"}}});
  expect_verdict({"a communicator that is opened when memory is full",
                  {{"log", "INFO memory used 128.4 GiB / 141.0 GiB\nINFO entering the first optimizer step\n"}},
                  "lazy-communicator",
                  {"12.6 GiB of GPU memory left", "barrier"},
                  {{"log", "128.4", "90.0"}, {"log", "first optimizer step", "step 40"}}});
  expect_verdict({"rows that one rank sends and the other does not expect",
                  {{"log",
                    "rank 0 input_splits=[3, 5] output_splits=[3, 4]\nrank 1 input_splits=[4, 2] output_splits=[6, 2]\n"
                    "RuntimeError: failed\n"}},
                  "splits-not-transposed",
                  {"rank 0 sends 5 rows to rank 1, which expects 6"},
                  {{"log", "output_splits=[6, 2]", "output_splits=[5, 2]"}}});
  expect_verdict({"sizes that do not add up",
                  {{"log", "[rank2] RuntimeError: Split sizes doesn't match total dim 0 size\n"}},
                  "splits-not-transposed",
                  {"do not add up"},
                  {}});
}

TEST(DoctorCases, CapacityThatFollowsTheTokens) {
  expect_verdict(
      {"inference without dropping over eight ranks",
       {{"run.sh", "deepspeed --num_gpus 8 infer.py --ep_size 8 --num-experts 128 --moe-drop-tokens false\n"}},
       "dynamic-capacity",
       {"reduce the largest load over all ranks", "pad every rank's batch"},
       {{"run.sh", "drop-tokens false", "drop-tokens true"},
        {"run.sh", "--num_gpus 8 infer.py --ep_size 8", "--num_gpus 1 infer.py --ep_size 1"}}});
  expect_verdict(
      {"the same with an expert-parallel size of 1",
       {{"ds.json", R"({"train_batch_size": 8, "zero_optimization": {"stage": 2}, "moe": {"drop_tokens": false}})"},
        {"run.sh", "deepspeed --num_gpus 4 train.py --ep_size 1 --deepspeed_config ds.json\n"}},
       "dynamic-capacity",
       {"expert-parallel size of 1"},
       {{"ds.json", "false", "true"}}});
}

TEST(DoctorCases, TimeOutsWithAnotherCause) {
  expect_verdict(
      {"kernels compiled in the middle of serving",
       {{"run.sh",
         "export SGLANG_JIT_DEEPGEMM_PRECOMPILE=false\npython -m sglang.launch_server --model-path v3 --tp 16 "
         "--nnodes 2 --moe-a2a-backend deepep\n"}},
       "jit-not-precompiled",
       {"2 nodes", "compile_deep_gemm"},
       {{"run.sh", "=false", "=true"}, {"run.sh", "--nnodes 2", "--nnodes 1"}}});
  expect_verdict({"twelve minutes without a line",
                  {{"log",
                    "[2025-01-01 02:40:36] INFO prefill batch, 6144 tokens\n[2025-01-01 02:52:38] DeepEP error: CPU "
                    "recv timeout\n"}},
                  "silent-gap",
                  {"compiling"},
                  {{"log", "02:52:38", "02:41:38"}}});
  expect_verdict(
      {"all wait for peer 5",
       {{"log",
         "DeepEP timeout check failed: rank = 6, thread = 5, value = 1024\nDeepEP timeout check failed: rank = 7, "
         "thread = 5, value = 1024\nDeepEP timeout check failed: rank = 5, thread = 2, value = 0\n"}},
       "missing-peer",
       {"2 rank(s) wait for peer 5"},
       {}});
  expect_verdict(
      {"the first error is out of memory",
       {{"log",
         "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n[Rank 0] Watchdog caught "
         "collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLTOALL, NumelIn=1)\n"}},
       "oom-first",
       {"rank 3 ran out of memory first"},
       {{"log", "OutOfMemoryError: CUDA out of memory", "ValueError: no"}}});
}

}  // namespace
}  // namespace moetax::doctor
