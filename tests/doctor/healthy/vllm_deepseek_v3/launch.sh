#!/bin/bash
export VLLM_ROCM_USE_AITER=1
export VLLM_ROCM_USE_AITER_MOE=1
vllm serve deepseek-ai/DeepSeek-R1-0528 \
  --enable-expert-parallel \
  --tensor-parallel-size 8
