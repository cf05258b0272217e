// Loads, bills and topologies.
#include "doctor/cases.h"

namespace moetax::doctor {
namespace {

std::string load_of(const std::vector<std::vector<int>>& layers) {
  std::string text = "layer_id,expert_id,count\n";
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    for (std::size_t expert = 0; expert < layers[layer].size(); ++expert) {
      text += std::to_string(layer) + "," + std::to_string(expert) + "," + std::to_string(layers[layer][expert]) + "\n";
    }
  }
  return text;
}

const File kSglang = {"run.sh", "python -m sglang.launch_server --model-path m --tp 4 --ep 4 --enable-eplb\n"};

TEST(DoctorCases, UnevenRanks) {
  expect_verdict({"hot experts side by side",
                  {kSglang, {"load.csv", load_of({{90, 80, 30, 30, 30, 30, 30, 30}})}},
                  "rank-imbalance",
                  {"busiest of 4 ranks has 1.94x", "49 % of the experts' time"},
                  {{"load.csv", "0,0,90\n0,1,80", "0,0,40\n0,1,30"}, {"run.sh", "--ep 4", "--ep 1"}}});
  expect_verdict({"one expert that no placement evens out",
                  {kSglang, {"load.csv", load_of({{200, 10, 30, 30, 30, 30, 30, 30}})}},
                  "hot-expert",
                  {"expert 0 of layer 0 alone has 2.05x", "redundant"},
                  {{"load.csv", "0,0,200", "0,0,40"}}});
  expect_verdict({"balancing where ranks are even already",
                  {kSglang, {"load.csv", load_of({{90, 10, 50, 50, 20, 80, 60, 40}})}},
                  "eplb-no-gain",
                  {"rank max/mean 1.00", "drop --enable-eplb"},
                  {{"run.sh", " --enable-eplb", ""}, {"load.csv", "0,0,90", "0,0,190"}}});
  expect_verdict(
      {"experts that are moved all the time",
       {{"run.sh",
         "python -m sglang.launch_server --model-path m --tp 4 --enable-eplb --eplb-rebalance-num-iterations 100\n"},
        {"log", "INFO [EPLBManager] rebalance end: time=1.8s\n"}},
       "eplb-too-often",
       {"1.80 s every 100 steps", "26 %"},
       {{"run.sh", "iterations 100", "iterations 5000"}}});
  expect_verdict(
      {"a rank that receives too much early in training",
       {{"run.sh",
         "torchrun pretrain.py --expert-model-parallel-size 4 --tensor-model-parallel-size 1 --num-layers 4 "
         "--num-experts 8 --moe-router-topk 2 --hidden-size 1024 --moe-ffn-hidden-size 512 --micro-batch-size 4 "
         "--seq-length 4096\n"},
        {"load.csv", load_of({{300, 100, 5, 5, 5, 5, 5, 5}})}},
       "hot-rank-memory",
       {"rank 0 receives 3.7x the mean", "GiB more activations"},
       {{"load.csv", "0,0,300\n0,1,100", "0,0,5\n0,1,5"}}});
  expect_verdict({"experts that nobody chose",
                  {{"load.csv", load_of({{400, 300, 0, 500, 450, 420, 380, 410}})}, {"log", "INFO step\n"}},
                  "experts-never-chosen",
                  {"1 of 8 experts", "expert 2 of layer 0"},
                  {{"load.csv", "0,2,0", "0,2,9"}}});
}

TEST(DoctorCases, LoadsOfAFewTokensOrAPartProveNothing) {
  EXPECT_FALSE(find(examined({{"load.csv", load_of({{4, 3, 0, 5}})}}), "experts-never-chosen"));
  EXPECT_FALSE(find(examined({{"load.csv", "layer_id,expert_id,count\n3,0,24990\n3,18,39249\n3,29,13378\n"}}),
                    "experts-never-chosen"));
}

TEST(DoctorCases, BillsTellOfSlowRanks) {
  const std::string bill =
      R"({"schema": "moetax.bill/1", "step_us": {"mean": 1000}, "tax": {"share": 0.3, "wait_us": 200},
 "ranks": [{"rank": 0, "waited_for": [{"rank": 1, "us": 200, "cause": "compute", "cause_text": "slower compute"}]}],
 "routing": {"rank_max_over_mean": 1.02, "expert_max_over_mean": 1.5},
 "findings": [{"id": "wait", "severity": "warning", "title": "rank 1 is late", "fix": "look at it", "gain_us_estimate": 200}]})";
  expect_verdict({"waits that are not the experts' load",
                  {{"bill.json", bill}},
                  "straggler",
                  {"wait for rank 1", "slower compute", "20.0 %"},
                  {{"bill.json", "\"rank_max_over_mean\": 1.02", "\"rank_max_over_mean\": 1.9"},
                   {"bill.json", "\"wait_us\": 200", "\"wait_us\": 2"}}});
  expect_verdict({"a bill's own findings are repeated", {{"bill.json", bill}}, "bill-wait", {"rank 1 is late"}, {}});
}

// ---- topologies -----------------------------------------------------------------------------------------------------

const char* const kTwoSockets =
    "\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tNIC2\n"
    "GPU0\t X \tNV4\tSYS\tSYS\tPIX\tSYS\tSYS\n"
    "GPU1\tNV4\t X \tSYS\tSYS\tPIX\tSYS\tSYS\n"
    "GPU2\tSYS\tSYS\t X \tNV4\tSYS\tPIX\tSYS\n"
    "GPU3\tSYS\tSYS\tNV4\t X \tSYS\tPIX\tSYS\n"
    "NIC0\tPIX\tPIX\tSYS\tSYS\t X \tSYS\tSYS\n"
    "NIC1\tSYS\tSYS\tPIX\tPIX\tSYS\t X \tSYS\n"
    "NIC2\tSYS\tSYS\tSYS\tSYS\tSYS\tSYS\t X \n";

TEST(DoctorCases, GroupsOnTheMachine) {
  const File launch = {"run.sh",
                       "torchrun --nnodes 1 --nproc_per_node 4 pretrain.py --expert-model-parallel-size 4 "
                       "--tensor-model-parallel-size 1 --num-experts 8\n"};
  expect_verdict({"a group over two sockets",
                  {launch, {"topo.txt", kTwoSockets}},
                  "ep-slow-link",
                  {"EP groups of 4 cross SYS", "fastest link is NV4", "EP 2"},
                  {{"run.sh", "--expert-model-parallel-size 4", "--expert-model-parallel-size 2"}}});
  const File over_nodes = {"run.sh",
                           "torchrun --nnodes 2 --nproc_per_node 4 pretrain.py --expert-model-parallel-size 8 "
                           "--tensor-model-parallel-size 1 --num-experts 8 --moe-router-topk 2 --hidden-size 1024\n"};
  expect_verdict({"two GPUs for each adapter",
                  {over_nodes, {"topo.txt", kTwoSockets}},
                  "nic-shared",
                  {"2 GPUs share an adapter", "EP 4", "4.00 KiB"},
                  {{"run.sh", "--expert-model-parallel-size 8", "--expert-model-parallel-size 4"}}});
  expect_verdict({"an adapter for management",
                  {over_nodes, {"topo.txt", kTwoSockets}},
                  "spare-adapters",
                  {"NIC2"},
                  {{"run.sh", "torchrun", "NCCL_IB_HCA=mlx5_0,mlx5_1 torchrun"}}});
  expect_verdict({"NVLink that is not used",
                  {{"topo.txt", kTwoSockets}, {"env", "NCCL_P2P_DISABLE=1\n"}},
                  "p2p-disabled",
                  {"NV4"},
                  {{"env", "DISABLE=1", "DISABLE=0"}}});
}

// ---- logs and tables of NCCL ----------------------------------------------------------------------------------------

TEST(DoctorCases, ConnectionsOfNccl) {
  const std::string head = "node1:10:11 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>\n";
  expect_verdict(
      {"sockets between nodes",
       {{"nccl.log", head + "node1:10:11 [0] NCCL INFO Channel 00/0 : 7[7] -> 8[0] [send] via NET/Socket/0\n"}},
       "socket-transport",
       {"1 of 1 connections", "7 -> 8 via NET/Socket/0"},
       {{"nccl.log", "NET/Socket/0", "NET/IB/0/GDRDMA"}}});
  expect_verdict(
      {"a pair that goes through the host's memory",
       {{"nccl.log", head + "node1:10:11 [0] NCCL INFO Channel 00 : 2[3d000] -> 3[3e000] via P2P/IPC\n"
                            "node1:10:11 [0] NCCL INFO Channel 00 : 3[3e000] -> 4[b1000] via SHM/direct/direct\n"}},
       "shm-between-gpus",
       {"ranks 3 and 4"},
       {{"nccl.log", "SHM/direct/direct", "P2P/IPC"}}});
}

// A table of sixteen ranks, eight on each of two hosts, with one row.
std::string table_of(const char* program, const std::string& busbw) {
  std::string text = std::string("# ") + program +
                     "\n# nThread 1 nGpus 1 minBytes 1073741824 maxBytes 1073741824\n#\n# Using devices\n";
  for (int rank = 0; rank < 16; ++rank) {
    text += "#  Rank " + std::to_string(rank) + " Group  0 Pid  1" + std::to_string(rank) + " on node" +
            std::to_string(rank / 8) + " device  " + std::to_string(rank % 8) + " [0x1b] NVIDIA A100-SXM4-80GB\n";
  }
  return text +
         "#\n#                                                              out-of-place                       "
         "in-place\n"
         "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   "
         "busbw #wrong\n"
         "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  "
         "(GB/s)\n"
         "  1073741824      16777216     float    none      -1    50000   21.15   " +
         busbw + "      0    50000   21.15   " + busbw + "    N/A\n";
}

TEST(DoctorCases, TablesOfBandwidth) {
  expect_verdict({"what a reading of busbw means",
                  {{"run.log", table_of("alltoall_perf", "19.83")}},
                  "alltoall-bandwidth",
                  {"busbw 19.8 GB/s means 10.6 GB/s over each GPU's adapter", "1.875 x"},
                  {{"run.log", "alltoall_perf", "broadcast_perf"}}});
  std::string topology = "<system version=\"1\"><cpu numaid=\"0\">";
  for (int gpu = 0; gpu < 8; ++gpu) {
    topology += "<pci busid=\"0000:0" + std::to_string(gpu) + ":00.0\" class=\"0x060400\"><pci busid=\"0000:1" +
                std::to_string(gpu) + ":00.0\" class=\"0x030200\"><gpu dev=\"" + std::to_string(gpu) +
                "\" sm=\"80\" rank=\"" + std::to_string(gpu) + "\"/></pci>";
    if (gpu % 2 == 0) {
      topology += "<pci busid=\"0000:2" + std::to_string(gpu) + ":00.0\" class=\"0x020700\"><nic><net name=\"mlx5_" +
                  std::to_string(gpu / 2) + "\" dev=\"" + std::to_string(gpu / 2) + "\" speed=\"200000\"/></nic></pci>";
    }
    topology += "</pci>";
  }
  topology += "</cpu></system>";
  expect_verdict({"the roof of four adapters for eight GPUs",
                  {{"alltoall.log", table_of("alltoall_perf", "19.83")}, {"topo.xml", topology}},
                  "alltoall-bandwidth",
                  {"19.8 of 23.4 GB/s, 85 % of its roof"},
                  {}});
  expect_verdict(
      {"all-reduce is at its roof, all-to-all is not",
       {{"alltoall.log", table_of("alltoall_perf", "20.10")}, {"allreduce.log", table_of("all_reduce_perf", "350.00")}},
       "alltoall-below-allreduce",
       {"20.1 GB/s where all-reduce shows that 82 are there", "NCCL_IB_ADAPTIVE_ROUTING=1"},
       {{"alltoall.log", "20.10", "70.10"}}});
}

TEST(DoctorCases, RanksThatDoNotAnswer) {
  expect_verdict(
      {"a rank that RAS misses",
       {{"ras.json", R"({"communicators": [{"hash": "0xa", "size": 2, "ranks": [{"rank": 0, "collective_counts": {}}],
                     "missing_ranks": [{"rank": 1}]}]})"}},
       "ranks-missing",
       {"rank 1 does not answer", "rank 1 of 2"},
       {{"ras.json", "{\"rank\": 1}", ""}}});
  expect_verdict({"ranks that are behind",
                  {{"ras.txt",
                    "RAS client status\n  26 ranks have launched up to operation 6650\n  6 ranks have launched up to "
                    "operation 6649\n"}},
                  "ranks-missing",
                  {"some ranks are at operation 6649, others at 6650"},
                  {{"ras.txt", "6649", "6650"}}});
}

}  // namespace
}  // namespace moetax::doctor
