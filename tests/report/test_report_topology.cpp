// Golden drawings of machines: tests/report/golden/topology_<name>.txt, renewed like those of test_report_text.cpp.
#include "moetax/report/topology_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "moetax/report/bill.h"
#include "report/format.h"
#include "shared_data.h"

namespace moetax {
namespace {

void expect_fits(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), report::kColumns) << line;
    EXPECT_FALSE(!line.empty() && line.back() == ' ') << "trailing blank: " << line;
    for (const char c : line) EXPECT_TRUE(c >= ' ' && c <= '~') << line;
  }
}

void expect_golden(const std::string& name, std::string_view source) {
  const auto machines = parse_topologies(source, name);
  ASSERT_TRUE(machines) << machines.error().message;
  std::string text;
  for (const Topology& machine : *machines) text += to_text(machine);
  expect_fits(text);
  const std::string path = std::string(MOETAX_SOURCE_DIR "/tests/report/golden/topology_") + name + ".txt";
  if (std::getenv("MOETAX_UPDATE_GOLDEN")) {
    ASSERT_TRUE(write_text(path, text)) << path;
    return;
  }
  std::ifstream file(path, std::ios::binary);
  std::stringstream golden;
  golden << file.rdbuf();
  EXPECT_EQ(text, golden.str()) << "differs from " << path << "; MOETAX_UPDATE_GOLDEN=1 renews it";
}

// Pairs on a switch, the pairs interleaved; an adapter for each pair and one for management.
constexpr std::string_view kInterleaved =
    "\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tNIC2\tCPU Affinity\tNUMA Affinity\n"
    "GPU0\t X \tSYS\tPIX\tSYS\tPIX\tSYS\tSYS\t0-15\t0\n"
    "GPU1\tSYS\t X \tSYS\tPIX\tSYS\tPXB\tSYS\t16-31\t1\n"
    "GPU2\tPIX\tSYS\t X \tSYS\tPIX\tSYS\tSYS\t0-15\t0\n"
    "GPU3\tSYS\tPIX\tSYS\t X \tSYS\tPXB\tSYS\t16-31\t1\n"
    "NIC Legend:\n  NIC0: mlx5_2\n  NIC1: mlx5_5\n  NIC2: mlx5_0\n";

TEST(TopologyText, GroupsAnotherOrderMakesFaster) {
  expect_golden("interleaved", kInterleaved);
}

TEST(TopologyText, FullMeshIsOneLine) {
  expect_golden("mesh",
                "  GPU0 GPU1 GPU2 GPU3\nGPU0 X NV18 NV18 NV18\nGPU1 NV18 X NV18 NV18\nGPU2 NV18 NV18 X NV18\n"
                "GPU3 NV18 NV18 NV18 X\n");
}

TEST(TopologyText, WhatIsNotKnownIsSaid) {
  expect_golden("cut", "  GPU0 GPU1 GPU2 NIC0\nGPU0 X NV2 NV2 PIX\nGPU1 NV2 X PIX\n");
}

TEST(TopologyText, HivesOfSixteen) {
  std::string text = "== Weight between two GPUs ==\n";
  for (int i = 0; i < 16; ++i) text += " GPU" + std::to_string(i);
  for (int i = 0; i < 16; ++i) {
    text += "\nGPU" + std::to_string(i);
    for (int j = 0; j < 16; ++j) {
      const int distance = (i - j + 16) % 8;
      text += i == j ? " 0" : i / 8 != j / 8 ? " 72" : distance == 1 || distance == 7 ? " 15" : " 30";
    }
  }
  expect_golden("hives", text + "\n");
}

TEST(TopologyText, OneGpuAndNoneLinked) {
  const auto machine = parse_topologies("  GPU0 CPU Affinity\nGPU0 X 0-3\n", "topo.txt");
  ASSERT_TRUE(machine);
  EXPECT_EQ(to_text(machine->front()),
            "1 GPU, 0 adapters, from nvidia-smi topo -m\n  NUMA node not known, CPUs 0-3\n    +-- GPU0\n");
}

TEST(TopologyText, EveryRealMachineFits) {
  MOETAX_NEEDS_SHARED_DATA();
  int drawn = 0;
  for (const char* folder : {"/topo", "/nccl_xml"}) {
    for (const auto& entry : std::filesystem::directory_iterator(shared_data() + folder)) {
      const auto machines = read_topologies(entry.path().string());
      if (!machines) continue;
      for (const Topology& machine : *machines) expect_fits(to_text(machine));
      ++drawn;
    }
  }
  EXPECT_GE(drawn, 24);
}

}  // namespace
}  // namespace moetax
