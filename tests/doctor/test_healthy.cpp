// Jobs with nothing wrong: no warning, whatever notes there may be.
#include "doctor/cases.h"

namespace moetax::doctor {
namespace {

void expect_healthy(const char* what, const std::vector<File>& files) {
  SCOPED_TRACE(what);
  const Examination examination = examined(files);
  EXPECT_FALSE(examination.checked.empty());
  for (const Finding& finding : examination.findings) {
    EXPECT_EQ(finding.severity, Severity::kNote) << finding.id << ": " << words(finding);
  }
}

TEST(DoctorHealthy, Training) {
  expect_healthy("Megatron, experts inside a node", {{"run.sh", R"(#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS=8; NODES=4
ARGS=(
  --tensor-model-parallel-size 1 --pipeline-model-parallel-size 4 --expert-model-parallel-size 8
  --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-experts 8 --moe-router-topk 2
  --moe-router-load-balancing-type aux_loss --moe-aux-loss-coeff 1e-2 --moe-token-dispatcher-type alltoall
  --moe-grouped-gemm --seq-length 4096 --micro-batch-size 1 --global-batch-size 256 --bf16 --use-distributed-optimizer
)
torchrun --nproc_per_node $GPUS --nnodes $NODES --node_rank $RANK pretrain_gpt.py "${ARGS[@]}"
)"}});
  expect_healthy("ZeRO-2 of a mixture of experts",
                 {{"ds.json", R"({"zero_optimization": {"stage": 2, "overlap_comm": true}, "bf16": {"enabled": true},
                   "train_micro_batch_size_per_gpu": 2})"},
                  {"run.sh", "deepspeed --num_gpus 8 train.py --deepspeed ds.json --model_name_or_path qwen3 --bf16\n"},
                  qwen3()});
  expect_healthy(
      "ZeRO-3 of a dense model",
      {{"ds.json", R"({"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}})"},
       {"run.sh", "deepspeed --num_gpus 8 train.py --deepspeed ds.json --model_name_or_path meta/dense-8b\n"}});
  expect_healthy(
      "ZeRO-3 with a leaf module",
      {{"ds.json", R"({"zero_optimization": {"stage": 3, "leaf_module": {"classes": ["Qwen3MoeSparseMoeBlock"]}},
                   "bf16": {"enabled": true}})"},
       qwen3()});
  expect_healthy("torchtitan",
                 {{"job.toml", R"([model]
name = "deepseek_v3"
flavor = "16B"
[training]
local_batch_size = 4
seq_len = 4096
[parallelism]
data_parallel_shard_degree = 8
tensor_parallel_degree = 1
expert_parallel_degree = 8
[compile]
enable = false
[activation_checkpoint]
mode = "selective"
)"},
                  {"run.sh", "torchrun --nproc_per_node=8 -m torchtitan.train --job.config_file job.toml\n"}});
}

TEST(DoctorHealthy, Inference) {
  expect_healthy("vLLM over eight GPUs",
                 {{"run.sh",
                   "vllm serve mistralai/Mixtral-8x7B-v0.1 --tensor-parallel-size 8 --enable-expert-parallel "
                   "--max-num-seqs 128\n"}});
  expect_healthy("vLLM, data-parallel attention",
                 {{"run.sh",
                   "export VLLM_ALL2ALL_BACKEND=allgather_reducescatter\nvllm serve v3 --tensor-parallel-size 1 "
                   "--data-parallel-size 8 --enable-expert-parallel --max-num-seqs 256\n"},
                  deepseek_v3()});
  expect_healthy("SGLang over two nodes",
                 {{"run.sh",
                   "export SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK=256\npython -m sglang.launch_server "
                   "--model-path v3 --tp 16 --dp 16 --enable-dp-attention --nnodes 2 --node-rank 0 "
                   "--moe-a2a-backend deepep --max-running-requests 2048\n"},
                  deepseek_v3()});
  expect_healthy("SGLang without expert parallelism",
                 {{"run.sh", "python -m sglang.launch_server --model-path qwen3 --tp 4\n"}, qwen3()});
}

TEST(DoctorHealthy, LogsOfRunsThatWork) {
  expect_healthy("a training log",
                 {{"train.log",
                   " [2025-02-03 10:00:01] iteration 10/ 1000 | elapsed time per iteration (ms): 812.3 | lm "
                   "loss: 7.1E+00 | grad norm: 1.2\n [2025-02-03 10:00:09] iteration 20/ 1000 | elapsed time per "
                   "iteration (ms): 809.9 | lm loss: 6.8E+00 | grad norm: 1.1\n"}});
  expect_healthy("a server that compiled its kernels and serves",
                 {{"server.log",
                   "[10:00:01] DeepGEMM warmup: 100%| 512/512 [10:09<00:00, 1.2s/it]\n[10:10:30] INFO: server is "
                   "ready\n"}});
}

TEST(DoctorHealthy, MoreJobs) {
  expect_healthy(
      "axolotl, ZeRO-3, which sets leaf modules itself",
      {{"run.sh", "axolotl train cfg.yaml\naccelerate launch -m axolotl.cli.train cfg.yaml\n"},
       {"cfg.yaml",
        "base_model: mistralai/Mixtral-8x7B-v0.1\ndeepspeed: ds_zero3.json\nbf16: true\nsequence_len: 4096\n"}});
  expect_healthy(
      "Megatron with overlap as its recipes have it",
      {{"run.sh",
        "export CUDA_DEVICE_MAX_CONNECTIONS=32\ntorchrun --nnodes 8 --nproc_per_node 8 pretrain.py "
        "--tensor-model-parallel-size 1 --pipeline-model-parallel-size 8 --expert-model-parallel-size 8 "
        "--expert-tensor-parallel-size 1 --overlap-moe-expert-parallel-comm --recompute-granularity selective "
        "--moe-router-dtype fp32 --num-experts 256 --moe-router-topk 8 --hidden-size 7168 --num-layers 61 "
        "--moe-ffn-hidden-size 2048 --clip-grad 1.0 --bf16\n"}});
  expect_healthy("verl with replay of the routing",
                 {{"run.sh",
                   "python3 -m verl.trainer.main_ppo actor_rollout_ref.rollout.name=vllm "
                   "actor_rollout_ref.model.path=Qwen/Qwen3-30B-A3B actor_rollout_ref.actor.router_replay.mode=R3 "
                   "trainer.nnodes=2 trainer.n_gpus_per_node=8\n"}});
  expect_healthy("llama.cpp with experts on the CPU, one user",
                 {{"run.sh", "llama-server -m qwen3.gguf -ngl 99 --cpu-moe -c 8192\n"}, qwen3()});
  expect_healthy("TensorRT-LLM",
                 {{"run.sh", "trtllm-serve v3 --tp_size 8 --ep_size 8 --max_batch_size 128\n"}, deepseek_v3()});
  expect_healthy(
      "LoRA on attention only",
      {{"run.sh",
        "torchrun --nproc_per_node 8 finetune.py --tensor-model-parallel-size 4 --expert-tensor-parallel-size 1 "
        "--expert-model-parallel-size 4 --target_modules linear_qkv linear_proj --num-experts 64 "
        "--moe-router-topk 4 --hidden-size 2048\n"}});
  expect_healthy("an even load and no balancing",
                 {{"run.sh", "python -m sglang.launch_server --model-path m --tp 4 --ep 4\n"},
                  {"load.csv", "layer_id,expert_id,count\n0,0,500\n0,1,510\n0,2,490\n0,3,500\n"}});
  expect_healthy(
      "a machine and a group of its size",
      {{"run.sh",
        "torchrun --nproc_per_node 2 pretrain.py --expert-model-parallel-size 2 --tensor-model-parallel-size 1 "
        "--num-experts 8\n"},
       {"topo.txt", "\tGPU0\tGPU1\tNIC0\nGPU0\t X \tNV12\tPIX\nGPU1\tNV12\t X \tPIX\nNIC0\tPIX\tPIX\t X \n"}});
  expect_healthy(
      "an NCCL log over InfiniBand",
      {{"nccl.log",
        "node1:10:11 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>\nnode1:10:11 [0] NCCL "
        "INFO Channel 00/0 : 7[7] -> 8[0] [send] via NET/IB/0/GDRDMA\n"}});
}

}  // namespace
}  // namespace moetax::doctor
