#!/bin/bash
export CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7
export NPROC_PER_NODE=8
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
megatron rlhf \
  --attention_backend flash \
  --cross_entropy_loss_fusion true \
  --expert_model_parallel_size 8 \
  --expert_tensor_parallel_size 1 \
  --finetune true \
  --global_batch_size 4 \
  --loss_type sigmoid \
  --max_length 8192 \
  --micro_batch_size 1 \
  --model Qwen/Qwen3-30B-A3B-Instruct-2507 \
  --moe_aux_loss_coeff 1e-3 \
  --moe_grouped_gemm true \
  --moe_permute_fusion true \
  --moe_shared_expert_overlap true \
  --packing true \
  --recompute_granularity full \
  --recompute_method uniform \
  --recompute_num_layers 1 \
  --rlhf_type dpo \
  --rpo_alpha 0.1 \
  --sequence_parallel true \
  --tensor_model_parallel_size 4
