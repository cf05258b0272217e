// Real files from public sources: what the doctor must conclude, and that it warns of nothing else.
#include <filesystem>
#include <fstream>
#include <iterator>

#include "doctor/cases.h"
#include "shared_data.h"

namespace moetax::doctor {
namespace {

using testing::Contains;
using testing::HasSubstr;

File shared(const std::string& name) {
  std::ifstream file(shared_data() + "/" + name, std::ios::binary);
  return {name, {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()}};
}

std::vector<File> shared_folder(const std::string& folder) {
  std::vector<File> files;
  for (const auto& entry : std::filesystem::directory_iterator(shared_data() + "/" + folder)) {
    files.push_back(shared(folder + "/" + entry.path().filename().string()));
  }
  return files;
}

TEST(DoctorRealFiles, LaunchesAreUnderstood) {
  MOETAX_NEEDS_SHARED_DATA();
  const std::vector<std::pair<const char*, const char*>> expected = {
      {"Mixtral8x7B-vllmEP4_defaultall2all_32_16384_.sh", "vllm, TP 1, DP 4, EP 4, ranks 4, graphs off"},
      {"Mixtral8x7B-vllmEP4_defaultall2all_32_16384_.yaml", "vllm, TP 1, PP 1, DP 1, EP 4, CP 1, 1 node of 4 GPUs"},
      {"deepseek-moe-16b-sglang-tp4-ep4-batch128.sh", "sglang, TP 4, EP 4, 1 node of 4 GPUs, graphs on"},
      {"deepseek-moe-16b-vllm-tp4-ep4-batch128-gloo.sh", "vllm, TP 4, EP 4, ranks 4, graphs on"},
      {"deepseek-v2-lite-vllm-dp_4_tp_1_ep_4-pplx.sh", "vllm, TP 1, EP 1, ranks 1, graphs on, exchange perplexity"},
      {"deepseek-v3-16b-torchtitan-ep8-dp8.sh", "torchtitan, TP 1, PP 1, DP 8, EP 8, 2 nodes of 4 GPUs"},
      {"deepseek-v3-16b-torchtitan-ep8-dp8.toml", "torchtitan, TP 1, PP 1, DP 8, EP 8, ETP 1, CP 1"},
      {"deepseek-v3-236b-torchtitan-ep32-dp8-pp8-tp4.yaml", "EP 32, CP 1, 64 nodes of 4 GPUs"},
      {"deepspeed_moe_run.sh", "deepspeed, EP 2"},
      {"megatron_run_deepseek_v3_h100.sh", "megatron, TP 2, PP 8, EP 64, nodes 128"}};
  for (const auto& [file, text] : expected) {
    EXPECT_THAT(examined({shared(std::string("launch/") + file)}).understood, Contains(HasSubstr(text))) << file;
  }
}

TEST(DoctorRealFiles, GroupsOfEightAndThirtyTwoCrossNodesOfFour) {
  MOETAX_NEEDS_SHARED_DATA();
  const auto eight = examined({shared("launch/deepseek-v3-16b-torchtitan-ep8-dp8.sh"),
                               shared("launch/deepseek-v3-16b-torchtitan-ep8-dp8.toml")});
  ASSERT_TRUE(find(eight, "ep-cross-node"));
  EXPECT_EQ(find(eight, "ep-cross-node")->title, "EP groups of 8 lie on 2 nodes");
  const auto more = examined({shared("launch/deepseek-v3-236b-torchtitan-ep32-dp8-pp8-tp4.yaml"),
                              shared("launch/deepseek-v3-236b-torchtitan-ep32-dp8-pp8-tp4.toml")});
  ASSERT_TRUE(find(more, "ep-cross-node"));
  EXPECT_EQ(find(more, "ep-cross-node")->title, "EP groups of 32 lie on 8 nodes");
}

TEST(DoctorRealFiles, ScriptsThatRunOnFewerGpusThanTheySay) {
  MOETAX_NEEDS_SHARED_DATA();
  for (const char* file :
       {"deepseek-v2-lite-vllm-dp_2_tp_2_ep_4-default-noCUgraph.sh", "deepseek-v2-lite-vllm-dp_4_tp_1_ep_4-pplx.sh"}) {
    EXPECT_TRUE(find(examined({shared(std::string("launch/") + file)}), "ep-inert")) << file;
  }
}

TEST(DoctorRealFiles, LoadsGiveTheRankBalanceKnownOfThem) {
  MOETAX_NEEDS_SHARED_DATA();
  const File launch = {"run.sh", "python -m sglang.launch_server --model-path m --tp 8 --ep 8\n"};
  const auto law = examined({launch, shared("load/ESFT_law_layer_expert_count.csv")});
  ASSERT_TRUE(find(law, "rank-imbalance"));
  EXPECT_THAT(find(law, "rank-imbalance")->title,
              HasSubstr("1.33x the mean load (median of layers), 2.32x in layer 19"));
  const auto translation = examined({launch, shared("load/ESFT_translation_layer_expert_count.csv")});
  ASSERT_TRUE(find(translation, "rank-imbalance"));
  EXPECT_THAT(find(translation, "rank-imbalance")->title,
              HasSubstr("1.72x the mean load (median of layers), 2.28x in layer 13"));
}

TEST(DoctorRealFiles, LogsGiveWhatIsKnownOfThem) {
  MOETAX_NEEDS_SHARED_DATA();
  EXPECT_TRUE(find(examined({shared("logs/nccl-226_64rank_socket_ring-oldest-format.log")}), "socket-transport"));
  EXPECT_FALSE(
      find(examined({shared("logs/nccl_p4d_4xA100_p2p-cumem_deepspeed-interleaved.log")}), "socket-transport"));
  EXPECT_TRUE(find(examined({shared("logs/nccl-1027_8gpu_shm-and-p2p_mixed.log")}), "shm-between-gpus"));
  EXPECT_TRUE(find(examined({shared("nccl_dumps/ras_sample.json")}), "ranks-missing"));
  EXPECT_TRUE(find(examined({shared("nccl_dumps/ras_text_samples.txt")}), "ranks-missing"));
}

// Configurations, topologies and logs that show nothing wrong by themselves.
TEST(DoctorRealFiles, NothingElseIsWarnedOf) {
  MOETAX_NEEDS_SHARED_DATA();
  for (const char* folder : {"configs", "topo", "nccl_xml", "load", "logs", "nccl_dumps"}) {
    for (const File& file : shared_folder(folder)) {
      for (const Finding& finding : examined({file}).findings) {
        const bool known =
            (finding.id == "socket-transport" && file.name == "logs/nccl-226_64rank_socket_ring-oldest-format.log") ||
            (finding.id == "ranks-missing" && file.name.starts_with("nccl_dumps/ras_"));
        EXPECT_TRUE(known || finding.severity == Severity::kNote)
            << file.name << ": " << finding.id << ": " << words(finding);
      }
    }
  }
}

// No time is measured here; that it ends is enough.
TEST(DoctorRealFiles, AllAtOnceAreKeptApart) {
  MOETAX_NEEDS_SHARED_DATA();
  std::vector<File> files;
  for (const char* folder : {"configs", "topo", "nccl_xml", "load", "logs", "nccl_dumps", "launch"}) {
    for (File& file : shared_folder(folder)) files.push_back(std::move(file));
  }
  for (const Finding& finding : examined(files).findings) {
    const bool known = finding.id == "ep-inert" || finding.id == "socket-transport" || finding.id == "ranks-missing";
    EXPECT_TRUE(finding.severity == Severity::kNote || known) << words(finding);
  }
}

}  // namespace
}  // namespace moetax::doctor
