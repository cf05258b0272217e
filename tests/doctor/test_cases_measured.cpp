// Verdicts that rest on something measured: links, counters, bills, tables of kernels, logs of servers.
#include "doctor/cases.h"

namespace moetax::doctor {
namespace {

TEST(DoctorMeasured, LinksThatCarryMoreThanTheExchange) {
  expect_verdict(
      {"a raw put has twice the rate",
       {{"tuning.log",
         "INFO shmem_put_bw 1048576 bytes: 47.1 GB/s\n[tuning] Best dispatch (FP8): SMs 24, NVL chunk 28, RDMA "
         "chunk 20: 25.2 GB/s (RDMA), 82.3 GB/s (NVL)\n"}},
       "exchange-below-raw",
       {"dispatch reaches 25.2 GB/s", "raw put has 47.1", "46 % are lost"},
       {{"tuning.log", "25.2 GB/s (RDMA)", "44.9 GB/s (RDMA)"}, {"tuning.log", "47.1", "27.1"}}});
}

TEST(DoctorMeasured, PortsThatCarryNothing) {
  const std::string text =
      "INFO counters after 100 steps\n"
      "/sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data:918273645546\n"
      "/sys/class/infiniband/mlx5_0/ports/2/counters/port_xmit_data:12\n"
      "/sys/class/infiniband/mlx5_1/ports/1/counters/port_xmit_data:918270000000\n";
  expect_verdict(
      {"the second plane of an adapter",
       {{"counters.log", text}},
       "adapter-idle",
       {"1 of 3 ports carried nothing", "mlx5_0 port 2", "up to 33 %"},
       {{"counters.log", "ports/2/counters/port_xmit_data:12", "ports/2/counters/port_xmit_data:918273640000"}}});
}

TEST(DoctorMeasured, HostLinks) {
  const std::string text =
      "nvbandwidth Version: v0.6\nDevice 0: NVIDIA GB200 (00000008:01:00)\nRunning host_to_device_memcpy_ce.\n"
      "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)\n           0\n 0    176.92\n\nSUM host_to_device_memcpy_ce "
      "176.92\n";
  expect_verdict({"a third of what the plan assumed",
                  {{"nvbandwidth.txt", text}},
                  "host-link-slow",
                  {"176.9 GB/s", "about 400 are usual", "2.3x the planned time"},
                  {{"nvbandwidth.txt", "0    176.92", "0    376.92"}, {"nvbandwidth.txt", "GB200", "H100"}}});
}

TEST(DoctorMeasured, CachesOfExperts) {
  expect_verdict({"nine of ten experts are there",
                  {{"server.log", "INFO expert cache hit rate 88.7% over 512 tokens\n"}, qwen3()},
                  "expert-cache-misses",
                  {"11.3 % of the experts", "a token with 16-bit weights", "nvbandwidth"},
                  {{"server.log", "88.7%", "99.9%"}, {"server.log", "expert cache", "prefix cache"}}});
}

TEST(DoctorMeasured, WeightsThatMove) {
  expect_verdict({"offload for a single user",
                  {{"run.sh", "vllm serve Qwen/Qwen3-30B-A3B --cpu-offload-gb 40 --max-num-seqs 1\n"}},
                  "offload-moves-weights",
                  {"40 GiB of weights cross the host link", "at most 1 sequences", "--cpu-moe"},
                  {{"run.sh", "--max-num-seqs 1", "--max-num-seqs 256"}, {"run.sh", "--cpu-offload-gb 40", ""}}});
}

TEST(DoctorMeasured, ExpertsThatLlamaCppKeepsOnTheHost) {
  const std::string log =
      "llama_model_load_from_file_impl: using device CUDA0 (NVIDIA GeForce RTX 4090) - 23008 MiB free\n"
      "tensor blk.0.ffn_gate_exps.weight (63 MiB q4_K) buffer type overridden to CPU\n"
      "load_tensors: offloaded 49/49 layers to GPU\n"
      "load_tensors:        CUDA0 model buffer size =  2624.41 MiB\n"
      "load_tensors:   CPU_Mapped model buffer size = 14166.92 MiB\n";
  expect_verdict({"a flag left on",
                  {{"llama.log", log}},
                  "offload-left-on",
                  {"13.8 GiB of weights stay on the host", "22.5 GiB", "-ngl 99"},
                  {{"llama.log", "23008", "12008"}, {"llama.log", "14166.92", "166.92"}}});
}

TEST(DoctorMeasured, ProductsWithoutTensorCores) {
  expect_verdict({"a gate in fp32",
                  {{"kernels.csv",
                    "Time (%),Total Time (ns),Instances,Name\n91.9,9190000,100,nvjet_hsh_128x256\n8.1,810000,58,"
                    "cutlass_80_simt_sgemm_128x64_8x5_tn_align1\n"}},
                  "gate-simt",
                  {"8.1 %", "simt_sgemm", "58 launches"},
                  {{"kernels.csv", "simt_sgemm", "tensorop_s1688gemm"}, {"kernels.csv", ",810000,", ",81000,"}}});
}

TEST(DoctorMeasured, ExchangesOnFewBlocks) {
  std::string rows = "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Name\n";
  for (int i = 0; i < 5; ++i) {
    rows +=
        "100,5000,1,16,1,1,128,1,1,ragged_all_to_all_kernel\n200,3000,2,1480,1,1,256,1,1,gemm\n300,10,3,,,,,,,[CUDA "
        "memcpy]\n";
  }
  expect_verdict({"a block for each peer",
                  {{"gpu_trace.csv", rows}},
                  "exchange-few-blocks",
                  {"16 blocks of 128 threads", "5 launches", "62 %"},
                  {{"gpu_trace.csv", "100,5000,1,16,1", "100,5000,1,512,1"}}});
  EXPECT_FALSE(find(examined({{"kernels.csv", "Total Time (ns),Name\n5000,ragged_all_to_all_kernel\n"}}),
                    "exchange-few-blocks"));
}

std::string bill(const char* tax, const char* exposed, const char* hidden, const char* wait = "300") {
  return std::string(R"({"schema": "moetax.bill/1", "step_us": {"mean": 10000}, "tax": {"share": )") + tax +
         R"(, "wait_us": )" + wait + R"(}, "compute_us": 2000, "exposed_us": )" + exposed + R"(, "hidden_us": )" +
         hidden + R"(, "sources": [{"file": "a.json"}], "findings": []})";
}

TEST(DoctorMeasured, StepsThatAreMostlyExchange) {
  expect_verdict({"a bill of a job on a backend that does not fit",
                  {{"bill.json", bill("0.78", "7800", "0")}},
                  "step-mostly-exchange",
                  {"78 % of the step", "compute is 2.00 ms", "leave products and kernels alone"},
                  {{"bill.json", "0.78", "0.31"}}});
}

TEST(DoctorMeasured, OverlapThatIsOnAndThatIsNot) {
  const File script = {"run.sh",
                       "torchrun --nproc_per_node 8 pretrain.py --num-experts 64 --expert-model-parallel-size 8 "
                       "--overlap-moe-expert-parallel-comm\n"};
  expect_verdict({"a schedule that hides nothing",
                  {{"bill.json", bill("0.2", "1800", "10")}, script},
                  "overlap-without-effect",
                  {"1 % of the communication is hidden", "1.80 ms"},
                  {{"bill.json", "\"hidden_us\": 10", "\"hidden_us\": 900"},
                   {"run.sh", " --overlap-moe-expert-parallel-comm", ""}}});
  expect_verdict({"an exchange in series",
                  {{"bill.json", bill("0.2", "1900", "0", "300")}},
                  "overlap-possible",
                  {"1.90 ms of communication run in series", "at most 1.60 ms"},
                  {{"bill.json", "\"hidden_us\": 0", "\"hidden_us\": 900"},
                   {"bill.json", "\"wait_us\": 300", "\"wait_us\": 1850"}}});
}

TEST(DoctorMeasured, BalancersAndWhatTheyCanNotSee) {
  expect_verdict(
      {"load alone, over two nodes",
       {{"run.sh",
         "python -m sglang.launch_server --model-path v3 --tp 16 --ep-size 16 --nnodes 2 --node-rank 0 "
         "--moe-a2a-backend deepep --enable-eplb --eplb-algorithm deepseek\n"},
        deepseek_v3()},
       "eplb-ignores-links",
       {"over 2 nodes by their load alone", "deepseek_hierarchical"},
       {{"run.sh", "algorithm deepseek", "algorithm deepseek_hierarchical"}, {"run.sh", "--nnodes 2", "--nnodes 1"}}});
  expect_verdict({"a single rank",
                  {{"run.sh", "python -m sglang.launch_server --model-path m --tp 4 --ep-size 1 --enable-eplb\n"}},
                  "eplb-no-gain",
                  {"over one rank"},
                  {{"run.sh", "--ep-size 1", "--ep-size 4"}}});
}

TEST(DoctorMeasured, FewRequestsOverManyRanks) {
  expect_verdict({"eight requests over eight ranks",
                  {{"run.sh", "vllm serve v3 --tensor-parallel-size 8 --enable-expert-parallel --max-num-seqs 8\n"},
                   deepseek_v3()},
                  "ep-few-requests",
                  {"at most 8 requests over 8 expert-parallel ranks", "8 rows a rank", "drop --enable-expert-parallel"},
                  {{"run.sh", "--max-num-seqs 8", "--max-num-seqs 256"}, {"run.sh", " --enable-expert-parallel", ""}}});
  expect_verdict({"a backend for many nodes on four GPUs of one",
                  {{"run.sh",
                    "export VLLM_ALL2ALL_BACKEND=deepep_high_throughput\nvllm serve m --tensor-parallel-size 1 "
                    "--data-parallel-size 4 --nnodes 1 --enable-expert-parallel\n"}},
                  "deepep-single-node",
                  {"4 GPUs of one node"},
                  {{"run.sh", "deepep_high_throughput", "allgather_reducescatter"}}});
}

TEST(DoctorMeasured, RoutesAreALoadToo) {
  std::string routes = "layer_id,expert_ids\n";
  for (int token = 0; token < 40; ++token) routes += token % 8 == 0 ? "0,2 3\n" : "0,0 1\n";
  expect_verdict(
      {"ids as llama.cpp's recorder writes them",
       {{"routes.csv", routes}, {"run.sh", "python -m sglang.launch_server --model-path m --tp 2 --ep-size 2\n"}},
       "rank-imbalance",
       {"1.75"},
       {}});
}

TEST(DoctorMeasured, ModelsThatAreTooSmall) {
  const File tiny = {"config.json", R"({"model_type": "mixtral", "hidden_size": 512, "intermediate_size": 1024,
  "num_hidden_layers": 8, "num_local_experts": 8, "num_experts_per_tok": 2, "num_attention_heads": 8,
  "num_key_value_heads": 8, "vocab_size": 32000, "torch_dtype": "bfloat16"})"};
  expect_verdict({"a mixture of 150 M parameters",
                  {tiny, {"run.sh", "torchrun --nproc_per_node 8 train.py --expert-model-parallel-size 8\n"}},
                  "layers-too-small",
                  {"M parameters", "512 x 1024"},
                  {{"config.json", "\"num_hidden_layers\": 8", "\"num_hidden_layers\": 80"}}});
}

TEST(DoctorMeasured, MemoryOfAGpuIsUnderstood) {
  const Examination examination =
      examined({qwen3(),
                {"run.sh",
                 "torchrun --nnodes 1 --nproc_per_node 8 pretrain.py --tensor-model-parallel-size 1 "
                 "--expert-model-parallel-size 8 --micro-batch-size 1 --seq-length 4096\n"}});
  // 30.5 B parameters of which 29.0 B are experts: (1.5 + 29.0 / 8) x 2 bytes; 48 layers x 4096 tokens x (15 x 2048 +
  // 8 x (4 x 2048 + 6 x 768)) bytes.
  EXPECT_THAT(examination.understood,
              testing::Contains(testing::AllOf(testing::HasSubstr("9.6"), testing::HasSubstr("GiB of 16-bit weights"),
                                               testing::HasSubstr("24.4 GiB of activations"))));
}

}  // namespace
}  // namespace moetax::doctor
