#!/bin/bash
export CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7
export NPROC_PER_NODE=8
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
megatron sft \
  --attention_backend flash \
  --cross_entropy_loss_fusion true \
  --decoder_last_pipeline_num_layers 13 \
  --expert_model_parallel_size 4 \
  --finetune true \
  --global_batch_size 16 \
  --max_length 8192 \
  --micro_batch_size 1 \
  --model moonshotai/Moonlight-16B-A3B-Instruct \
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
