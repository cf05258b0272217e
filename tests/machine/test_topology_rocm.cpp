// Reading `rocm-smi --showtopo`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "machine/topology_text.h"
#include "moetax/machine/topology.h"

namespace moetax {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

const std::string kWeights =
    "===== Weight between two GPUs =====\n"
    "       GPU0   GPU1   GPU2   GPU3\n"
    "GPU0   0      15     30     72\n"
    "GPU1   15     0      40     72\n"
    "GPU2   30     40     0      52\n"
    "GPU3   72     72     52     0\n";

TEST(RocmSmi, WeightsTellLinksFromPcie) {
  const Topology machine = read_one(kWeights);
  EXPECT_EQ(machine.format(), TopologyFormat::kRocmSmi);
  EXPECT_EQ(between(machine, 0, 1), "XGMI");
  EXPECT_EQ(between(machine, 0, 2), "XGMI 2 hops");
  EXPECT_EQ(between(machine, 1, 2), "NODE");
  EXPECT_EQ(between(machine, 0, 3), "SYS");
  EXPECT_EQ(between(machine, 2, 3), "SYS");
  EXPECT_TRUE(slower(machine.link(0, 2), machine.link(0, 1)));
  EXPECT_THAT(machine.skipped(), IsEmpty());
}

TEST(RocmSmi, TypesDecideAndWeightsCountTheLinks) {
  const Topology machine = read_one(kWeights +
                                    "\n===== Hops between two GPUs =====\n       GPU0   GPU1   GPU2   GPU3\n"
                                    "GPU0   0      1      1      3\nGPU1   1      0      2      3\n"
                                    "GPU2   1      2      0      3\nGPU3   3      3      3      0\n"
                                    "\n===== Link Type between two GPUs =====\n       GPU0   GPU1   GPU2   GPU3\n"
                                    "GPU0   0      XGMI   XGMI   PCIE\nGPU1   XGMI   0      PCIE   PCIE\n"
                                    "GPU2   XGMI   PCIE   0      PCIE\nGPU3   PCIE   PCIE   PCIE   0\n"
                                    "\n===== Numa Nodes =====\nGPU[0]\t\t: (Topology) Numa Node: 1\n"
                                    "GPU[0]\t\t: (Topology) Numa Affinity: 1\nGPU[2]\t\t: (Topology) Numa Node: 0\n");
  EXPECT_EQ(between(machine, 0, 2), "XGMI 2 hops");  // one hop, says the matrix of hops
  EXPECT_EQ(between(machine, 1, 2), "NODE");
  EXPECT_EQ(machine.device(0).numa_node, 1);
  EXPECT_EQ(machine.device(1).numa_node, -1);
  EXPECT_EQ(machine.device(2).numa_node, 0);
}

TEST(RocmSmi, TypesAndHopsWithoutWeights) {
  const Topology machine = read_one(
      "== Hops between two GPUs ==\n GPU0 GPU1 GPU2\nGPU0 0 2 3\nGPU1 2 0 3\nGPU2 3 3 0\n"
      "== Link Type between two GPUs ==\n GPU0 GPU1 GPU2\nGPU0 0 PCIE PCIE\nGPU1 PCIE 0 XGMI\nGPU2 PCIE XGMI 0\n");
  EXPECT_EQ(between(machine, 0, 1), "NODE");
  EXPECT_EQ(between(machine, 0, 2), "SYS");
  EXPECT_EQ(between(machine, 1, 2), "XGMI 3 hops");
}

TEST(RocmSmi, HopsAloneTellNothing) {
  const Topology machine = read_one("== Hops between two GPUs ==\n GPU0 GPU1\nGPU0 0 1\nGPU1 1 0\n");
  EXPECT_EQ(between(machine, 0, 1), "unknown");
  ASSERT_THAT(machine.skipped(), SizeIs(1));
}

TEST(RocmSmi, CutAndBrokenRows) {
  const Topology machine =
      read_one("== Weight between two GPUs ==\n     GPU0 GPU1 GPU2 GPU3\nGPU0 0 15 15\nGPU1 15 15 0 15\nGPU2 1\n");
  EXPECT_EQ(between(machine, 0, 1), "XGMI");
  EXPECT_EQ(between(machine, 0, 2), "XGMI");
  EXPECT_EQ(between(machine, 0, 3), "unknown");
  EXPECT_EQ(between(machine, 1, 3), "unknown");
  ASSERT_THAT(machine.skipped(), SizeIs(4));
  EXPECT_EQ(machine.skipped()[0].line, 3);
  EXPECT_THAT(machine.skipped()[0].why, HasSubstr("3 cells for 4 columns"));
  EXPECT_THAT(machine.skipped()[1].why, HasSubstr("no 0 below its own name"));
}

TEST(RocmSmi, SeveralMachinesAndBothVendorsInOneFile) {
  const auto machines = read_all(kWeights + kWeights + "\n  GPU0 GPU1\nGPU0 X NV2\nGPU1 NV2 X\n");
  ASSERT_THAT(machines, SizeIs(3));
  EXPECT_EQ(machines[0].format(), TopologyFormat::kNvidiaSmi);
  EXPECT_EQ(machines[0].gpus(), 2);
  EXPECT_EQ(machines[2].line(), 7);
  EXPECT_EQ(between(machines[2], 0, 3), "SYS");
}

}  // namespace
}  // namespace moetax
