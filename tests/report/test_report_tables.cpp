// What is said of files without a time line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "moetax/report/tables.h"

namespace moetax {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

std::string described(const std::string& text, const char* kind) {
  const auto table = describe_table(text, "file", KernelRules());
  EXPECT_TRUE(table) << (table ? "" : table.error().message);
  if (!table) return "";
  EXPECT_EQ(table->kind, kind);
  return table->text;
}

TEST(Tables, KernelsWithUnitsInCellsOrInTheHeader) {
  const std::string cells =
      "Time,Total Time,Instances,Avg,Name\n60.0%,3.000 s,10,300.0 ms,\"ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x, "
      "y)\"\n"
      "40.0%,500.5 \xce\xbcs,\"1,000\",5 \xce\xbcs,\"gemm<a, b>\"\nx\n";
  EXPECT_THAT(described(cells, "kernel table of Nsight Systems"),
              AllOf(StartsWith("3.00 s of kernel time, 3.00 s of it communication"), HasSubstr("compute 500 us"),
                    HasSubstr("all-reduce"), HasSubstr("1 rows could not be read")));
  EXPECT_THAT(
      described("Time (%),Total Time (ns),Instances,Name\n60,3000,10,ncclDevKernel_SendRecv(x)\n40,1000,2,gemm\n",
                "kernel table of Nsight Systems"),
      StartsWith("4.00 us of kernel time, 3.00 us of it communication (75.0 %), compute 1.00 us"));
}

TEST(Tables, CallsOfTheInspector) {
  const auto call = [](int rank, int us) {
    return R"({"header": {"id": "0xa", "rank": )" + std::to_string(rank) +
           R"(, "n_ranks": 2}, "coll_perf": {"coll": "AllToAll", "coll_sn": 3, "coll_msg_size_bytes": 1048576,)" +
           R"( "coll_busbw_gbs": 12.5, "coll_exec_time_us": )" + std::to_string(us) + "}}\n";
  };
  EXPECT_THAT(described(call(0, 300) + call(1, 100), "NCCL inspector dump"),
              AllOf(StartsWith("400 us in 2 calls"), HasSubstr("AllToAll"), HasSubstr("2.00 MiB"),
                    HasSubstr("200 us (50.0 %) are beyond the shortest rank's")));
  EXPECT_THAT(described(call(0, 300), "NCCL inspector dump"), HasSubstr("cannot be told apart"));
}

TEST(Tables, FlightRecorderTablesOfLinksAndLoads) {
  EXPECT_THAT(described(R"({"pg_config": {}, "entries": [{"process_group": ["0", "x"], "collective_seq_id": 4,
  "profiling_name": "nccl:all_reduce", "state": "started"}]})",
                        "flight recorder dump"),
              HasSubstr("the first that has not ended is all_reduce 4 of 0"));
  EXPECT_THAT(described("layer_id,expert_id,count\n0,0,30\n0,1,10\n0,2,0\n0,3,0\n", "expert load"),
              AllOf(StartsWith("Loads of 4 experts in 1 layer, 40 rows."), HasSubstr("2 ranks"), HasSubstr("3.00x")));
  EXPECT_THAT(described("layer_id,expert_ids\n3,5 1\n3,5 2\n", "expert load"), StartsWith("Loads of 6 experts"));
  EXPECT_THAT(described("1\t2\t\t0.5\t0.5\n1\t0\t\t0.5\t0.5\n", "expert load"), StartsWith("Loads of 3 experts"));
  const auto unknown = describe_table("hello", "f", KernelRules());
  ASSERT_FALSE(unknown);
  EXPECT_THAT(unknown.error().message, StartsWith("f: neither a trace"));
}

std::string real_file(const std::string& name) {
  const char* folder = std::getenv("MOETAX_SHARED_DATA");
  if (!folder) return "";
  std::ifstream file(std::string(folder) + "/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(Tables, RealFilesSayWhatTheirIndexSays) {
  if (real_file("nsys/cclbench_nsysgui_kern_EPLBON.csv").empty()) GTEST_SKIP() << "no MOETAX_SHARED_DATA";
  EXPECT_THAT(described(real_file("nsys/cclbench_nsysgui_kern_EPLBOFF.csv"), "kernel table of Nsight Systems"),
              AllOf(HasSubstr("(40.4 %)"), HasSubstr("communication is ncclDevKernel_Reduce_Sum_bf16")));
  EXPECT_THAT(described(real_file("nsys/cclbench_nsysgui_kern_EPLBON.csv"), "kernel table of Nsight Systems"),
              HasSubstr("(41.2 %)"));
  EXPECT_THAT(described(real_file("load/ESFT_law_layer_expert_count.csv"), "expert load"),
              AllOf(HasSubstr("3.28x"), HasSubstr("6.87x"), HasSubstr("1.33x"), HasSubstr("2.32x   layer 19")));
  EXPECT_THAT(described(real_file("logs/superbench_nccl-tests_alltoall.log"), "nccl-tests table"), HasSubstr("GB/s"));
  EXPECT_THAT(described(real_file("logs/superbench_nvbandwidth.log"), "nvbandwidth output"), HasSubstr("269.3"));
}

}  // namespace
}  // namespace moetax
