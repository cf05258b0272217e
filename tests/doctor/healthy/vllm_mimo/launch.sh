#!/bin/bash
vllm serve XiaomiMiMo/MiMo-V2-Flash \
  --generation-config vllm \
  --gpu-memory-utilization 0.9 \
  --tensor-parallel-size 4
