#!/bin/bash
export CUDA_VISIBLE_DEVICES=0
swift sft \
  --experts_impl grouped_mm \
  --gradient_accumulation_steps 16 \
  --learning_rate 1e-4 \
  --max_length 2048 \
  --model Qwen/Qwen3-30B-A3B-Instruct-2507 \
  --per_device_train_batch_size 1 \
  --router_aux_loss_coef 1e-3 \
  --torch_dtype bfloat16 \
  --tuner_type lora
