// What a topology means for expert parallelism, on machines of known shape.
#include "moetax/machine/topology_facts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace moetax {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

Link of(LinkKind kind, int lanes = 0) {
  return {.kind = kind, .lanes = lanes};
}

// `gpus` GPUs and `nics` NICs without a link between them.
Topology machine_of(int gpus, int nics = 0) {
  std::vector<Device> devices;
  for (int i = 0; i < gpus; ++i) devices.push_back({DeviceKind::kGpu, i, fmt::format("GPU{}", i)});
  for (int i = 0; i < nics; ++i) devices.push_back({DeviceKind::kNic, i, fmt::format("NIC{}", i)});
  return {TopologyFormat::kNvidiaSmi, 1, devices};
}

// Links all pairs of `gpus` so.
void connect(Topology& topology, const std::vector<int>& gpus, const Link& link) {
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    for (std::size_t j = i + 1; j < gpus.size(); ++j) topology.set_link(gpus[i], gpus[j], link);
  }
}

Topology two_quads() {
  Topology topology = machine_of(8);
  connect(topology, {0, 1, 2, 3, 4, 5, 6, 7}, of(LinkKind::kNode));
  connect(topology, {0, 2, 4, 6}, of(LinkKind::kPix));
  connect(topology, {1, 3, 5, 7}, of(LinkKind::kPix));
  return topology;
}

std::string text(const EpGrouping& grouping) {
  std::string out;
  for (const EpGroup& group : grouping.groups) {
    out += fmt::format("{}:{} ", fmt::join(group.gpus, "+"), link_text(group.slowest));
  }
  return out + fmt::format("| {}", fmt::join(grouping.left_over, "+"));
}

TEST(EpGroups, QuadsThatConsecutiveRanksTearApart) {
  const Topology topology = two_quads();
  EXPECT_THAT(ep_sizes(topology), ElementsAre(2, 4, 8));
  EXPECT_EQ(text(best_ep_groups(topology, 4)), "0+2+4+6:PIX 1+3+5+7:PIX | ");
  EXPECT_EQ(text(consecutive_ep_groups(topology, 4)), "0+1+2+3:NODE 4+5+6+7:NODE | ");
  EXPECT_EQ(text(best_ep_groups(topology, 8)), "0+1+2+3+4+5+6+7:NODE | ");
  EXPECT_EQ(link_text(slowest_link(best_ep_groups(topology, 8))), "NODE");
  EXPECT_TRUE(stays_fastest(topology, best_ep_groups(topology, 4).groups[1]));
  EXPECT_FALSE(stays_fastest(topology, best_ep_groups(topology, 8).groups[0]));
}

TEST(EpGroups, PairsAreMatchedWhereTheFirstChoiceWouldStrandOne) {
  // A path 0 - 1 - 2 - 3 of NVLinks: taking 1 - 2 first would leave 0 and 3 without.
  Topology topology = machine_of(4);
  connect(topology, {0, 1, 2, 3}, of(LinkKind::kSys));
  topology.set_link(1, 2, of(LinkKind::kNvlink, 2));
  topology.set_link(0, 3, of(LinkKind::kNvlink, 2));
  EXPECT_EQ(text(best_ep_groups(topology, 2)), "0+3:NV2 1+2:NV2 | ");
  topology.set_link(0, 3, of(LinkKind::kSys));
  topology.set_link(0, 1, of(LinkKind::kNvlink, 2));
  topology.set_link(2, 3, of(LinkKind::kNvlink, 2));
  EXPECT_EQ(text(best_ep_groups(topology, 2)), "0+1:NV2 2+3:NV2 | ");
}

TEST(EpGroups, GpusThatNoGroupHasRoomForAreLeft) {
  Topology topology = machine_of(3);
  connect(topology, {0, 1, 2}, of(LinkKind::kSys));
  topology.set_link(0, 2, of(LinkKind::kNvlink, 12));
  EXPECT_THAT(ep_sizes(topology), ElementsAre(2, 3));
  EXPECT_EQ(text(best_ep_groups(topology, 2)), "0+2:NV12 | 1");
  EXPECT_EQ(text(best_ep_groups(topology, 3)), "0+1+2:SYS | ");
}

TEST(EpGroups, UnknownLinksAreSlowerThanAnyKnown) {
  Topology topology = machine_of(4);
  topology.set_link(0, 1, of(LinkKind::kNvlink, 2));
  topology.set_link(2, 3, of(LinkKind::kSys));
  EXPECT_EQ(text(best_ep_groups(topology, 2)), "0+1:NV2 2+3:SYS | ");
  EXPECT_EQ(text(best_ep_groups(topology, 4)), "0+1+2+3:unknown | ");
  EXPECT_FALSE(stays_fastest(machine_of(2), best_ep_groups(machine_of(2), 2).groups[0]));
}

TEST(EpGroups, LargeMachinesEnd) {
  Topology topology = machine_of(Topology::kMaxDevices);
  for (int a = 0; a < topology.gpus(); ++a) {
    for (int b = a + 1; b < topology.gpus(); ++b) {
      topology.set_link(a, b, of((a * 7 + b * 13) % 5 < 3 ? LinkKind::kPix : LinkKind::kSys));
    }
  }
  for (const int size : ep_sizes(topology)) {
    EXPECT_EQ(best_ep_groups(topology, size).groups.size(), static_cast<std::size_t>(topology.gpus() / size));
  }
}

TEST(Islands, DirectOrThroughEachOther) {
  const std::vector<Island> quads = islands(two_quads());
  ASSERT_THAT(quads, SizeIs(2));
  EXPECT_THAT(quads[1].gpus, ElementsAre(1, 3, 5, 7));
  EXPECT_TRUE(quads[0].equal);

  Topology ring = machine_of(4);
  connect(ring, {0, 1, 2, 3}, of(LinkKind::kSys));
  for (int i = 0; i < 4; ++i) ring.set_link(i, (i + 1) % 4, of(LinkKind::kXgmi, 1));
  ASSERT_THAT(islands(ring), SizeIs(1));
  EXPECT_FALSE(islands(ring)[0].direct);
  EXPECT_EQ(link_text(islands(ring)[0].slowest), "SYS");

  EXPECT_THAT(islands(machine_of(3)), SizeIs(3));
}

TEST(NicPairing, RailsTiesSparesAndFarOnes) {
  // Two GPUs share a switch with two NICs; one NIC is on the socket, one across it, one is never mentioned.
  Topology topology = machine_of(2, 5);
  for (const int gpu : {0, 1}) {
    topology.set_link(gpu, 2, of(LinkKind::kPxb));
    topology.set_link(gpu, 3, of(LinkKind::kPxb));
    topology.set_link(gpu, 4, of(LinkKind::kNode));
    topology.set_link(gpu, 5, of(LinkKind::kSys));
  }
  const NicPairing pairing = pair_nics(topology);
  EXPECT_THAT(pairing.gpus[1].nearest, ElementsAre(2, 3));
  EXPECT_EQ(pairing.gpus[0].nic, 2);
  EXPECT_EQ(pairing.gpus[1].nic, 3);
  EXPECT_EQ(pairing.most_gpus_per_nic, 1);
  EXPECT_THAT(pairing.roles,
              ElementsAre(NicRole::kRail, NicRole::kRail, NicRole::kSpare, NicRole::kFar, NicRole::kUnknown));
}

TEST(NicPairing, OneNicForAll) {
  Topology topology = machine_of(4, 1);
  for (int gpu = 0; gpu < 4; ++gpu) topology.set_link(gpu, 4, of(LinkKind::kSys));
  EXPECT_EQ(pair_nics(topology).most_gpus_per_nic, 4);
  EXPECT_THAT(pair_nics(topology).roles, ElementsAre(NicRole::kRail));
  EXPECT_THAT(pair_nics(machine_of(2, 1)).gpus[0].nearest, IsEmpty());
}

TEST(EnvironmentLines, OrderTheDevicesOnlyWhenThatHelps) {
  EXPECT_THAT(environment_lines(two_quads(), 4).lines,
              ElementsAre("CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_VISIBLE_DEVICES=0,2,4,6,1,3,5,7"));
  EXPECT_THAT(environment_lines(two_quads(), 8).lines, IsEmpty());
  EXPECT_THAT(environment_lines(two_quads(), 0).lines, IsEmpty());
}

TEST(EnvironmentLines, KeepIslandsTogetherWhereTheSlowestLinkIsTheSame) {
  // Two rings of four: no group of four is direct, but one within a ring has four of its six pairs on fast links.
  Topology topology = machine_of(8);
  connect(topology, {0, 1, 2, 3, 4, 5, 6, 7}, of(LinkKind::kSys));
  for (int i = 0; i < 8; ++i) topology.set_link(i, (i + 2) % 8, of(LinkKind::kNvlink, 2));
  EXPECT_EQ(text(best_ep_groups(topology, 4)), "0+2+4+6:SYS 1+3+5+7:SYS | ");
  EXPECT_EQ(environment_lines(topology, 4).lines.back(), "CUDA_VISIBLE_DEVICES=0,2,4,6,1,3,5,7");
}

TEST(EnvironmentLines, SayNothingOnGroundsOfUnknownLinks) {
  Topology topology = machine_of(4, 2);
  topology.set_link(0, 2, of(LinkKind::kNvlink, 2));
  topology.set_link(1, 3, of(LinkKind::kNvlink, 2));
  topology.set_link(0, 4, of(LinkKind::kPix));
  topology.set_link(0, 5, of(LinkKind::kSys));
  topology.devices()[4].adapter = "mlx5_0";
  topology.devices()[5].adapter = "mlx5_1";
  EXPECT_THAT(environment_lines(topology, 2).lines, IsEmpty());
  EXPECT_THAT(environment_lines(topology, 2).withheld, ElementsAre(HasSubstr("near some GPUs are not known")));
  EXPECT_THAT(pair_nics(topology).roles, ElementsAre(NicRole::kRail, NicRole::kUnknown));
}

TEST(EnvironmentLines, ListTheAdaptersWorthUsing) {
  Topology topology = machine_of(1, 2);
  topology.set_link(0, 1, of(LinkKind::kSys));
  topology.set_link(0, 2, of(LinkKind::kPix));
  EXPECT_THAT(environment_lines(topology, 0).withheld, ElementsAre(HasSubstr("NIC1")));
  topology.devices()[1].adapter = "mlx5_0";
  topology.devices()[2].adapter = "mlx5_1";
  EXPECT_THAT(environment_lines(topology, 0).lines, ElementsAre("NCCL_IB_HCA==mlx5_1"));
  topology.devices()[2].adapter = "mlx5_1;reboot";
  EXPECT_THAT(environment_lines(topology, 0).lines, IsEmpty());
  topology.devices()[2].adapter = "cxi1";
  EXPECT_THAT(environment_lines(topology, 0).lines, IsEmpty());
  topology.set_link(0, 1, of(LinkKind::kPix));
  EXPECT_THAT(environment_lines(topology, 0).withheld, IsEmpty());
}

}  // namespace
}  // namespace moetax
