// Real files, each with the conclusion that is right for it.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "moetax/machine/topology.h"
#include "moetax/machine/topology_facts.h"
#include "shared_data.h"

namespace moetax {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Topology read_shared(const std::string& file) {
  auto machines = read_topologies(shared_data() + "/" + file);
  EXPECT_TRUE(machines) << machines.error().message;
  if (!machines) return {};
  EXPECT_EQ(machines->size(), 1U);
  return std::move(machines->front());
}

std::string groups_text(const Topology& topology, int size) {
  std::string out;
  for (const EpGroup& group : best_ep_groups(topology, size).groups) {
    out += fmt::format("{}:{} ", fmt::join(group.gpus, "+"), link_text(group.slowest));
  }
  return out;
}

std::vector<int> nearest_nics(const Topology& topology) {
  std::vector<int> nics;
  for (const GpuNics& gpu : pair_nics(topology).gpus) {
    nics.push_back(gpu.nic < 0 ? -1 : topology.device(gpu.nic).index);
  }
  return nics;
}

std::vector<int> of_role(const Topology& topology, NicRole role) {
  std::vector<int> nics;
  const NicPairing pairing = pair_nics(topology);
  for (std::size_t i = 0; i < pairing.roles.size(); ++i) {
    if (pairing.roles[i] == role) nics.push_back(static_cast<int>(i));
  }
  return nics;
}

TEST(RealMatrices, PcieQuads) {
  MOETAX_NEEDS_SHARED_DATA();
  const Topology machine = read_shared("topo/axolotl-536_8gpu_pix-node_onesocket.txt");
  EXPECT_EQ(groups_text(machine, 4), "0+1+2+3:PIX 4+5+6+7:PIX ");
  EXPECT_EQ(groups_text(machine, 8), "0+1+2+3+4+5+6+7:NODE ");
  EXPECT_EQ(machine.device(7).cpus, "0-23,48-71");
  EXPECT_EQ(machine.device(7).numa_node, 0);
  EXPECT_THAT(machine.skipped(), IsEmpty());
}

TEST(RealMatrices, SixAndTwo) {
  MOETAX_NEEDS_SHARED_DATA();
  const Topology machine = read_shared("topo/gpu-benchmark-v3_8gpu_pcie_phb-node-sys_6+2.txt");
  EXPECT_EQ(groups_text(machine, 2), "1+2:PHB 3+4:PHB 6+7:PHB 0+5:NODE ");
  EXPECT_EQ(groups_text(machine, 8), "0+1+2+3+4+5+6+7:SYS ");
  EXPECT_EQ(machine.device(6).numa_node, 1);
  EXPECT_THAT(machine.skipped(), IsEmpty());
}

TEST(RealMatrices, FullMeshes) {
  MOETAX_NEEDS_SHARED_DATA();
  const Topology pair = read_shared("topo/ml-eng_2gpu_nv2.txt");
  EXPECT_EQ(link_text(pair.link(0, 1)), "NV2");
  EXPECT_EQ(pair.device(0).numa_node, -1);
  for (const auto& [file, link] :
       {std::pair("topo/ml-eng_a100x8_nv12.txt", "NV12"), std::pair("topo/ml-eng_h100x8_nv18.txt", "NV18")}) {
    const Topology machine = read_shared(file);
    EXPECT_EQ(groups_text(machine, 8), fmt::format("0+1+2+3+4+5+6+7:{} ", link));
    ASSERT_EQ(islands(machine).size(), 1U);
    EXPECT_TRUE(islands(machine)[0].equal);
    EXPECT_EQ(machine.device(3).numa_node, 0);
    EXPECT_EQ(machine.device(4).numa_node, 1);
    EXPECT_EQ(machine.nics(), 0);
    EXPECT_THAT(machine.skipped(), IsEmpty());
  }
}

TEST(RealMatrices, RailsInReverseOrderAndAManagementPort) {
  MOETAX_NEEDS_SHARED_DATA();
  const Topology machine = read_shared("topo/nccl-1453_h100x8_9nic_rail-mixed.txt");
  EXPECT_THAT(nearest_nics(machine), ElementsAre(8, 7, 6, 5, 4, 3, 2, 1));
  EXPECT_THAT(of_role(machine, NicRole::kFar), ElementsAre(0));
  EXPECT_EQ(groups_text(machine, 8), "0+1+2+3+4+5+6+7:NV18 ");
  EXPECT_EQ(environment_lines(machine, 8).withheld.size(), 1U);  // which adapters these are, the file does not say
}

TEST(RealMatrices, PairAndOneAcrossTheSocket) {
  MOETAX_NEEDS_SHARED_DATA();
  const Topology machine = read_shared("topo/nccl-1608_3gpu_h100nvl_pair_plus_sys.txt");
  EXPECT_EQ(groups_text(machine, 2), "0+1:NV12 ");
  EXPECT_THAT(best_ep_groups(machine, 2).left_over, ElementsAre(2));
  EXPECT_EQ(groups_text(machine, 3), "0+1+2:SYS ");
}

TEST(RealMatrices, GluedCells) {
  MOETAX_NEEDS_SHARED_DATA();
  const Topology machine = read_shared("topo/nccl-820_a100x8_10nic_GLUED-CELLS_partial.txt");
  ASSERT_EQ(machine.nics(), 10);
  EXPECT_EQ(link_text(machine.link(0, 8 + 4)), "NODE");
  EXPECT_EQ(link_text(machine.link(0, 8 + 5)), "NODE");
  EXPECT_EQ(link_text(machine.link(0, 8 + 6)), "SYS");
  EXPECT_EQ(link_text(machine.link(4, 8 + 6)), "PXB");
  EXPECT_THAT(nearest_nics(machine), ElementsAre(0, 1, 2, 3, 6, 7, -1, -1));
  EXPECT_EQ(link_text(machine.link(5, 7)), "NV12");
  EXPECT_EQ(machine.unknown_gpu_pairs(), 1);  // GPU6 and GPU7, whose rows are cut off
  EXPECT_EQ(machine.device(5).cpus, "32-63,96-127");
  EXPECT_EQ(machine.device(5).numa_node, 1);
}

TEST(RealMatrices, CutAtTheFourthOfSixteen) {
  MOETAX_NEEDS_SHARED_DATA();
  const Topology machine = read_shared("topo/nccl-tests-78_dgx2_v100x16_10nic_partial.txt");
  EXPECT_EQ(machine.gpus(), 16);
  EXPECT_EQ(link_text(machine.fastest()), "NV6");
  EXPECT_EQ(machine.unknown_gpu_pairs(), 12 * 11 / 2);
  EXPECT_EQ(link_text(machine.link(3, 15)), "NV6");
  EXPECT_EQ(link_text(machine.link(4, 15)), "unknown");
  EXPECT_EQ(pair_nics(machine).gpus[3].nic, 16 + 1);
  EXPECT_EQ(machine.device(0).cpus, "0-23,48-71");
}

TEST(RealMatrices, RailPerGpuWithLegend) {
  MOETAX_NEEDS_SHARED_DATA();
  const Topology machine = read_shared("topo/sglang-env_h100x8_8nic.txt");
  const NicPairing pairing = pair_nics(machine);
  for (int gpu = 0; gpu < 8; ++gpu) {
    const int nic = pairing.gpus[static_cast<std::size_t>(gpu)].nic;
    EXPECT_EQ(machine.device(nic).adapter, fmt::format("mlx5_{}", gpu + 1));
    EXPECT_EQ(link_text(machine.link(gpu, nic)), "PIX");
  }
  EXPECT_EQ(pairing.most_gpus_per_nic, 1);
  EXPECT_THAT(environment_lines(machine, 8).lines, IsEmpty());  // nothing to improve
  EXPECT_THAT(machine.skipped(), IsEmpty());
}

TEST(RealMatrices, BlankAffinity) {
  MOETAX_NEEDS_SHARED_DATA();
  const Topology machine = read_shared("topo/vllm-19607_a100x2_8nic_blank-affinity.txt");
  EXPECT_THAT(of_role(machine, NicRole::kRail), ElementsAre(6, 7));
  EXPECT_THAT(of_role(machine, NicRole::kFar), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_EQ(machine.device(0).cpus, "");
  EXPECT_EQ(machine.device(0).numa_node, -1);
  EXPECT_EQ(link_text(machine.link(0, 1)), "NV12");
  EXPECT_THAT(machine.skipped(), IsEmpty());
}

TEST(RealMatrices, HybridCubeMesh) {
  MOETAX_NEEDS_SHARED_DATA();
  const Topology machine = read_shared("topo/wechat-yard_v100x8_cubemesh_nv1-nv2-sys.txt");
  for (int gpu = 0; gpu < 8; ++gpu) {
    int nvlink = 0, sys = 0;
    for (int other = 0; other < 8; ++other) {
      if (other == gpu) continue;
      nvlink += machine.link(gpu, other).kind == LinkClass::kNvlink;
      sys += machine.link(gpu, other).kind == LinkClass::kSys;
    }
    EXPECT_EQ(nvlink, 4);
    EXPECT_EQ(sys, 3);
  }
  ASSERT_EQ(islands(machine).size(), 1U);
  EXPECT_FALSE(islands(machine)[0].direct);
  EXPECT_EQ(groups_text(machine, 4), "0+1+2+3:NV1 4+5+6+7:NV1 ");
  EXPECT_EQ(link_text(slowest_link(best_ep_groups(machine, 2))), "NV2");
  EXPECT_EQ(groups_text(machine, 8), "0+1+2+3+4+5+6+7:SYS ");
  EXPECT_THAT(machine.skipped(), IsEmpty());
}

}  // namespace
}  // namespace moetax
