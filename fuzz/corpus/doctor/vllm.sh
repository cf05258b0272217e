vllm serve some/Mixtral-8x7B-v0.1 --enable-expert-parallel -tp 1
