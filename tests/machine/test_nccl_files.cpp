// Real logs and tables, each with the conclusion that is right for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "moetax/machine/nccl_log.h"
#include "moetax/machine/nccl_tests.h"
#include "shared_data.h"

namespace moetax {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

NcclLog read_shared(const std::string& file) {
  auto log = read_nccl_log(shared_data() + "/logs/" + file);
  EXPECT_TRUE(log) << log.error().message;
  return log ? std::move(*log) : NcclLog{};
}

std::size_t count_of(const NcclLog& log, NcclTransport transport) {
  return static_cast<std::size_t>(std::count_if(log.edges.begin(), log.edges.end(),
                                                [&](const NcclEdge& edge) { return edge.transport == transport; }));
}

TEST(RealNcclLogs, OneHopThroughTheHost) {
  MOETAX_NEEDS_SHARED_DATA();
  const NcclLog log = read_shared("nccl-1027_8gpu_shm-and-p2p_mixed.log");
  EXPECT_EQ(count_of(log, NcclTransport::kShm), 1U);
  EXPECT_EQ(count_of(log, NcclTransport::kP2p), 5U);
  for (const NcclEdge& edge : log.edges) {
    EXPECT_EQ(edge.transport == NcclTransport::kShm, edge.from == 3);
  }
  EXPECT_EQ(log.broken, 0);
}

TEST(RealNcclLogs, HeadsOnEverySecondRank) {
  MOETAX_NEEDS_SHARED_DATA();
  const NcclLog log = read_shared("nccl-1357_2node16_h100_nvls-heads-trees.log");
  EXPECT_THAT(log.nvls_heads,
              ElementsAre(ElementsAre(0, 8), ElementsAre(2, 10), ElementsAre(4, 12), ElementsAre(6, 14)));
  ASSERT_THAT(log.communicators, SizeIs(1));
  EXPECT_EQ(log.communicators[0].ranks, 16);
  EXPECT_EQ(log.communicators[0].nodes, 2);
}

TEST(RealNcclLogs, TwoProcessesInOneLine) {
  MOETAX_NEEDS_SHARED_DATA();
  const NcclLog log = read_shared("nccl-147_v100x8_ring-oldest-format_interleaved-lines.log");
  EXPECT_THAT(log.edges, SizeIs(11));
  EXPECT_EQ(count_of(log, NcclTransport::kP2p), 11U);
  EXPECT_EQ(log.broken, 0);
}

TEST(RealNcclLogs, SixtyFourRanksOverTcp) {
  MOETAX_NEEDS_SHARED_DATA();
  const NcclLog log = read_shared("nccl-226_64rank_socket_ring-oldest-format.log");
  EXPECT_THAT(log.edges, SizeIs(9));
  for (const NcclEdge& edge : log.edges) {
    EXPECT_EQ(edge.network, "Socket");
    EXPECT_FALSE(edge.gpu_direct);
  }
}

TEST(RealNcclLogs, AddressesInBrackets) {
  MOETAX_NEEDS_SHARED_DATA();
  const NcclLog log = read_shared("nccl-429_2node16_v100_oldformat_net-ib-gdr.log");
  EXPECT_EQ(count_of(log, NcclTransport::kNet), 2U);
  EXPECT_EQ(count_of(log, NcclTransport::kP2p), 8U);
  for (const NcclEdge& edge : log.edges) {
    EXPECT_EQ(edge.network == "IB" && edge.gpu_direct && edge.adapter == 0, edge.transport == NcclTransport::kNet);
  }
  EXPECT_EQ(log.edges[0].from_at, "b2000");
  ASSERT_THAT(log.communicators, SizeIs(1));
  EXPECT_EQ(log.communicators[0].ranks, 16);
  EXPECT_EQ(log.communicators[0].members[0].device, 5);
}

TEST(RealNcclLogs, FourAndFourAcrossSockets) {
  MOETAX_NEEDS_SHARED_DATA();
  const NcclLog log = read_shared("nccl-tests-307_rtx4090x8_graph-subsys_topology-paths.log");
  ASSERT_THAT(log.paths, SizeIs(7));
  for (const NcclPath& path : log.paths) {
    const bool same_socket = path.to[0] != 'c' && path.to[0] != 'd';
    EXPECT_EQ(path.kind, same_socket ? LinkKind::kPhb : LinkKind::kSys);
    EXPECT_EQ(path.gbs, same_socket ? 24 : 10);
  }
}

TEST(RealNcclLogs, AdaptersOfOtherRanks) {
  MOETAX_NEEDS_SHARED_DATA();
  const std::string file = "nccl_4node-2gpu_ibext-gdrdma_allreduce-21GBps.log";
  const NcclLog log = read_shared(file);
  int proxied = 0;
  for (const NcclEdge& edge : log.edges) {
    if (edge.transport != NcclTransport::kNet) continue;
    EXPECT_EQ(edge.network, "IBext_v8");
    EXPECT_TRUE(edge.gpu_direct);
    proxied += edge.proxy_rank >= 0;
    EXPECT_EQ(edge.adapter, edge.host == "gpu40" ? 0 : edge.host == "gpu36" ? 5 : 1);
  }
  EXPECT_EQ(proxied, 4);
  ASSERT_THAT(log.communicators, SizeIs(1));
  EXPECT_EQ(log.communicators[0].id, "0x70fba02a8d314739");
  EXPECT_EQ(log.communicators[0].ranks, 8);
  EXPECT_THAT(log.communicators[0].members, SizeIs(5));  // and rank 3, whose communicator's end alone is here
  ASSERT_THAT(log.problems, SizeIs(1));
  EXPECT_EQ(log.problems[0].text, "Cannot initialize CollNet, using point-to-point network instead");

  const auto tables = read_nccl_tests(shared_data() + "/logs/" + file);
  ASSERT_TRUE(tables) << tables.error().message;
  ASSERT_THAT(*tables, SizeIs(1));
  ASSERT_THAT(tables->front().rows, SizeIs(9));
  EXPECT_EQ(tables->front().rows.back().bytes, 4294967296);
  EXPECT_EQ(tables->front().rows.back().out_of_place.busbw_gbs, 21.70);
  EXPECT_NEAR(tables->front().bus_factor(), 2.0 * 7 / 8, 0.01);  // all-reduce of eight
}

TEST(RealNcclLogs, SocketsForWhatLeavesTheNodeOnly) {
  MOETAX_NEEDS_SHARED_DATA();
  const NcclLog log = read_shared("nccl_p4d_4xA100_p2p-cumem_deepspeed-interleaved.log");
  EXPECT_THAT(log.networks, ElementsAre("Socket"));
  EXPECT_EQ(count_of(log, NcclTransport::kP2p), log.edges.size());
  EXPECT_THAT(log.edges, SizeIs(4));
  ASSERT_THAT(log.communicators, SizeIs(2));
  EXPECT_THAT(log.communicators[0].members, SizeIs(4));
  EXPECT_TRUE(log.communicators[0].members[3].complete);
  EXPECT_FALSE(log.communicators[1].members[0].complete);
}

TEST(RealNcclLogs, TreesOfRccl) {
  MOETAX_NEEDS_SHARED_DATA();
  const NcclLog log = read_shared("rccl-1026_mi250x_2node_trees-with-comm.log");
  ASSERT_THAT(log.communicators, SizeIs(1));
  EXPECT_EQ(log.communicators[0].ranks, 8);
  EXPECT_THAT(log.communicators[0].members, SizeIs(3));
  EXPECT_EQ(log.communicators[0].members[2].rank, 7);
  EXPECT_EQ(log.settings.at("NCCL_P2P_LEVEL"), "XGMI");
}

TEST(RealNcclTests, BaselinesOfAMachine) {
  MOETAX_NEEDS_SHARED_DATA();
  for (const auto& [file, factor, busbw] : {std::tuple("superbench_nccl-tests_allreduce.log", 2.0 * 7 / 8, 235.26),
                                            std::tuple("superbench_nccl-tests_alltoall.log", 7.0 / 8, 224.31)}) {
    const auto tables = read_nccl_tests(shared_data() + "/logs/" + file);
    ASSERT_TRUE(tables) << tables.error().message;
    ASSERT_THAT(*tables, SizeIs(1));
    const NcclTestsTable& table = tables->front();
    EXPECT_EQ(table.ranks, 8);
    EXPECT_THAT(table.hosts, SizeIs(1));
    EXPECT_EQ(table.rows.back().bytes, 8589934592);
    EXPECT_EQ(table.rows.back().out_of_place.busbw_gbs, busbw);
    EXPECT_EQ(table.rows.back().out_of_place.wrong, -1);
    EXPECT_NEAR(table.bus_factor(), factor, 0.01);
    EXPECT_TRUE(table.skipped.empty());
  }
  EXPECT_FALSE(looks_like_nccl_log("nvbandwidth Version: v0.6\n"));
  EXPECT_FALSE(read_nccl_log(shared_data() + "/logs/superbench_nvbandwidth.log"));
  EXPECT_FALSE(read_nccl_tests(shared_data() + "/logs/superbench_nvbandwidth.log"));
}

}  // namespace
}  // namespace moetax
