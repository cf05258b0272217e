// Reading what NCCL and RCCL write: edges of three generations, broken lines, communicators, failures.
#include "moetax/machine/nccl_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace moetax {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::SizeIs;

NcclLog read(std::string_view text) {
  auto log = parse_nccl_log(text, "job.log");
  EXPECT_TRUE(log) << log.error().message;
  return log ? std::move(*log) : NcclLog{};
}

NcclEdge edge_of(std::string_view text) {
  const NcclLog log = read(text);
  EXPECT_THAT(log.edges, SizeIs(1)) << text;
  return log.edges.empty() ? NcclEdge{} : log.edges.front();
}

TEST(NcclEdges, OfThreeGenerations) {
  const NcclEdge oldest = edge_of("node1:10:20 [3] NCCL INFO Ring 04 : 3[3] -> 2[2] via P2P/IPC\n");
  EXPECT_EQ(oldest.from, 3);
  EXPECT_EQ(oldest.to, 2);
  EXPECT_EQ(oldest.transport, NcclTransport::kP2p);
  EXPECT_EQ(oldest.host, "node1");
  const NcclEdge bare = edge_of("n:1:2 [0] NCCL INFO Ring 00 : 30 -> 28 [send] via NET/Socket/0");
  EXPECT_EQ(bare.from, 30);
  EXPECT_EQ(bare.from_at, "");
  EXPECT_EQ(bare.network, "Socket");
  EXPECT_FALSE(bare.gpu_direct);
  const NcclEdge bus = edge_of("n:1:2 [7] NCCL INFO Channel 03 : 15[b2000] -> 6[b1000] [send] via NET/IB/2/GDRDMA\n");
  EXPECT_EQ(bus.from_at, "b2000");
  EXPECT_EQ(bus.network, "IB");
  EXPECT_EQ(bus.adapter, 2);
  EXPECT_EQ(bus.proxy_rank, -1);
  EXPECT_TRUE(bus.gpu_direct);
  const NcclEdge device =
      edge_of("n:1:2 [1] NCCL INFO Channel 00/0 : 3[1] -> 4[0] [send] via NET/IBext_v8/5(2)/GDRDMA\n");
  EXPECT_EQ(device.network, "IBext_v8");
  EXPECT_EQ(device.adapter, 5);
  EXPECT_EQ(device.proxy_rank, 2);
}

TEST(NcclEdges, Transports) {
  const auto transport = [](const std::string& via) {
    return edge_of("n:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via " + via + "\n").transport;
  };
  EXPECT_EQ(transport("P2P/direct pointer/read"), NcclTransport::kP2p);
  EXPECT_EQ(transport("P2P/CUMEM/read"), NcclTransport::kP2p);
  EXPECT_EQ(transport("SHM/direct/direct"), NcclTransport::kShm);
  EXPECT_EQ(transport("NET/AWS Libfabric/0/GDRDMA"), NcclTransport::kNet);
  EXPECT_EQ(transport("COLLNET/SHARP/0"), NcclTransport::kOther);
  EXPECT_EQ(edge_of("n:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC comm 0xaa nRanks 08\n").via,
            "P2P/IPC");
}

TEST(NcclEdges, ChannelsAndSidesAreCounted) {
  const NcclLog log = read(
      "n:1:2 [0] NCCL INFO Channel 00/02 :    0   1\n"
      "n:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n"
      "n:1:2 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/IPC\n"
      "n:1:3 [1] NCCL INFO Channel 00/0 : 1[1] -> 0[0] via SHM/direct/direct\n");
  ASSERT_THAT(log.edges, SizeIs(2));
  EXPECT_EQ(log.edges[0].count, 2);
  EXPECT_EQ(log.edges[0].line, 2);
  EXPECT_EQ(log.lines, 4);
  EXPECT_EQ(log.broken, 0);
}

TEST(NcclEdges, LinesOfTwoProcessesRunTogether) {
  const NcclLog log = read(
      "n:15:1 [6] NCCL INFO n:17:1 [7] NCCL INFO Ring 04 : 7[7] -> 3[3] via P2P/IPC\n"
      "Ring 04 : 6[6] -> 5[5] via P2P/IPC\n"
      "Ring 05 : 1[1] -> 2[2] via P2P/IPCn:18:1 [2] NCCL INFO Ring 05 : 2[2] -> 3[3] via P2P/IPC\n"
      "n:15:1 [6] NCCL INFO Channel 00/0 : 6[6] -> n:17:1 [7] NCCL INFO Channel 00/0 : 7[7] -> 0[0] via P2P/IPC\n");
  ASSERT_THAT(log.edges, SizeIs(4));
  EXPECT_EQ(log.edges[0].from, 7);
  EXPECT_EQ(log.edges[1].from, 6);
  EXPECT_EQ(log.edges[1].host, "");
  EXPECT_EQ(log.edges[2].from, 2);  // its host and the transport before it cannot be told apart
  EXPECT_EQ(log.edges[2].host, "");
  EXPECT_EQ(log.edges[3].from, 7);
  EXPECT_EQ(log.broken, 2);
}

TEST(NcclEdges, LaunchersPrefixes) {
  EXPECT_EQ(edge_of("[0] n:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n").host, "n");
  EXPECT_EQ(edge_of("12: n-3.dom:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n").host, "n-3.dom");
  EXPECT_EQ(
      edge_of("(Worker pid=7) [2026-01-01 10:00:00] n:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\r\n")
          .via,
      "P2P/IPC");
  EXPECT_EQ(edge_of("NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n").host, "");
}

TEST(NcclCommunicators, GoByTheirIds) {
  const NcclLog log = read(
      "a:1:2 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 7000 commId 0xaa - Init "
      "START\n"
      "a:1:2 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 7000 commId 0xaa - Init "
      "COMPLETE\n"
      "b:1:2 [1] NCCL INFO ncclCommInitRank comm 0x1 rank 1 nranks 2 cudaDev 1 nvmlDev 1 busId b000 commId 0xaa - Init "
      "START\n"
      "a:1:2 [0] NCCL INFO ncclCommInitRank comm 0x2 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 7000 commId 0xbb - Init "
      "COMPLETE\n"
      "a:1:2 [0] NCCL INFO Init timings - ncclCommInitRank: rank 0 nranks 2 total 0.75\n");
  ASSERT_THAT(log.communicators, SizeIs(2));
  EXPECT_EQ(log.communicators[0].id, "0xaa");
  EXPECT_EQ(log.communicators[0].ranks, 2);
  ASSERT_THAT(log.communicators[0].members, SizeIs(2));
  EXPECT_TRUE(log.communicators[0].members[0].complete);
  EXPECT_FALSE(log.communicators[0].members[1].complete);
  EXPECT_EQ(log.communicators[0].members[1].host, "b");
  EXPECT_EQ(log.communicators[0].members[1].device, 1);
  EXPECT_EQ(log.communicators[0].members[1].bus_id, "b000");
}

TEST(NcclCommunicators, LinesWithoutAnIdGoByTheirAddressInTheProcess) {
  const NcclLog log = read(
      "a:1:2 [0] NCCL INFO comm 0x1 rank 0 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0\n"
      "a:1:2 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 busId 7000 commId 0xaa - Init COMPLETE\n"
      "b:1:2 [0] NCCL INFO ncclCommInitRank comm 0x9 rank 1 nranks 2 cudaDev 0 busId 7000 commId 0xaa - Init COMPLETE\n"
      "b:1:2 [0] NCCL INFO comm 0x9 rank 1 nranks 2 cudaDev 0 busId 7000 - Destroy COMPLETE\n");
  ASSERT_THAT(log.communicators, SizeIs(1));
  EXPECT_EQ(log.communicators[0].nodes, 2);
  EXPECT_THAT(log.communicators[0].members, SizeIs(2));
}

TEST(NcclCommunicators, OfOldVersionsAndOfRccl) {
  const NcclLog log = read(
      "a:1:2 [5] NCCL INFO comm 0x7f4c rank 5 nranks 16 cudaDev 5 busId 89000 - Init COMPLETE\n"
      "a:1:2 [6] NCCL INFO comm 0x55d9 rank 6 nRanks 16 nNodes 2 localRanks 8 localRank 6 MNNVL 0\n"
      "b:1:2 [3] NCCL INFO Trees [0] 6/-1/-1->7->5 [1] 5/-1/-1->7->6 comm 0xfb16e30 nRanks 08 busId ce000\n");
  ASSERT_THAT(log.communicators, SizeIs(2));
  EXPECT_THAT(log.communicators[0].members, SizeIs(2));
  EXPECT_EQ(log.communicators[0].nodes, 2);
  EXPECT_EQ(log.communicators[1].ranks, 8);
  EXPECT_EQ(log.communicators[1].members[0].rank, 7);
  EXPECT_EQ(log.communicators[1].members[0].bus_id, "ce000");
}

TEST(NcclLog, AdaptersNetworksSettingsAndVersions) {
  const NcclLog log = read(
      "NCCL version 2.21.5+cuda12.4\n"
      "a:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_bond_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>\n"
      "a:1:3 [1] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_bond_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>\n"
      "b:1:2 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.2<0>\n"
      "a:1:2 [0] NCCL INFO Using network IB\nb:1:2 [0] NCCL INFO Using network Socket\n"
      "a:1:2 [0] NCCL INFO NCCL_P2P_LEVEL set by environment to XGMI\n"
      "a:1:2 [0] NCCL INFO NVLS Head  1:  2 10\na:1:2 [0] NCCL INFO NVLS Head  0:  0  8\n");
  EXPECT_EQ(log.version, "2.21.5+cuda12.4");
  EXPECT_FALSE(log.rccl);
  ASSERT_THAT(log.adapters, SizeIs(3));
  EXPECT_EQ(log.adapters[0].name, "mlx5_0");
  EXPECT_EQ(log.adapters[1].kind, "RoCE");
  EXPECT_EQ(log.adapters[1].number, 1);
  EXPECT_EQ(log.adapters[2].name, "eth0");
  EXPECT_EQ(log.adapters[2].kind, "Socket");
  EXPECT_EQ(log.adapters[2].host, "b");
  EXPECT_THAT(log.networks, ElementsAre("IB", "Socket"));
  EXPECT_THAT(log.settings, ElementsAre(Pair("NCCL_P2P_LEVEL", "XGMI")));
  EXPECT_THAT(log.nvls_heads, ElementsAre(ElementsAre(0, 8), ElementsAre(2, 10)));
  EXPECT_TRUE(read("RCCL version : 2.18.3-HEAD:abc\n").rccl);
}

TEST(NcclLog, WarningsAreCountedOnce) {
  const NcclLog log = read(
      "a:1:2 [0] transport.cc:384 NCCL WARN Cannot initialize CollNet\n"
      "b:7:8 [3] transport.cc:384 NCCL WARN Cannot initialize CollNet\n"
      "b:7:8 [3] NCCL WARN NET/IB : Got async event : port error\n");
  ASSERT_THAT(log.problems, SizeIs(2));
  EXPECT_EQ(log.problems[0].text, "Cannot initialize CollNet");
  EXPECT_EQ(log.problems[0].count, 2);
  EXPECT_EQ(log.problems[0].host, "a");
  EXPECT_EQ(log.problems[1].line, 3);
}

TEST(NcclLog, WatchdogTimeouts) {
  const NcclLog log = read(
      "[rank0]:[E101 12:00:00.1 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: "
      "WorkNCCL(SeqNum=270, OpType=_ALLGATHER_BASE, NumelIn=75264, NumelOut=602112, Timeout(ms)=1800000) ran for "
      "1800123 "
      "milliseconds before timing out.\n"
      "[rank3]:[E101 12:00:00.2 ProcessGroupNCCL.cpp:607] [PG ID 2 PG GUID 7(ep) Rank 3] Watchdog caught collective "
      "operation timeout: WorkNCCL(SeqNum=270, OpType=_ALLGATHER_BASE, NumelIn=2359296, Timeout(ms)=1800000) ran for "
      "5\n"
      "terminate called: [Rank 0] NCCL watchdog thread terminated with exception: [Rank 0] Watchdog caught collective "
      "operation timeout: WorkNCCL(SeqNum=270, OpType=_ALLGATHER_BASE, NumelIn=75264, NumelOut=602112, "
      "Timeout(ms)=1800000) ran for 1800123 milliseconds before timing out.\n"
      "old: Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLREDUCE, Timeout(ms)=1000) ran for 2000\n");
  ASSERT_THAT(log.timeouts, SizeIs(3));
  EXPECT_EQ(log.timeouts[0].rank, 0);
  EXPECT_EQ(log.timeouts[0].sequence, 270);
  EXPECT_EQ(log.timeouts[0].op, "_ALLGATHER_BASE");
  EXPECT_EQ(log.timeouts[0].elements_in, 75264);
  EXPECT_EQ(log.timeouts[0].elements_out, 602112);
  EXPECT_EQ(log.timeouts[0].limit_ms, 1800000);
  EXPECT_EQ(log.timeouts[0].ran_ms, 1800123);
  EXPECT_EQ(log.timeouts[1].rank, 3);
  EXPECT_EQ(log.timeouts[1].elements_in, 2359296);
  EXPECT_EQ(log.timeouts[1].elements_out, -1);
  EXPECT_EQ(log.timeouts[1].group, "ID 2 PG GUID 7(ep)");
  EXPECT_EQ(log.timeouts[2].rank, -1);
  EXPECT_EQ(log.timeouts[2].sequence, -1);
}

TEST(NcclLog, PathsOfTheGraph) {
  const NcclLog log = read(
      "a:1:2 [7] NCCL INFO GPU/50000 :GPU/0-4e000 (4/24.0/PHB) GPU/0-50000 (0/5000.0/LOC) GPU/0-ce000 (5/10.0/SYS) "
      "CPU/0-0 (2/24.0/PHB)\n"
      "a:1:2 [7] NCCL INFO               + PCI[24.0] - GPU/0-cf000 (5)\n");
  ASSERT_THAT(log.paths, SizeIs(2));
  EXPECT_EQ(log.paths[0].from, "50000");
  EXPECT_EQ(log.paths[0].to, "4e000");
  EXPECT_EQ(log.paths[0].kind, LinkKind::kPhb);
  EXPECT_EQ(log.paths[0].gbs, 24);
  EXPECT_EQ(log.paths[1].kind, LinkKind::kSys);
}

TEST(NcclLog, AnyCutOfTheTextGivesTheSame) {
  const std::string text =
      "noise\na:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\nRing 04 : 6[6] -> 5[5] via P2P/IPC\n"
      "a:1:2 [0] x.cc:1 NCCL WARN bad";
  for (std::size_t size = 1; size < 20; ++size) {
    NcclLogReader reader;
    for (std::size_t at = 0; at < text.size(); at += size) reader.take(std::string_view(text).substr(at, size));
    const NcclLog log = reader.finish();
    EXPECT_THAT(log.edges, SizeIs(2));
    EXPECT_THAT(log.problems, SizeIs(1));
    EXPECT_EQ(log.lines, 4);
  }
}

TEST(NcclLog, WhatIsKeptIsBounded) {
  NcclLogReader reader;
  for (int i = 0; i < 70'000; ++i) {
    reader.take("a:1:2 [0] NCCL INFO Channel 00/0 : " + std::to_string(i) + "[0] -> 1[1] via P2P/IPC\n");
    reader.take("a:1:2 [0] NCCL WARN number " + std::to_string(i) + "\n");
  }
  for (int i = 0; i < 100; ++i) reader.take(std::string(10'000, 'x'));  // one line of a megabyte
  const NcclLog log = reader.finish();
  EXPECT_EQ(log.edges.size(), 65'536U);
  EXPECT_EQ(log.problems.size(), 256U);
  EXPECT_EQ(log.dropped, 70'000 - 65'536 + 70'000 - 256);
}

TEST(NcclLog, OtherTextIsNone) {
  for (const char* text : {"", "hello\n", "Channel one is on\n", "WorkNCCL(x)\n", "this NCCL thing\n"}) {
    const auto log = parse_nccl_log(text, "job.log");
    ASSERT_FALSE(log) << text;
    EXPECT_THAT(log.error().message, testing::StartsWith("job.log: "));
    EXPECT_FALSE(looks_like_nccl_log(text));
  }
}

TEST(NcclLog, FilesAreRead) {
  const std::string path = testing::TempDir() + "moetax_nccl_log.txt";
  std::ofstream(path) << "a:1:2 [0] NCCL INFO Using network IB\n";
  const auto log = read_nccl_log(path);
  std::filesystem::remove(path);
  ASSERT_TRUE(log) << log.error().message;
  EXPECT_THAT(log->networks, ElementsAre("IB"));
  EXPECT_FALSE(read_nccl_log("/nonexistent/job.log"));
  EXPECT_FALSE(read_nccl_log("/"));
}

}  // namespace
}  // namespace moetax
