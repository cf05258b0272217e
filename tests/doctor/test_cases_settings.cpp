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

TEST(DoctorCases, GraphsOverSeveralRanks) {
  expect_verdict({"full graphs of size 1 over data-parallel ranks",
                  {{"run.sh",
                    "vllm serve m --data-parallel-size 4 -tp 2 --enable-expert-parallel --compilation-config "
                    "'{\"cudagraph_mode\": \"FULL\", \"cudagraph_capture_sizes\": [1, 2, 4, 8]}'\n"}},
                  "graph-dp-padding",
                  {"4 data-parallel ranks", "PIECEWISE"},
                  {{"run.sh", "FULL", "PIECEWISE"}, {"run.sh", "--data-parallel-size 4", "--data-parallel-size 1"}}});
  expect_verdict(
      {"tensor parallelism over nodes inside graphs",
       {{"run.sh", "python -m sglang.launch_server --model-path m --tp 8 --nnodes 2\n"}},
       "graph-between-nodes",
       {"group of 8 over 2 nodes", "--enable-dp-attention"},
       {{"run.sh", "--nnodes 2", "--nnodes 2 --disable-cuda-graph"}, {"run.sh", "--nnodes 2", "--nnodes 1"}}});
  expect_verdict({"buffers that take the GPU",
                  {{"run.sh",
                    "export SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK=4096\npython -m sglang.launch_server "
                    "--model-path v3 --tp 32 --moe-a2a-backend deepep\n"},
                   deepseek_v3()},
                  "buffer-oversized",
                  {"28.0 GiB of buffers"},
                  {{"run.sh", "=4096", "=256"}}});
  expect_verdict({"attention and experts in different groups",
                  {{"run.sh", "torchrun serve.py --attn-tp-size 2 --attn-dp-size 2 --moe-tp-size 4 --moe\n"}},
                  "attention-moe-groups",
                  {"gather over 4 ranks", "rows of 2"},
                  {{"run.sh", "--moe-tp-size 4", "--moe-tp-size 2"}}});
}

TEST(DoctorCases, Capacity) {
  const char* const kLaunch =
      "torchrun --nproc_per_node 8 pretrain.py --num-experts 4 --moe-router-topk 1 --hidden-size 64 "
      "--expert-model-parallel-size 4 --moe-expert-capacity-factor 1.25 --moe-pad-expert-input-to-capacity\n";
  expect_verdict({"padding, priced by the factor",
                  {{"run.sh", kLaunch}},
                  "capacity-padding",
                  {"25 % more rows", "20 % of the experts' time"},
                  {{"run.sh", " --moe-pad-expert-input-to-capacity", ""}}});
  expect_verdict({"what the factor drops of a load",
                  {{"run.sh", kLaunch}, {"load.csv", "layer_id,expert_id,count\n0,0,40\n0,1,20\n0,2,20\n0,3,20\n"}},
                  "capacity-drops",
                  {"drops 9 % of layer 0", "8.8 %"},
                  {{"load.csv", "0,0,40", "0,0,20"}, {"run.sh", "1.25", "2"}}});
}

TEST(DoctorCases, BackendsForTheSize) {
  expect_verdict({"DeepEP inside one node",
                  {{"run.sh",
                    "torchrun --nnodes 1 --nproc_per_node 8 pretrain.py --expert-model-parallel-size 4 "
                    "--tensor-model-parallel-size 1 --moe-token-dispatcher-type flex --num-experts 64\n"}},
                  "deepep-single-node",
                  {"4 GPUs of one node", "alltoall"},
                  {{"run.sh", "type flex", "type alltoall"},
                   {"run.sh", "--nnodes 1 --nproc_per_node 8 pretrain.py --expert-model-parallel-size 4",
                    "--nnodes 2 --nproc_per_node 8 pretrain.py --expert-model-parallel-size 16"}}});
  expect_verdict({"the recommended combination that is slower than plain TP",
                  {{"run.sh",
                    "python -m sglang.launch_server --model-path m --tp 4 --dp 4 --enable-dp-attention "
                    "--moe-a2a-backend deepep\n"}},
                  "deepep-single-node",
                  {"--moe-a2a-backend none"},
                  {{"run.sh", "--moe-a2a-backend deepep", ""}}});
  expect_verdict({"two dimensions on 64 GPUs",
                  {{"run.sh", "torchrun --nnodes 8 --nproc_per_node 8 train.py --use_2dh --num-experts 64\n"}},
                  "two-level-small",
                  {"64 GPUs"},
                  {{"run.sh", "--nnodes 8", "--nnodes 32"}}});
  expect_verdict(
      {"all-gathers instead of an all-to-all",
       {{"run.yaml", "model: Qwen/Qwen3-30B-A3B\ndispatcher: torch\nexpert_parallel_size: 16\nphase: train\n"}},
       "dispatcher-allgather",
       {"all 16 ranks, 8 would do", "2.0x"},
       {{"run.yaml", "torch", "deepep"}, {"run.yaml", "size: 16", "size: 8"}}});
  expect_verdict({"replicated tokens",
                  {{"run.yaml", "distributed_config:\n  enable_expert_parallel: true\nnum_processes: 8\n"}},
                  "replicated-ep",
                  {"computed 8 times"},
                  {{"run.yaml", "true", "false"}}});
  expect_verdict({"a model that fits",
                  {{"run.sh", "python -m sglang.launch_server --model-path olmoe --tp 2 --ep 2\n"},
                   {"olmoe/config.json", R"({"model_type": "olmoe", "hidden_size": 2048, "intermediate_size": 1024,
                     "num_hidden_layers": 16, "num_experts": 64, "num_experts_per_tok": 8, "num_attention_heads": 16,
                     "num_key_value_heads": 16, "vocab_size": 50304})"},
                   {"log", "INFO device 0: NVIDIA H100 80GB HBM3\n"}},
                  "ep-not-needed",
                  {"12.9 GiB of weights fit on one h100"},
                  {{"log", "H100", "A40"}, {"run.sh", " --ep 2", ""}}});
  expect_verdict(
      {"tokens per second against the GPU",
       {{"run.sh", "torchrun --nproc_per_node 8 train.py --expert-model-parallel-size 8 --micro-batch-size 1\n"},
        qwen3(),
        {"log", "INFO NVIDIA H800\niteration 5 throughput: 6,325 tok/s/GPU\n"}},
       "low-mfu",
       {"6325 tokens/s", "% of what the h800", "of 989 TFLOP/s"},
       {{"log", "6,325", "26,325"}}});
  expect_verdict(
      {"a GPU-initiated backend over EFA",
       {{"run.sh",
         "export FI_PROVIDER=efa\ntorchrun --nnodes 8 --nproc_per_node 8 pretrain.py --moe-token-dispatcher-type "
         "flex --expert-model-parallel-size 16 --tensor-model-parallel-size 1\n"}},
       "efa-backend",
       {"alltoall"},
       {{"run.sh", "type flex", "type alltoall"}, {"run.sh", "FI_PROVIDER=efa", "FI_PROVIDER=verbs"}}});
}

TEST(DoctorCases, NetworkSettings) {
  const char* const kLaunch =
      "torchrun --nnodes 4 --nproc_per_node 8 pretrain.py --expert-model-parallel-size 32 --tensor-model-parallel-size "
      "1 "
      "--num-experts 64 --moe-router-topk 4 --hidden-size 2048\n";
  expect_verdict({"InfiniBand switched off",
                  {{"run.sh", std::string("export NCCL_IB_DISABLE=1\n") + kLaunch}},
                  "ib-disabled",
                  {"4 nodes talk over sockets", "unset NCCL_IB_DISABLE", "24.0 KiB"},
                  {{"run.sh", "DISABLE=1", "DISABLE=0"}, {"run.sh", "--nnodes 4", "--nnodes 1"}}});
  expect_verdict(
      {"a mapping that puts all ranks on one adapter",
       {{"run.sh",
         "export NVSHMEM_ENABLE_NIC_PE_MAPPING=1\npython -m sglang.launch_server --model-path m --tp 16 --nnodes 2 "
         "--moe-a2a-backend deepep\n"}},
       "nvshmem-nic-mapping",
       {"unset NVSHMEM_ENABLE_NIC_PE_MAPPING"},
       {{"run.sh", "MAPPING=1", "MAPPING=0"}}});
  expect_verdict({"RoCE with hashed routes",
                  {{"run.sh", std::string("export NCCL_IB_GID_INDEX=3\n") + kLaunch}},
                  "roce-ecmp",
                  {"NCCL_IB_ADAPTIVE_ROUTING=1", "SPLIT_DATA_ON_QPS=1"},
                  {{"run.sh", "export NCCL_IB_GID_INDEX=3", "export NCCL_IB_GID_INDEX=3 NCCL_IB_ADAPTIVE_ROUTING=1"}}});
  expect_verdict(
      {"sends that fell back to the CPU",
       {{"log",
         "WARN: ibgda_alloc_and_map_qp_uar with GPU as handler failed. We may need to enter the CPU fallback path.\n"}},
       "gpu-send-fallback",
       {"by the CPU", "PeerMappingOverride"},
       {}});
  expect_verdict({"two nodes against four",
                  {{"two.log",
                    "[tuning] Best dispatch (BF16): SMs 24, NVL chunk 8, RDMA chunk 16: 44.40 GB/s (RDMA), 120 GB/s "
                    "(NVL)\nstep\n"},
                   {"four.log",
                    "[tuning] Best dispatch (BF16): SMs 24, NVL chunk 8, RDMA chunk 16: 12.50 GB/s (RDMA), 40 GB/s "
                    "(NVL)\nstep\n"}},
                  "bandwidth-drop-nodes",
                  {"from 44.4 to 12.5 GB/s", "3.6x"},
                  {{"four.log", "12.50", "41.00"}}});
}

TEST(DoctorCases, Recomputation) {
  expect_verdict({"blocks recomputed with their exchange",
                  {{"run.sh",
                    "torchrun --nproc_per_node 8 -m nemo_automodel.train --ep_size 8 --activation_checkpointing true "
                    "--model_name_or_path Qwen/Qwen3-30B-A3B\n"}},
                  "recompute-exchange",
                  {"exchange over 8 ranks"},
                  {{"run.sh", "checkpointing true", "checkpointing false"}, {"run.sh", "--ep_size 8", "--ep_size 1"}}});
  expect_verdict(
      {"one token of many falls to the other side",
       {{"log",
         "CheckpointError saved metadata: {'shape': torch.Size([4096, 2048])} recomputed metadata: {'shape': "
         "torch.Size([4097, 2048])}\n"}},
       "recompute-rerouted",
       {"1 rows more or less"},
       {}});
}

TEST(DoctorCases, Numerics) {
  expect_verdict(
      {"router logits in bf16",
       {{"run.sh", "torchrun pretrain.py --expert-model-parallel-size 8 --num-experts 64 --moe-router-dtype bf16\n"}},
       "router-low-precision",
       {"--moe-router-dtype fp32"},
       {{"run.sh", "dtype bf16", "dtype fp32"}}});
  expect_verdict(
      {"a product of two types",
       {{"log", "RuntimeError: expected mat1 and mat2 to have the same dtype, but got: float != c10::BFloat16\n"}},
       "dtype-mismatch",
       {"entry of the MoE block"},
       {}});
  expect_verdict({"a bf16 model in fp16",
                  {{"ds.json", R"({"zero_optimization": {"stage": 1}, "fp16": {"enabled": true}})"}, mixtral()},
                  "dtype-of-job",
                  {"bf16 instead of fp16"},
                  {{"ds.json", "true", "false"}, {"mixtral/config.json", "bfloat16", "float16"}}});
  expect_verdict({"a bf16 model on an fp16 wire",
                  {{"run.yaml", "ep_size: 8\ndispatch_dtype: fp16\n"}, mixtral()},
                  "dtype-of-job",
                  {"conversion at every border"},
                  {{"run.yaml", "fp16", "bf16"}}});
  expect_verdict({"clipping where experts are cut differently",
                  {{"run.sh",
                    "torchrun pretrain.py --tensor-model-parallel-size 2 --expert-tensor-parallel-size 1 "
                    "--expert-model-parallel-size 8 --num-experts 64 --clip-grad 1.0\n"}},
                  "expert-grad-norm",
                  {"TP 2 and expert TP 1"},
                  {{"run.sh", "--expert-tensor-parallel-size 1", "--expert-tensor-parallel-size 2"}}});
  expect_verdict({"two engines that route on their own",
                  {{"run.sh",
                    "python3 -m verl.trainer.main_ppo actor_rollout_ref.rollout.name=vllm "
                    "actor_rollout_ref.model.path=Qwen/Qwen3-30B-A3B\n"}},
                  "rollout-router-mismatch",
                  {"rollout by vllm", "router_replay"},
                  {{"run.sh", "\n", " actor_rollout_ref.actor.router_replay.mode=R3\n"}}});
  expect_verdict({"a combine in FP8",
                  {{"run.yaml", "ep_size: 8\nmoe_combine_dtype: fp8\n"}},
                  "combine-fp8",
                  {"3.7 points", "combine in bf16"},
                  {{"run.yaml", "fp8", "bf16"}}});
}

TEST(DoctorCases, Offload) {
  expect_verdict(
      {"pageable memory",
       {{"ds.json",
         R"({"zero_optimization": {"stage": 1, "offload_optimizer": {"device": "cpu", "pin_memory": false}}})"}},
       "offload-unpinned",
       {"\"pin_memory\": true"},
       {{"ds.json", "false", "true"}}});
  expect_verdict({"a batch that uses all experts",
                  {{"run.sh", "llama-server -m model.gguf --cpu-moe -ub 512\n"}, qwen3()},
                  "offload-selective-useless",
                  {"512 tokens uses 128 of 128 experts", "1.12 GiB a layer"},
                  {{"run.sh", "-ub 512", "-ub 4"}, {"run.sh", " --cpu-moe", ""}}});
  expect_verdict(
      {"offload that was left on",
       {{"run.sh", "deepspeed --num_gpus 8 train.py --deepspeed ds.json\n"},
        {"ds.json",
         R"({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": true}}})"},
        {"olmoe/config.json", R"({"model_type": "olmoe", "hidden_size": 2048, "intermediate_size": 1024,
                     "num_hidden_layers": 16, "num_experts": 64, "num_experts_per_tok": 8, "num_attention_heads": 16,
                     "num_key_value_heads": 16, "vocab_size": 50304})"},
        {"log", "INFO NVIDIA H200\n"}},
       "offload-left-on",
       {"12.9 GiB of 141 GiB", "\"device\": \"none\""},
       {{"ds.json", "\"cpu\"", "\"none\""}, {"run.sh", "--num_gpus 8", "--num_gpus 1"}}});
  expect_verdict(
      {"experts on the CPU beside an empty GPU",
       {{"run.sh", "llama-server -m model.gguf -ngl 99 --cpu-moe\n"}, qwen3(), {"log", "INFO NVIDIA H200\n"}},
       "offload-left-on",
       {"drop --cpu-moe"},
       {{"run.sh", " --cpu-moe", ""}}});
}

TEST(DoctorCases, Overlap) {
  expect_verdict({"overlap with full recomputation",
                  {{"run.sh",
                    "torchrun pretrain.py --expert-model-parallel-size 8 --overlap-moe-expert-parallel-comm "
                    "--recompute-granularity full\n"}},
                  "overlap-incompatible",
                  {"full recomputation", "selective"},
                  {{"run.sh", "granularity full", "granularity selective"}}});
  expect_verdict({"overlap with an overlapped shared expert",
                  {{"run.sh",
                    "torchrun pretrain.py --expert-model-parallel-size 8 --overlap-moe-expert-parallel-comm "
                    "--moe-shared-expert-overlap\n"}},
                  "overlap-incompatible",
                  {"shared expert"},
                  {{"run.sh", " --moe-shared-expert-overlap", ""}}});
  expect_verdict(
      {"one hardware queue",
       {{"run.sh",
         "export CUDA_DEVICE_MAX_CONNECTIONS=1\ntorchrun pretrain.py --expert-model-parallel-size 8 "
         "--overlap-moe-expert-parallel-comm\n"}},
       "connections-serialise",
       {"CUDA_DEVICE_MAX_CONNECTIONS=32"},
       {{"run.sh", "CONNECTIONS=1", "CONNECTIONS=32"}, {"run.sh", " --overlap-moe-expert-parallel-comm", ""}}});
  expect_verdict({"one host thread for the optimizer",
                  {{"run.sh", "OMP_NUM_THREADS=1 deepspeed train.py --deepspeed ds.json\n"},
                   {"ds.json", R"({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}})"}},
                  "threads-starve",
                  {"one core"},
                  {{"run.sh", "THREADS=1", "THREADS=12"}}});
  expect_verdict(
      {"kernels without tuned sizes",
       {{"log", "WARNING Using default MoE config. Performance might be sub-optimal! Config file not found\n"}},
       "default-moe-config",
       {"near 0 end to end"},
       {}});
}

TEST(DoctorCases, MisplacedModules) {
  expect_verdict(
      {"an automatic device map in eight processes",
       {{"run.sh",
         "accelerate launch --num_processes 8 train.py --device_map auto --model mistralai/Mixtral-8x7B-v0.1\n"}},
       "device-map-auto",
       {"in 8 processes"},
       {{"run.sh", "num_processes 8", "num_processes 1"}, {"run.sh", "--device_map auto", ""}}});
  expect_verdict(
      {"compilation over experts",
       {{"run.sh",
         "accelerate launch --num_processes 8 train.py --torch_compile true --model mistralai/Mixtral-8x7B-v0.1\n"}},
       "compile-over-experts",
       {"torch.compile over 8 experts"},
       {{"run.sh", "compile true", "compile false"}}});
  expect_verdict({"a sampler that counts expert groups as one rank",
                  {{"run.sh",
                    "torchrun --nnodes 2 --nproc_per_node 8 pretrain.py --expert-model-parallel-size 4 "
                    "--tensor-model-parallel-size 1 --num_replicas 4\n"}},
                  "sampler-ep-kind",
                  {"split over 4 ranks, 16 bring tokens", "75 %", "num_replicas: 16"},
                  {{"run.sh", "replicas 4", "replicas 16"}}});
  expect_verdict(
      {"a benchmark flag that was left on",
       {{"run.sh", "torchrun pretrain.py --expert-model-parallel-size 8 --moe-router-force-load-balancing\n"}},
       "forced-balance",
       {"something else"},
       {{"run.sh", " --moe-router-force-load-balancing", ""}}});
  expect_verdict({"sizes that do not fill the ranks",
                  {{"run.sh",
                    "torchrun --nnodes 3 --nproc_per_node 8 pretrain.py --tensor-model-parallel-size 4 "
                    "--pipeline-model-parallel-size 4 --expert-model-parallel-size 2\n"}},
                  "sizes-do-not-fit",
                  {"24 ranks do not divide into groups of 16"},
                  {{"run.sh", "--nnodes 3", "--nnodes 4"}}});
  expect_verdict({"sixty experts over eight ranks",
                  {{"run.sh", "python -m sglang.launch_server --model-path m --tp 8 --ep 8\n"},
                   {"config.json", R"({"model_type": "qwen2_moe", "hidden_size": 2048, "moe_intermediate_size": 1408,
                     "num_hidden_layers": 24, "num_experts": 60, "num_experts_per_tok": 4})"}},
                  "uneven-experts",
                  {"60 experts do not divide over 8 ranks", "EP 6"},
                  {{"run.sh", "--ep 8", "--ep 4"}}});
  expect_verdict({"blocking launches",
                  {{"env", "CUDA_LAUNCH_BLOCKING=1\nNCCL_DEBUG=WARN\n"}},
                  "debug-left-on",
                  {"nothing overlaps"},
                  {{"env", "BLOCKING=1", "BLOCKING=0"}}});
  expect_verdict({"a container with little shared memory",
                  {{"env", "DEV_SHM_BYTES=67108864\n"}},
                  "shared-memory-small",
                  {"64.0 MiB", "--shm-size"},
                  {{"env", "67108864", "17179869184"}}});
  expect_verdict({"memory that cannot be registered",
                  {{"log", "node1:5:6 [0] NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory\n"}},
                  "locked-memory-small",
                  {"ulimit -l unlimited"},
                  {}});
}

}  // namespace
}  // namespace moetax::doctor
