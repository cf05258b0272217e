// Reading the topology XML of NCCL and of lstopo.
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

std::string system(const std::string& inside) {
  return "<!-- a machine -->\n<system version=\"1\">\n" + inside + "</system>\n";
}

std::string pci(const std::string& bus, const std::string& pci_class, const std::string& inside = "") {
  return "<pci busid=\"" + bus + "\" class=\"" + pci_class + "\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\">" +
         inside + "</pci>\n";
}

std::string gpu(int dev, const std::string& links = "") {
  return "<gpu dev=\"" + std::to_string(dev) + "\" sm=\"80\" rank=\"0\">" + links + "</gpu>";
}

std::string net(int dev, const std::string& speed) {
  return "<nic><net name=\"mlx5_" + std::to_string(dev) + "\" dev=\"" + std::to_string(dev) + "\" speed=\"" + speed +
         "\"/></nic>";
}

const std::string kSwitch = "<nvlink target=\"0000:aa:00.0\" count=\"12\" tclass=\"0x068000\"/>";

// Two sockets, a switch with GPU 0 and NIC 0 in the first; GPU 1 at its root; GPU 2 in the second.
std::string two_sockets(const std::string& links0, const std::string& links1, const std::string& links2) {
  return system(
      "<cpu numaid=\"0\">" +
      pci("0000:10:00.0", "0x060400",
          pci("0000:12:00.0", "0x030200", gpu(0, links0)) + pci("0000:13:00.0", "0x020700", net(0, "200000"))) +
      pci("0000:20:00.0", "0x030200", gpu(1, links1)) + "</cpu>\n<cpu numaid=\"1\">" +
      pci("0000:80:00.0", "0x030200", gpu(2, links2)) + "</cpu>\n");
}

TEST(NcclXml, PciPathsOfADump) {
  const Topology machine = read_one(two_sockets("", "", ""));
  EXPECT_EQ(machine.format(), TopologyFormat::kNcclXml);
  EXPECT_EQ(machine.line(), 2);
  ASSERT_EQ(machine.gpus(), 3);
  ASSERT_EQ(machine.nics(), 1);
  EXPECT_EQ(between(machine, 0, 1), "PHB");
  EXPECT_EQ(between(machine, 1, 2), "SYS");
  EXPECT_EQ(between(machine, 0, 3), "PIX");
  EXPECT_NEAR(machine.link(0, 3).gbs, 31.5, 0.1);
  EXPECT_EQ(machine.link(1, 2).gbs, 0);
  EXPECT_EQ(machine.device(2).numa_node, 1);
  EXPECT_EQ(machine.device(3).adapter, "mlx5_0");
  EXPECT_EQ(machine.device(3).gbs, 25);
  EXPECT_THAT(machine.skipped(), IsEmpty());
}

TEST(NcclXml, NvlinksToASwitchAndToAPeer) {
  const Topology shared = read_one(two_sockets(kSwitch, kSwitch + kSwitch, ""));
  EXPECT_EQ(between(shared, 0, 1), "NV12");
  EXPECT_EQ(shared.link(0, 1).gbs, 300);
  EXPECT_EQ(between(shared, 0, 2), "SYS");
  const Topology peers = read_one(two_sockets("<nvlink target=\"0000:80:00.0\" count=\"2\" tclass=\"0x030200\"/>", "",
                                              "<nvlink target=\"ffff:00:00.0\" count=\"2\" tclass=\"0x030200\"/>"));
  EXPECT_EQ(between(peers, 0, 2), "NV2");
  EXPECT_EQ(between(peers, 1, 2), "SYS");
  ASSERT_THAT(peers.skipped(), SizeIs(1));
  EXPECT_THAT(peers.skipped()[0].why, HasSubstr("'ffff:00:00.0', which is no GPU of this file"));
}

TEST(NcclXml, WithoutGpuElementsLinksBetweenGpusAreUnknown) {
  const Topology machine = read_one(system("<cpu numaid=\"3\">" +
                                           pci("0:1:0.0", "0x060400",
                                               pci("0:3:0.0", "0x030200") + pci("0:2:0.0", "0x030200") +
                                                   pci("0:4:0.0", "0x020000") + pci("0:5:0.0", "0x010802")) +
                                           "</cpu>"));
  ASSERT_EQ(machine.gpus(), 2);
  ASSERT_EQ(machine.nics(), 1);
  EXPECT_EQ(machine.device(0).bus_id, "0:2:0.0");
  EXPECT_EQ(machine.device(2).adapter, "");
  EXPECT_EQ(between(machine, 0, 1), "unknown");
  EXPECT_EQ(between(machine, 0, 2), "PIX");
  EXPECT_THAT(machine.skipped()[0].why, HasSubstr("no gpu elements"));
}

TEST(NcclXml, SpeedsThatCannotBe) {
  for (const auto& [speed, gbs] : {std::pair("400000", 50.0), std::pair("400000000", 50.0), std::pair("1e30", 0.0),
                                   std::pair("-1", 0.0), std::pair("nan", 0.0), std::pair("", 0.0)}) {
    const Topology machine =
        read_one(system("<cpu numaid=\"0\">" + pci("0:1:0.0", "0x0207", net(0, speed)) + "</cpu>"));
    EXPECT_EQ(machine.device(0).gbs, gbs) << speed;
  }
}

TEST(NcclXml, ANicWithoutPlaceHasNoLinks) {
  const Topology machine =
      read_one(system("<cpu numaid=\"0\">" + pci("0:1:0.0", "0x0302", gpu(0)) + net(0, "10000") + "</cpu>"));
  EXPECT_EQ(between(machine, 0, 1), "unknown");
}

TEST(NcclXml, CutOffFilesAreReadUpToThere) {
  const std::string whole = two_sockets(kSwitch, kSwitch, kSwitch);
  const Topology machine = read_one(whole.substr(0, whole.find("<cpu numaid=\"1\">")));
  EXPECT_EQ(machine.gpus(), 2);
  EXPECT_EQ(between(machine, 0, 1), "NV12");
  ASSERT_THAT(machine.skipped(), SizeIs(1));
  EXPECT_THAT(machine.skipped()[0].why, HasSubstr("breaks off"));
}

TEST(NcclXml, WhatBreaksOffBeforeAnyDeviceIsSaidWithItsLine) {
  const auto machines = parse_topologies("<system version=\"1\">\n<cpu numaid=\"0\">\n<pci busid=", "topo.xml");
  ASSERT_FALSE(machines);
  EXPECT_THAT(machines.error().message, HasSubstr("topo.xml:3: the XML breaks off here"));
}

TEST(NcclXml, DeepNestingEnds) {
  std::string inside = gpu(0);
  for (int i = 0; i < 2000; ++i) inside = "<pci class=\"0x0604\">" + inside + "</pci>";
  EXPECT_FALSE(parse_topologies(system("<cpu>" + inside + "</cpu>"), "topo.xml"));
}

TEST(NcclXml, AGraphIsNamedAsOne) {
  const auto graph = parse_topologies("<graphs version=\"1\"><graph id=\"0\"/></graphs>", "graph.xml");
  ASSERT_FALSE(graph);
  EXPECT_THAT(graph.error().message, HasSubstr("graph.xml: is NCCL's graph XML"));
  EXPECT_TRUE(looks_like_nccl_graph("\n<!-- x --><graphs>"));
  EXPECT_FALSE(looks_like_nccl_graph("{\"<graphs\": 1}"));
}

// ---- lstopo ---------------------------------------------------------------------------------------------------------

std::string object(const std::string& attributes, const std::string& inside = "") {
  return "<object " + attributes + ">" + inside + "</object>\n";
}

std::string bridge(const std::string& type, const std::string& inside) {
  return object("type=\"Bridge\" bridge_type=\"" + type + "\" pci_link_speed=\"15.75\"", inside);
}

std::string card(const std::string& bus, const std::string& type, const std::string& os) {
  return object("type=\"PCIDev\" pci_busid=\"" + bus + "\" pci_type=\"" + type + "\" pci_link_speed=\"15.75\"", os);
}

const std::string kGpuType = "0302 [10de:20b0] [10de:1450] a1";
const std::string kNicType = "0207 [15b3:101b] [15b3:0007] 00";

std::string os_device(int gp_index, const std::string& kind, const std::string& name) {
  return object("type=\"OSDev\" gp_index=\"" + std::to_string(gp_index) + "\" osdev_type=\"" + kind + "\" name=\"" +
                name + "\"");
}

std::string package(int node, const std::string& inside) {
  const std::string nodeset = "nodeset=\"0x0000000" + std::to_string(1 << node) + "\"";
  return object("type=\"Package\" " + nodeset, object("type=\"NUMANode\" " + nodeset) + inside);
}

// GPUs 0 and 1 and an adapter below one switch, GPU 2 below another root of the same socket, GPU 3 on the other socket,
// and a board's own console.
std::string lstopo(const std::string& matrices) {
  const std::string cards =
      bridge("0-1", bridge("1-1", bridge("1-1", card("0000:03:00.0", kGpuType, os_device(11, "1", "nvml0"))) +
                                      bridge("1-1", card("0000:04:00.0", kGpuType, os_device(12, "1", "nvml1"))) +
                                      bridge("1-1", card("0000:05:00.0", kNicType,
                                                         os_device(15, "2", "ib0") + os_device(16, "3", "mlx5_0"))))) +
      bridge("0-1", bridge("1-1", card("0000:20:00.0", kGpuType, os_device(13, "1", "nvml2")))) +
      bridge("0-1", card("0000:30:00.0", "0300 [1a03:2000] [1a03:2000] 41", ""));
  return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n<topology "
         "version=\"2.0\">\n" +
         object("type=\"Machine\" nodeset=\"0x00000003\"",
                package(0, cards) +
                    package(1, bridge("0-1", card("0000:80:00.0", kGpuType, os_device(14, "1", "nvml3"))))) +
         matrices + "</topology>\n";
}

TEST(LstopoXml, DevicesAndTheirPlaces) {
  const Topology machine = read_one(lstopo(""));
  EXPECT_EQ(machine.format(), TopologyFormat::kLstopoXml);
  ASSERT_EQ(machine.gpus(), 4);
  ASSERT_EQ(machine.nics(), 1);
  EXPECT_EQ(machine.device(4).adapter, "mlx5_0");
  EXPECT_EQ(between(machine, 0, 4), "PIX");
  EXPECT_EQ(between(machine, 2, 4), "NODE");
  EXPECT_EQ(between(machine, 3, 4), "SYS");
  EXPECT_EQ(machine.device(3).numa_node, 1);
  EXPECT_EQ(machine.link(0, 4).gbs, 15.75);
  EXPECT_EQ(between(machine, 0, 1), "unknown");
  EXPECT_THAT(machine.skipped()[0].why, HasSubstr("no matrix of NVLink"));
}

TEST(LstopoXml, MatrixOfBandwidths) {
  const Topology machine =
      read_one(lstopo("<distances2 type=\"OSDev\" nbobjs=\"4\" name=\"NVLinkBandwidth\" indexing=\"gp\"><indexes "
                      "length=\"8\">11 12 </indexes>"
                      "<indexes>13 14 </indexes><u64values>1000000 50000 0 0 50000 1000000 0 0 </u64values>"
                      "<u64values>0 0 1000000 0 0 0 0 1000000 </u64values></distances2>"));
  EXPECT_EQ(between(machine, 0, 1), "NVLink");
  EXPECT_EQ(machine.link(0, 1).gbs, 50);
  EXPECT_EQ(between(machine, 0, 2), "NODE");
  EXPECT_EQ(between(machine, 2, 3), "SYS");
  EXPECT_THAT(machine.skipped(), IsEmpty());
  const Topology broken = read_one(lstopo(
      "<distances2 name=\"NVLinkBandwidth\"><indexes>11 12 </indexes><u64values>1 2 3 </u64values></distances2>"));
  EXPECT_EQ(between(broken, 0, 1), "unknown");
}

TEST(LstopoXml, WhereTheMachineDoesNotSayWhichNodeDevicesAreNear) {
  const Topology machine = read_one("<topology>" +
                                    object("type=\"Machine\" nodeset=\"0x00000003\"",
                                           package(0, "") + package(1, "") + bridge("0-1", card("1", kGpuType, "")) +
                                               bridge("0-1", card("2", kNicType, ""))) +
                                    "</topology>");
  EXPECT_EQ(between(machine, 0, 1), "unknown");
}

TEST(LstopoXml, AMachineWithoutDevicesIsNoTopology) {
  EXPECT_FALSE(parse_topologies("<topology>" + object("type=\"Machine\"", package(0, "")) + "</topology>", "cpu.xml"));
}

}  // namespace
}  // namespace moetax
