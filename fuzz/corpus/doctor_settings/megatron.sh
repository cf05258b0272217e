#!/bin/bash
export NCCL_DEBUG=WARN
torchrun --nnodes 4 --nproc_per_node 8 pretrain.py \
  --tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 \
  --expert-model-parallel-size 32 \
  --num-layers 48 --hidden-size 2048 --moe-ffn-hidden-size 768 \
  --num-experts 128 --moe-router-topk 8 \
  --moe-router-load-balancing-type none --moe-aux-loss-coeff 1e-3 \
  --micro-batch-size 2 --seq-length 4096 --bf16
