#!/bin/bash
export NNODES=$WORLD_SIZE
export NODE_RANK=$RANK
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
megatron sft \
  --attention_backend flash \
  --cross_entropy_loss_fusion true \
  --expert_model_parallel_size 8 \
  --finetune true \
  --global_batch_size 16 \
  --max_length 8192 \
  --micro_batch_size 1 \
  --model Qwen/Qwen3-30B-A3B-Base \
  --moe_aux_loss_coeff 1e-3 \
  --moe_grouped_gemm true \
  --moe_permute_fusion true \
  --moe_shared_expert_overlap true \
  --packing true \
  --pipeline_model_parallel_size 2 \
  --recompute_granularity full \
  --recompute_method uniform \
  --recompute_num_layers 1 \
  --sequence_parallel true
