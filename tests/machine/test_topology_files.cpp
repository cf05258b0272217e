// Real files, each with the conclusion that is right for it.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "machine/topology_text.h"
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

TEST(RealMatrices, PcieQuads) {
  MOETAX_NEEDS_SHARED_DATA();
  const Topology machine = read_shared("topo/axolotl-536_8gpu_pix-node_onesocket.txt");
  EXPECT_EQ(groups_text(machine, 4), "0+1+2+3:PIX 4+5+6+7:PIX");
  EXPECT_EQ(groups_text(machine, 8), "0+1+2+3+4+5+6+7:NODE");
  EXPECT_EQ(machine.device(7).cpus, "0-23,48-71");
  EXPECT_EQ(machine.device(7).numa_node, 0);
  EXPECT_THAT(machine.skipped(), IsEmpty());
}

TEST(RealMatrices, SixAndTwo) {
  MOETAX_NEEDS_SHARED_DATA();
  const Topology machine = read_shared("topo/gpu-benchmark-v3_8gpu_pcie_phb-node-sys_6+2.txt");
  EXPECT_EQ(groups_text(machine, 2), "1+2:PHB 3+4:PHB 6+7:PHB 0+5:NODE");
  EXPECT_EQ(groups_text(machine, 8), "0+1+2+3+4+5+6+7:SYS");
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
    EXPECT_EQ(groups_text(machine, 8), fmt::format("0+1+2+3+4+5+6+7:{}", link));
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
  EXPECT_THAT(paired_nics(machine), ElementsAre(8, 7, 6, 5, 4, 3, 2, 1));
  EXPECT_THAT(nics_of_role(machine, NicRole::kFar), ElementsAre(0));
  EXPECT_EQ(groups_text(machine, 8), "0+1+2+3+4+5+6+7:NV18");
  EXPECT_EQ(environment_lines(machine, 8).withheld.size(), 1U);  // which adapters these are, the file does not say
}

TEST(RealMatrices, PairAndOneAcrossTheSocket) {
  MOETAX_NEEDS_SHARED_DATA();
  const Topology machine = read_shared("topo/nccl-1608_3gpu_h100nvl_pair_plus_sys.txt");
  EXPECT_EQ(groups_text(machine, 2), "0+1:NV12");
  EXPECT_THAT(best_ep_groups(machine, 2).left_over, ElementsAre(2));
  EXPECT_EQ(groups_text(machine, 3), "0+1+2:SYS");
}

TEST(RealMatrices, GluedCells) {
  MOETAX_NEEDS_SHARED_DATA();
  const Topology machine = read_shared("topo/nccl-820_a100x8_10nic_GLUED-CELLS_partial.txt");
  ASSERT_EQ(machine.nics(), 10);
  EXPECT_EQ(link_text(machine.link(0, 8 + 4)), "NODE");
  EXPECT_EQ(link_text(machine.link(0, 8 + 5)), "NODE");
  EXPECT_EQ(link_text(machine.link(0, 8 + 6)), "SYS");
  EXPECT_EQ(link_text(machine.link(4, 8 + 6)), "PXB");
  EXPECT_THAT(paired_nics(machine), ElementsAre(0, 1, 2, 3, 6, 7, -1, -1));
  EXPECT_EQ(link_text(machine.link(5, 7)), "NV12");
  EXPECT_THAT(environment_lines(machine, 4).lines, IsEmpty());  // what GPU6 and GPU7 are near to is cut off
  EXPECT_EQ(machine.unknown_gpu_pairs(), 1);                    // GPU6 and GPU7, whose rows are cut off
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
  EXPECT_THAT(nics_of_role(machine, NicRole::kRail), ElementsAre(6, 7));
  EXPECT_THAT(nics_of_role(machine, NicRole::kFar), ElementsAre(0, 1, 2, 3, 4, 5));
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
      nvlink += machine.link(gpu, other).kind == LinkKind::kNvlink;
      sys += machine.link(gpu, other).kind == LinkKind::kSys;
    }
    EXPECT_EQ(nvlink, 4);
    EXPECT_EQ(sys, 3);
  }
  ASSERT_EQ(islands(machine).size(), 1U);
  EXPECT_FALSE(islands(machine)[0].direct);
  EXPECT_EQ(groups_text(machine, 4), "0+1+2+3:NV1 4+5+6+7:NV1");
  EXPECT_EQ(link_text(slowest_link(best_ep_groups(machine, 2))), "NV2");
  EXPECT_EQ(groups_text(machine, 8), "0+1+2+3+4+5+6+7:SYS");
  EXPECT_THAT(machine.skipped(), IsEmpty());
}

TEST(RealMatrices, PcieOfTwoSockets) {
  MOETAX_NEEDS_SHARED_DATA();
  const Topology machine = read_shared("topo/rccl-issue_mi100x4_pcie_40-72_numa.txt");
  EXPECT_EQ(groups_text(machine, 2), "0+2:NODE 1+3:NODE");
  EXPECT_EQ(groups_text(machine, 4), "0+1+2+3:SYS");
  EXPECT_EQ(machine.device(0).numa_node, 7);
  EXPECT_EQ(machine.device(1).numa_node, 1);
  EXPECT_EQ(machine.device(3).numa_node, -1);  // cut off
  EXPECT_THAT(environment_lines(machine, 2).lines, ElementsAre("HIP_VISIBLE_DEVICES=0,2,1,3"));
}

TEST(RealMatrices, TwoHives) {
  MOETAX_NEEDS_SHARED_DATA();
  const Topology machine = read_shared("topo/rocm_8gpu_two-xgmi-hives-of-4_pcie-between_partial.txt");
  EXPECT_EQ(islands_text(machine), "0+1+2+3 4+5+6+7");
  EXPECT_EQ(groups_text(machine, 4), "0+1+2+3:XGMI 4+5+6+7:XGMI");
  EXPECT_EQ(groups_text(machine, 8), "0+1+2+3+4+5+6+7:SYS");
  EXPECT_THAT(machine.skipped(), IsEmpty());
}

// ---- NCCL XML -------------------------------------------------------------------------------------------------------

TEST(RealNcclXml, PciOnlyFilesSayNothingOfNvlink) {
  MOETAX_NEEDS_SHARED_DATA();
  const Topology aws = read_shared("nccl_xml/aws_p4d-24xl-topo.xml");
  EXPECT_EQ(aws.gpus(), 8);
  EXPECT_EQ(aws.fastest().kind, LinkKind::kUnknown);
  EXPECT_EQ(aws.skipped().size(), 1U);
  EXPECT_THAT(paired_nics(aws), ElementsAre(0, 0, 1, 1, 2, 2, 3, 3));
  EXPECT_EQ(between(aws, 0, 8), "PIX");
  EXPECT_EQ(between(aws, 0, 9), "PHB");
  EXPECT_EQ(between(aws, 0, 10), "SYS");
  EXPECT_EQ(pair_nics(aws).most_gpus_per_nic, 2);

  const Topology azure = read_shared("nccl_xml/azure_ndv4-topo.xml");
  EXPECT_EQ(azure.gpus(), 8);
  EXPECT_EQ(azure.nics(), 8);
  EXPECT_EQ(azure.device(0).bus_id, "0001:00:00.0");
  EXPECT_EQ(azure.device(0).numa_node, 1);
  EXPECT_EQ(pair_nics(azure).gpus[0].nearest.size(), 2U);
  EXPECT_EQ(pair_nics(azure).most_gpus_per_nic, 1);

  const Topology nebius = read_shared("nccl_xml/nebius_h100.xml");
  EXPECT_EQ(nebius.gpus(), 8);
  EXPECT_THAT(paired_nics(nebius), ElementsAre(4, 5, 6, 7, 0, 1, 2, 3));
  EXPECT_EQ(nebius.device(8).gbs, 50);
  EXPECT_NEAR(nebius.link(0, 8 + 4).gbs, 63, 0.1);  // generation 5, 16 lanes
}

TEST(RealNcclXml, Instinct) {
  MOETAX_NEEDS_SHARED_DATA();
  const Topology mi300x = read_shared("nccl_xml/rccl_topo_8p_940.xml");
  EXPECT_EQ(groups_text(mi300x, 8), "0+1+2+3+4+5+6+7:XGMI");
  EXPECT_EQ(mi300x.link(0, 7).gbs, 64);
  EXPECT_EQ(mi300x.nics(), 8);
  EXPECT_EQ(mi300x.device(8).gbs, 50);
  EXPECT_EQ(pair_nics(mi300x).most_gpus_per_nic, 1);
  EXPECT_EQ(mi300x.device(0).vendor, "AMD");

  const Topology mi250 = read_shared("nccl_xml/rccl_topo_16p1h.xml");
  EXPECT_EQ(mi250.gpus(), 16);
  EXPECT_EQ(between(mi250, 0, 1), "XGMI x4");
  EXPECT_EQ(mi250.link(0, 1).gbs, 200);
  EXPECT_EQ(groups_text(mi250, 2).substr(0, 11), "0+1:XGMI x4");
  EXPECT_FALSE(islands(mi250)[0].direct);

  const Topology six_links = read_shared("nccl_xml/rccl_topo_8p6l_4nic.xml");
  EXPECT_EQ(six_links.nics(), 4);
  EXPECT_EQ(islands_text(six_links), "0+1+2+3+4+5+6+7");
  EXPECT_FALSE(islands(six_links)[0].direct);
  EXPECT_EQ(between(six_links, 0, 1), "XGMI");
}

TEST(RealNcclXml, RingsOfFour) {
  MOETAX_NEEDS_SHARED_DATA();
  const Topology two_hives = read_shared("nccl_xml/rccl_topo_4p2h_1.xml");
  EXPECT_EQ(islands_text(two_hives), "0+1+2+3 4+5+6+7");
  EXPECT_FALSE(islands(two_hives)[0].direct);
  EXPECT_EQ(between(two_hives, 0, 3), "PXB");
  EXPECT_EQ(between(two_hives, 0, 4), "PHB");
  EXPECT_EQ(pair_nics(two_hives).most_gpus_per_nic, 8);
  const Topology rome = read_shared("nccl_xml/rccl_topo_8p_rome_n4.xml");
  EXPECT_EQ(islands_text(rome), "0+2+3+5 1+4+6+7");
  EXPECT_EQ(groups_text(rome, 4), "0+2+3+5:SYS 1+4+6+7:SYS");
  EXPECT_THAT(environment_lines(rome, 4).lines, ElementsAre("HIP_VISIBLE_DEVICES=0,2,3,5,1,4,6,7"));
}

TEST(RealNcclXml, SpeedOffByAThousand) {
  MOETAX_NEEDS_SHARED_DATA();
  const Topology machine = read_shared("nccl_xml/rccl_topo_4p_940.xml");
  EXPECT_EQ(groups_text(machine, 4), "0+1+2+3:XGMI");
  EXPECT_THAT(paired_nics(machine), ElementsAre(0, 1, 2, 3));
  for (int nic = 4; nic < 8; ++nic) EXPECT_EQ(machine.device(nic).gbs, 25);
  EXPECT_EQ(machine.skipped().size(), 4U);
}

TEST(RealNcclXml, PcieAlone) {
  MOETAX_NEEDS_SHARED_DATA();
  const Topology machine = read_shared("nccl_xml/rccl_topo_8p_pcie_2nic.xml");
  EXPECT_EQ(groups_text(machine, 4), "0+1+2+3:PXB 4+5+6+7:PXB");
  EXPECT_EQ(groups_text(machine, 8), "0+1+2+3+4+5+6+7:PHB");
  EXPECT_THAT(paired_nics(machine), ElementsAre(0, 0, 0, 0, 1, 1, 1, 1));
  EXPECT_THAT(machine.skipped(), IsEmpty());
}

TEST(RealNcclXml, AGraphIsNoTopology) {
  MOETAX_NEEDS_SHARED_DATA();
  const auto graph = read_topologies(shared_data() + "/nccl_xml/azure_ncv4-graph.xml");
  ASSERT_FALSE(graph);
  EXPECT_THAT(graph.error().message, testing::HasSubstr("graph XML"));
}

}  // namespace
}  // namespace moetax
