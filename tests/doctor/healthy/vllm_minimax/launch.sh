#!/bin/bash
vllm serve MiniMaxAI/MiniMax-M2.7 \
  --compilation-config '{"mode":3,"pass_config":{"fuse_minimax_qk_norm":true}}' \
  --tensor-parallel-size 4
