#!/bin/bash
vllm serve zai-org/GLM-5.1-FP8 \
  --speculative-config.method mtp \
  --speculative-config.num_speculative_tokens 3 \
  --tensor-parallel-size 8
