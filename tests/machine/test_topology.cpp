// Reading `nvidia-smi topo -m`: every way in which such a matrix arrives damaged, and what must not be made of it.
#include "moetax/machine/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "machine/topology_text.h"

namespace moetax {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr std::string_view kTabs =
    "\tGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
    "GPU0\t X \tNV4\tPIX\tSYS\t0-7\t0\t\tN/A\n"
    "GPU1\tNV4\t X \tSYS\tPXB\t8-15\t1\t\tN/A\n"
    "NIC0\tPIX\tSYS\t X \tSYS\n"
    "NIC1\tSYS\tPXB\tSYS\t X \n"
    "\nLegend:\n\n  X    = Self\n  SYS  = something\n\nNIC Legend:\n\n  NIC0: mlx5_2\n  NIC1: mlx5_5\n";

TEST(NvidiaSmi, TabsAffinityAndLegends) {
  const Topology machine = read_one(kTabs);
  EXPECT_EQ(machine.format(), TopologyFormat::kNvidiaSmi);
  EXPECT_EQ(machine.line(), 1);
  ASSERT_EQ(machine.gpus(), 2);
  ASSERT_EQ(machine.nics(), 2);
  EXPECT_EQ(between(machine, 0, 1), "NV4");
  EXPECT_EQ(machine.link(0, 1).gbs, 100);
  EXPECT_THAT(std::string(machine.link(0, 1).source), HasSubstr("NVLink"));
  EXPECT_EQ(between(machine, 0, 2), "PIX");
  EXPECT_EQ(between(machine, 1, 3), "PXB");
  EXPECT_EQ(between(machine, 2, 3), "SYS");
  EXPECT_EQ(machine.link(0, 2).gbs, 0);
  EXPECT_EQ(machine.device(1).cpus, "8-15");
  EXPECT_EQ(machine.device(1).numa_node, 1);
  EXPECT_EQ(machine.device(2).adapter, "mlx5_2");
  EXPECT_EQ(machine.device(3).adapter, "mlx5_5");
  EXPECT_THAT(machine.skipped(), IsEmpty());
}

TEST(NvidiaSmi, CarriageReturnsAndTerminalColours) {
  const Topology machine = read_one(
      "\x1b[4m\tGPU0\tGPU1\tCPU Affinity\x1b[0m\r\n"
      "GPU0\t X \t\x1b[32mPHB\x1b[0m\t0-3\r\nGPU1\tPHB\t X \t0-3\r\n");
  EXPECT_EQ(between(machine, 0, 1), "PHB");
  EXPECT_THAT(machine.skipped(), IsEmpty());
}

TEST(NvidiaSmi, BlanksBannersAndEmptyLinesBetweenRows) {
  const Topology machine = read_one(
      "== the machine ==\n$ nvidia-smi topo -m\n"
      "      GPU0  GPU1  GPU2\n   \n"
      "GPU0   X    NV1   NV2\n\nsomebody's log line about GPU1\nGPU1  NV1    X    SYS\n\nGPU2  NV2   SYS    X\n");
  EXPECT_EQ(machine.line(), 3);
  EXPECT_EQ(between(machine, 0, 1), "NV1");
  EXPECT_EQ(between(machine, 0, 2), "NV2");
  EXPECT_EQ(between(machine, 1, 2), "SYS");
  EXPECT_EQ(machine.unknown_gpu_pairs(), 0);
}

TEST(NvidiaSmi, HeaderWithoutItsIndentation) {
  const Topology machine = read_one("GPU0  GPU1\nGPU0   X    NV8\nGPU1  NV8    X\n");
  EXPECT_EQ(between(machine, 0, 1), "NV8");
}

TEST(NvidiaSmi, BlankAffinityCellsLeaveTheirNeighboursAlone) {
  const Topology machine = read_one(
      "        GPU0    GPU1    NIC0    CPU Affinity    NUMA Affinity   GPU NUMA ID\n"
      "GPU0     X      NV12    PXB                                     N/A\n"
      "GPU1    NV12     X      PXB                     1               N/A\n"
      "NIC0    PXB     PXB      X\n");
  EXPECT_EQ(machine.device(0).cpus, "");
  EXPECT_EQ(machine.device(0).numa_node, -1);
  EXPECT_EQ(machine.device(1).cpus, "");
  EXPECT_EQ(machine.device(1).numa_node, 1);
}

TEST(NvidiaSmi, GluedCellsAndNames) {
  const Topology machine = read_one(
      "      GPU0  GPU1  NIC10NIC11  CPU Affinity\n"
      "GPU0   X    NV12  NODENODE  0-3\n"
      "GPU1  NV12   X    SYS SYS   4-7\n"
      "NIC10NODE  SYS     X    PIX\n");
  ASSERT_EQ(machine.nics(), 2);
  EXPECT_EQ(machine.device(2).name, "NIC10");
  EXPECT_EQ(machine.device(3).index, 11);
  EXPECT_EQ(between(machine, 0, 2), "NODE");
  EXPECT_EQ(between(machine, 0, 3), "NODE");
  EXPECT_EQ(between(machine, 1, 3), "SYS");
  EXPECT_EQ(between(machine, 2, 3), "PIX");
  EXPECT_EQ(machine.device(1).cpus, "4-7");
}

TEST(NvidiaSmi, ColumnsNamedByAdapters) {
  const Topology machine = read_one(
      "        GPU0    mlx5_0  mlx5_bond_1  CPU Affinity\n"
      "GPU0     X      PIX     SYS          0-3\n");
  ASSERT_EQ(machine.nics(), 2);
  EXPECT_EQ(machine.device(1).adapter, "mlx5_0");
  EXPECT_EQ(machine.device(2).adapter, "mlx5_bond_1");
  EXPECT_EQ(between(machine, 0, 2), "SYS");
}

TEST(NvidiaSmi, OldNamesOfClasses) {
  const Topology machine = read_one("     GPU0 GPU1 GPU2\nGPU0  X   PSB  SOC\nGPU1 PSB   X   SOC\nGPU2 SOC  SOC   X\n");
  EXPECT_EQ(between(machine, 0, 1), "PIX");
  EXPECT_EQ(between(machine, 1, 2), "SYS");
}

TEST(NvidiaSmi, RowsThatAreMissingAreUnknownAndSaidSo) {
  const Topology machine = read_one("     GPU0 GPU1 GPU2 GPU3\nGPU0  X   NV2  NV2  NV2\nGPU1 NV2   X   NV2  NV2\n");
  EXPECT_EQ(between(machine, 1, 3), "NV2");
  EXPECT_EQ(between(machine, 2, 3), "unknown");
  EXPECT_EQ(machine.unknown_gpu_pairs(), 1);
  ASSERT_THAT(machine.skipped(), SizeIs(1));
  EXPECT_THAT(machine.skipped()[0].why, HasSubstr("1 of 6 pairs"));
  EXPECT_EQ(machine.slowest().kind, LinkKind::kUnknown);
  EXPECT_EQ(link_text(machine.fastest()), "NV2");
}

TEST(NvidiaSmi, CutRowIsLaidOverItsColumns) {
  const Topology machine = read_one(
      "        GPU0    GPU1    GPU2    GPU3\n"
      "GPU0     X      PIX     NODE    SYS\n"
      "GPU1    PIX      X      NODE\n");
  EXPECT_EQ(between(machine, 1, 2), "NODE");
  EXPECT_EQ(between(machine, 1, 3), "unknown");
  ASSERT_FALSE(machine.skipped().empty());
  EXPECT_EQ(machine.skipped()[0].line, 3);
  EXPECT_THAT(machine.skipped()[0].why, HasSubstr("3 cells for 4 columns"));
}

TEST(NvidiaSmi, BlankCellInsideARowIsUnknown) {
  const Topology spaces = read_one(
      "        GPU0    GPU1    GPU2    GPU3\n"
      "GPU0     X              NODE    SYS\n");
  EXPECT_EQ(between(spaces, 0, 1), "unknown");
  EXPECT_EQ(between(spaces, 0, 2), "NODE");
  EXPECT_EQ(between(spaces, 0, 3), "SYS");
  const Topology tabs = read_one("\tGPU0\tGPU1\tGPU2\nGPU0\t X \t\tNODE\n");
  EXPECT_EQ(between(tabs, 0, 1), "unknown");
  EXPECT_EQ(between(tabs, 0, 2), "NODE");
}

TEST(NvidiaSmi, RowThatFitsNoColumnsGivesNoLink) {
  // A cell is missing somewhere behind the X and nothing lines up: only what stands before the X is sure.
  const Topology behind =
      read_one("  GPU0 GPU1 GPU2 GPU3\nGPU1         PIX        X        NODE\nGPU0 X PIX PIX PIX\n");
  EXPECT_EQ(between(behind, 0, 1), "PIX");
  EXPECT_EQ(between(behind, 1, 2), "unknown");
  EXPECT_EQ(between(behind, 1, 3), "unknown");
  // One is missing before it: nothing is.
  const Topology before =
      read_one("  GPU0 GPU1 GPU2 GPU3\nGPU2         PIX        X        NODE\nGPU0 X PIX PIX PIX\n");
  EXPECT_EQ(between(before, 1, 2), "unknown");
  EXPECT_EQ(between(before, 2, 3), "unknown");
  EXPECT_THAT(before.skipped()[0].why, HasSubstr("skipped"));
}

TEST(NvidiaSmi, MisplacedXAndTooManyCellsAreSkipped) {
  const Topology machine = read_one("  GPU0 GPU1 GPU2\nGPU0 PIX X PIX\nGPU1 NODE X NODE\nGPU2 SYS SYS X PIX PIX\n");
  EXPECT_EQ(between(machine, 0, 1), "NODE");
  EXPECT_EQ(between(machine, 0, 2), "unknown");
  ASSERT_THAT(machine.skipped(), SizeIs(3));
  EXPECT_THAT(machine.skipped()[0].why, HasSubstr("X below its own name"));
  EXPECT_THAT(machine.skipped()[1].why, HasSubstr("5 cells for 3 columns"));
}

TEST(NvidiaSmi, WhereDirectionsDifferTheSlowerHolds) {
  const Topology machine = read_one("  GPU0 GPU1\nGPU0 X NV4\nGPU1 NV2 X\n");
  EXPECT_EQ(between(machine, 0, 1), "NV2");
  ASSERT_THAT(machine.skipped(), SizeIs(1));
  EXPECT_THAT(machine.skipped()[0].why, HasSubstr("the slower one is taken"));
}

TEST(NvidiaSmi, SeveralMachinesInOneFile) {
  const std::vector<Topology> machines =
      read_all("node-a\n  GPU0 GPU1\nGPU0 X NV4\nGPU1 NV4 X\nnode-b\n  GPU0 GPU1\nGPU0 X SYS\nGPU1 SYS X\n");
  ASSERT_THAT(machines, SizeIs(2));
  EXPECT_EQ(machines[0].line(), 2);
  EXPECT_EQ(between(machines[0], 0, 1), "NV4");
  EXPECT_EQ(machines[1].line(), 6);
  EXPECT_EQ(between(machines[1], 0, 1), "SYS");
}

TEST(NvidiaSmi, OneGpuAlone) {
  const Topology machine = read_one("\tGPU0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \t0-3\t0\n");
  EXPECT_EQ(machine.gpus(), 1);
  EXPECT_EQ(machine.device(0).cpus, "0-3");
  EXPECT_EQ(machine.fastest().kind, LinkKind::kUnknown);
}

TEST(NvidiaSmi, OtherTextIsNoTopology) {
  for (const char* text : {"", "\n\n", "GPU0 GPU1\n", "GPU0 GPU1 are two devices\nGPU0 is busy\n", "{\"GPU0\": 1}",
                           "      GPU0  GPU1\nGPU0  0     15\nGPU1  15    0\n", "GPU0 GPU0\nGPU0 X X\n"}) {
    const auto machines = parse_topologies(text, "topo.txt");
    ASSERT_FALSE(machines) << text;
    EXPECT_EQ(machines.error().code, ErrorCode::kBadInput);
    EXPECT_THAT(machines.error().message, testing::StartsWith("topo.txt: "));
    EXPECT_FALSE(looks_like_topology(text)) << text;
  }
  EXPECT_TRUE(looks_like_topology(kTabs));
}

TEST(NvidiaSmi, ManyMachinesDoNotTakeAllMemory) {
  std::string header, row = "GPU0 X";
  for (int i = 0; i < Topology::kMaxDevices; ++i) header += " GPU" + std::to_string(i);
  std::string text;
  for (int i = 0; i < 40; ++i) text += header + "\n" + row + "\n";
  const std::vector<Topology> machines = read_all(text);
  EXPECT_LT(machines.size(), 20U);
  EXPECT_THAT(machines.back().skipped().back().why, HasSubstr("too many machines"));
}

}  // namespace
}  // namespace moetax
