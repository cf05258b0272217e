// Reading the tables of nccl-tests.
#include "moetax/machine/nccl_tests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace moetax {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

std::vector<NcclTestsTable> read(std::string_view text) {
  auto tables = parse_nccl_tests(text, "tests.log");
  EXPECT_TRUE(tables) << tables.error().message;
  return tables ? std::move(*tables) : std::vector<NcclTestsTable>{};
}

constexpr std::string_view kReduce =
    "# nThread 1 nGpus 2 minBytes 1024 maxBytes 2048\n#\n# Using devices\n"
    "#  Rank  0 Group  0 Pid 12 on node-a device  0 [0x00] NVIDIA H100\n"
    "#  Rank  1 Group  0 Pid 13 on node-b device  0 [0x00] NVIDIA H100\n#\n"
    "#                                       out-of-place                       in-place\n"
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw "
    "#wrong\n"
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)\n"
    "        1024           256     float     sum      -1    20.00    0.05    0.10      0    21.00    0.05    0.10     "
    " 3\n"
    "node-a:12:12 [0] NCCL INFO Launch mode Parallel\n"
    "        2048           512     float     sum      -1    20.00    0.10    0.15    N/A    21.00    0.10    0.15    "
    "N/A\n"
    "        4096          1024     float     sum      -1    20.0\n"
    "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 0.125\n#\n";

TEST(NcclTests, RowsDevicesAndAverage) {
  const auto tables = read(kReduce);
  ASSERT_THAT(tables, SizeIs(1));
  const NcclTestsTable& table = tables[0];
  EXPECT_EQ(table.ranks, 2);
  EXPECT_THAT(table.hosts, ElementsAre("node-a", "node-b"));
  ASSERT_THAT(table.rows, SizeIs(2));
  EXPECT_EQ(table.rows[0].bytes, 1024);
  EXPECT_EQ(table.rows[0].elements, 256);
  EXPECT_EQ(table.rows[0].type, "float");
  EXPECT_EQ(table.rows[0].reduction, "sum");
  EXPECT_EQ(table.rows[0].out_of_place.time_us, 20);
  EXPECT_EQ(table.rows[0].out_of_place.busbw_gbs, 0.10);
  EXPECT_EQ(table.rows[0].out_of_place.wrong, 0);
  EXPECT_EQ(table.rows[0].in_place.wrong, 3);
  EXPECT_EQ(table.rows[1].in_place.wrong, -1);
  EXPECT_EQ(table.rows[1].line, 12);
  EXPECT_EQ(table.average_busbw_gbs, 0.125);
  EXPECT_DOUBLE_EQ(table.bus_factor(), 1.5);
  ASSERT_THAT(table.skipped, SizeIs(1));
  EXPECT_EQ(table.skipped[0].line, 13);
}

TEST(NcclTests, ColumnsThatAreEmpty) {
  const auto tables = read(
      "mpirun -n 8 ./build/alltoall_perf -b 8\n"
      "#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error\n"
      "          32             1   float            89.00    0.00    0.00    N/A    85.13    0.00    0.00    N/A\n"
      "          64             2   float            89.00    0.00    0.00  0e+00      N/A     N/A     N/A    N/A\n");
  ASSERT_THAT(tables, SizeIs(1));
  EXPECT_EQ(tables[0].collective, "alltoall");
  ASSERT_THAT(tables[0].rows, SizeIs(2));
  EXPECT_EQ(tables[0].rows[0].reduction, "");
  EXPECT_EQ(tables[0].rows[1].out_of_place.wrong, 0);
  EXPECT_EQ(tables[0].rows[1].in_place.time_us, 0);
  EXPECT_EQ(tables[0].bus_factor(), 0);
  EXPECT_EQ(tables[0].ranks, 0);
}

TEST(NcclTests, SeveralTables) {
  const auto tables = read("# Collective test starting: all_gather_perf\n" + std::string(kReduce) +
                           "# Collective test starting: reduce_scatter_perf\n" + std::string(kReduce));
  ASSERT_THAT(tables, SizeIs(2));
  EXPECT_EQ(tables[0].collective, "all_gather");
  EXPECT_EQ(tables[1].collective, "reduce_scatter");
  EXPECT_EQ(tables[1].ranks, 2);
}

TEST(NcclTests, OtherTextIsNone) {
  for (const char* text : {"", "1 2 3 4 5 6 7 8 9 10 11\n", "# size algbw busbw\n",
                           "1024 256 float sum -1 nan 0.05 0.10 0 21.00 0.05 0.10 0\n",
                           "-4 256 float sum -1 20 0.05 0.10 0 21.00 0.05 0.10 0\n"}) {
    EXPECT_FALSE(parse_nccl_tests(text, "tests.log")) << text;
    EXPECT_FALSE(looks_like_nccl_tests(text));
  }
  EXPECT_TRUE(looks_like_nccl_tests(kReduce));
}

}  // namespace
}  // namespace moetax
