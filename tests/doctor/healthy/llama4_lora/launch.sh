#!/bin/bash
export CUDA_VISIBLE_DEVICES=0,1,2,3
export NPROC_PER_NODE=4
export USE_HF=1
swift sft \
  --deepspeed zero3 \
  --freeze_aligner true \
  --freeze_vit true \
  --gradient_accumulation_steps 4 \
  --gradient_checkpointing true \
  --learning_rate 1e-4 \
  --max_length 2048 \
  --model meta-llama/Llama-4-Scout-17B-16E-Instruct \
  --per_device_train_batch_size 1 \
  --router_aux_loss_coef 1e-3 \
  --torch_dtype bfloat16 \
  --tuner_type lora
