// Settings that do nothing, contradict each other, or cost more than they bring.
#include "doctor/cases.h"

namespace moetax::doctor {
namespace {

TEST(DoctorCases, ExpertParallelismOverOneGpu) {
  expect_verdict({"a flag without ranks to spread over",
                  {{"run.sh", "EP=4\nvllm serve some/moe --tensor-parallel-size 1 --enable-expert-parallel\n"}},
                  "ep-inert",
                  {"one GPU", "--data-parallel-size 4"},
                  {{"run.sh", "--tensor-parallel-size 1", "--tensor-parallel-size 4"},
                   {"run.sh", " --enable-expert-parallel", ""}}});
  expect_verdict(
      {"the script means four, the flags make two",
       {{"run.sh",
         "TP=2\nEP=4\npython -m vllm.entrypoints.openai.api_server --model x -tp $TP --enable-expert-parallel\n"}},
       "ep-inert",
       {"over 2 GPUs, the script says 4", "--data-parallel-size 2"},
       {{"run.sh", "EP=4", "EP=2"}}});
}

TEST(DoctorCases, BalanceLossThatIsNeverComputed) {
  const char* const kLaunch =
      "torchrun --nproc_per_node 8 pretrain.py --expert-model-parallel-size 2 --num-experts 8 --moe-router-topk 2 "
      "--hidden-size 4096 --moe-router-load-balancing-type none --moe-aux-loss-coeff 1e-2\n";
  expect_verdict({"type none with a coefficient",
                  {{"run.sh", kLaunch}},
                  "aux-loss-inert",
                  {"0.01", "none computes no loss", "--moe-router-load-balancing-type aux_loss"},
                  {{"run.sh", "type none", "type aux_loss"}, {"run.sh", "1e-2", "0"}}});
  expect_verdict({"a coefficient without the router's logits",
                  {{"run.yaml",
                    "base_model: mistralai/Mixtral-8x7B-v0.1\nzero_stage: 2\nrouter_aux_loss_coef: 0.02\n"
                    "output_router_logits: false\n"}},
                  "aux-loss-inert",
                  {"output_router_logits: true"},
                  {{"run.yaml", "logits: false", "logits: true"}}});
}

TEST(DoctorCases, GraphOverRowCountsOfTheData) {
  const char* const kLaunch =
      "torchrun --nproc_per_node 8 pretrain.py --expert-model-parallel-size 8 --num-experts 64 --moe-router-topk 6 "
      "--hidden-size 2048 --moe-token-dispatcher-type alltoall --enable-cuda-graph\n";
  expect_verdict({"a graph over a dropless dispatcher",
                  {{"run.sh", kLaunch}},
                  "graph-dropless",
                  {"--cuda-graph-scope attn", "split sizes to the host"},
                  {{"run.sh", "--enable-cuda-graph", "--enable-cuda-graph --cuda-graph-scope attn"},
                   {"run.sh", "--enable-cuda-graph",
                    "--enable-cuda-graph --moe-expert-capacity-factor 1.25 --moe-pad-expert-input-to-capacity"},
                   {"run.sh", " --enable-cuda-graph", ""}}});
}

TEST(DoctorCases, BuffersBelowConcurrency) {
  expect_verdict({"draft tokens multiply what a rank sends",
                  {{"run.sh",
                    "export SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK=1024\n"
                    "python -m sglang.launch_server --model-path v3 --tp 32 --dp 32 --moe-a2a-backend deepep "
                    "--max-running-requests 16384 --speculative-num-draft-tokens 3\n"},
                   deepseek_v3()},
                  "buffer-below-concurrency",
                  {"send 2048 tokens, its buffer holds 1024", "14.0 GiB"},
                  {{"run.sh", "RANK=1024", "RANK=2048"}, {"run.sh", "16384", "4096"}}});
  expect_verdict({"the assertion itself",
                  {{"log", "[rank4] assert x.size(0) <= num_max_dispatch_tokens_per_rank\nAssertionError\n"}},
                  "buffer-below-concurrency",
                  {"128 unless told otherwise"},
                  {{"log", "assert x.size(0) <=", "config"}}});
}

TEST(DoctorCases, RecomputationThatRoutesAgain) {
  expect_verdict({"rows that differ by a few",
                  {{"err.txt",
                    "torch.utils.checkpoint.CheckpointError: tensor at position 14:\n"
                    "saved metadata: {'shape': torch.Size([18187, 16]), 'dtype': torch.int32}\n"
                    "recomputed metadata: {'shape': torch.Size([18201, 16]), 'dtype': torch.int32}\n"}},
                  "recompute-rerouted",
                  {"14 rows more or less", "save the router's choice"},
                  {}});
  expect_verdict({"another number of tensors",
                  {{"err.txt",
                    "CheckpointError: A different number of tensors was saved during the original forward and "
                    "recomputation.\nNumber of tensors saved during forward: 2038\nNumber of tensors saved during "
                    "recomputation: 1638.\n"}},
                  "recompute-rerouted",
                  {"saved 1638 tensors, the forward pass 2038", "dispatch handle"},
                  {}});
}

TEST(DoctorCases, GroupsOverNodesArePriced) {
  const char* const kLaunch =
      "torchrun --nnodes 2 --nproc_per_node 8 pretrain.py --expert-model-parallel-size 16 --tensor-model-parallel-size "
      "1 "
      "--num-layers 48 --num-experts 64 --moe-router-topk 4 --hidden-size 6144 --moe-ffn-hidden-size 1024\n";
  // 2 x 4 x 12 KiB x 1/2 x 48 layers = 2.25 MiB of a token.
  expect_verdict({"sixteen ranks over two nodes of eight",
                  {{"run.sh", kLaunch}},
                  "ep-cross-node",
                  {"groups of 16 lie on 2 nodes", "48.0 KiB", "2.25 MiB in 48 layers", "EP 8"},
                  {{"run.sh", "size 16", "size 8"},
                   {"run.sh", "--nnodes 2 --nproc_per_node 8", "--nnodes 1 --nproc_per_node 16"}}});
}

}  // namespace
}  // namespace moetax::doctor
