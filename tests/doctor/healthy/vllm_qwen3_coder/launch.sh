#!/bin/bash
vllm serve Qwen/Qwen3-Coder-480B-A35B-Instruct \
  --enable-expert-parallel \
  --max-model-len 32000 \
  --tensor-parallel-size 8
