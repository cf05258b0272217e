// Jobs that stopped, as dumps of their ranks tell it; links and offloads as they were measured.
#include <fmt/format.h>

#include "doctor/cases.h"

namespace moetax::doctor {
namespace {

// A call of group "1", mesh_ep.
std::string call(int sequence, const char* op, const char* state, const char* in, const char* out,
                 const char* place = "moe.py") {
  return fmt::format(
      R"({{"process_group": ["1", "mesh_ep"], "collective_seq_id": {}, "profiling_name": "nccl:{}", "state": "{}",
 "input_sizes": {}, "output_sizes": {}, "input_dtypes": ["BFloat16"], "time_created_ns": {}, "timeout_ms": 600000,
 "is_p2p": false, "frames": [{{"name": "forward", "filename": "/job/{}", "line": 40}}]}})",
      sequence, op, state, in, out, 1000 + sequence, place);
}

File dump(int rank, const std::vector<std::string>& calls) {
  std::string text =
      R"({"version": "2.5", "pg_config": {"1": {"name": "1", "desc": "mesh_ep", "ranks": [0, 1, 2]}}, "entries": [)";
  for (std::size_t i = 0; i < calls.size(); ++i) text += (i > 0 ? ",\n" : "") + calls[i];
  return {fmt::format("dumps/rank_{}", rank), text + "]}"};
}

const std::string kDone = call(4, "all_to_all", "completed", "[[2, 8], [3, 8], [1, 8]]", "[[2, 8], [3, 8], [1, 8]]");
const std::string kWaits = call(5, "all_to_all", "started", "[[6, 8]]", "[[6, 8]]");

TEST(DoctorDumps, ARankThatNeverCame) {
  expect_verdict({"two ranks wait, the third computes",
                  {dump(0, {kWaits}), dump(1, {kWaits}),
                   dump(2, {call(4, "all_to_all", "completed", "[[6, 8]]", "[[6, 8]]", "eval.py")})},
                  "rank-behind",
                  {"rank 2 never came to all_to_all 5 of mesh_ep", "ranks 0, 1 wait", "eval.py:40 forward",
                   "which has ended", "PID_OF_RANK_2"},
                  {{"dumps/rank_2", "\"collective_seq_id\": 4", "\"collective_seq_id\": 5"}}});
}

TEST(DoctorDumps, ARankThatWaitsElsewhere) {
  std::string other = call(9, "all_reduce", "started", "[[1]]", "[[1]]", "optim.py");
  other.replace(other.find("\"1\", \"mesh_ep\""), 14, "\"2\", \"dp\"");
  expect_verdict({"the late rank is in a collective of another group",
                  {dump(0, {kWaits}), dump(1, {kWaits}), dump(2, {kDone, other})},
                  "rank-behind",
                  {"rank 2 is in all_reduce 9 of dp", "optim.py:40", "look at that one first"},
                  {{"dumps/rank_2", "\"collective_seq_id\": 4", "\"collective_seq_id\": 5"}}});
}

TEST(DoctorDumps, ARankWithoutADump) {
  expect_verdict({"two of three ranks wrote one",
                  {dump(0, {kWaits}), dump(1, {kWaits})},
                  "ranks-missing",
                  {"no dump of rank 2", "2 of the 3 ranks of mesh_ep"},
                  {{"dumps/rank_0", "[0, 1, 2]", "[0, 1]"}, {"dumps/rank_1", "[0, 1, 2]", "[0, 1]"}}});
}

TEST(DoctorDumps, WhatASingleDumpSays) {
  expect_verdict({"one dump of three",
                  {dump(1, {kDone, kWaits})},
                  "rank-waits",
                  {"rank 1 waits in all_to_all 5 of mesh_ep", "1 of 3 ranks", "moe.py:40"},
                  {{"dumps/rank_1", "\"started\"", "\"completed\""}}});
}

TEST(DoctorDumps, OtherOperationsUnderOneNumber) {
  expect_verdict({"a rank is a call ahead",
                  {dump(0, {kWaits}), dump(1, {call(5, "reduce_scatter", "started", "[[6]]", "[[6]]", "zero.py")})},
                  "collective-order",
                  {"collective 5 of mesh_ep is all_to_all on rank 0 and reduce_scatter on rank 1", "zero.py:40"},
                  {{"dumps/rank_1", "nccl:reduce_scatter", "nccl:all_to_all"},
                   {"dumps/rank_1", "\"collective_seq_id\": 5", "\"collective_seq_id\": 6"}}});
}

TEST(DoctorDumps, SizesAndTypesThatDiffer) {
  expect_verdict({"a reduction over other numbers of elements",
                  {dump(0, {call(7, "all_reduce", "started", "[[128]]", "[[128]]")}),
                   dump(1, {call(7, "all_reduce", "started", "[[64]]", "[[64]]")})},
                  "collective-mismatch",
                  {"all_reduce 7 of mesh_ep is entered with different sizes", "128 elements", "64 of"},
                  {{"dumps/rank_1", "[[64]]", "[[128]]"}}});
  expect_verdict({"the same in another type",
                  {dump(0, {call(7, "all_reduce", "started", "[[128]]", "[[128]]")}),
                   [] {
                     File file = dump(1, {call(7, "all_reduce", "started", "[[128]]", "[[128]]")});
                     file.text.replace(file.text.find("BFloat16"), 8, "Float");
                     return file;
                   }()},
                  "collective-mismatch",
                  {"different types", "BFloat16"},
                  {{"dumps/rank_1", "\"Float\"", "\"BFloat16\""}}});
}

TEST(DoctorDumps, SplitsThatAreNotTransposes) {
  expect_verdict({"a list a peer",
                  {dump(0, {call(4, "all_to_all", "started", "[[2, 8], [3, 8], [1, 8]]", "[[2, 8], [5, 8], [1, 8]]")}),
                   dump(1, {call(4, "all_to_all", "started", "[[4, 8], [0, 8], [2, 8]]", "[[3, 8], [0, 8], [2, 8]]")}),
                   dump(2, {call(4, "all_to_all", "started", "[[1, 8], [2, 8], [2, 8]]", "[[1, 8], [2, 8], [2, 8]]")})},
                  "splits-not-transposed",
                  {"rank 1 sends 32 elements to rank 0, which expects 40"},
                  {{"dumps/rank_0", "[5, 8]", "[4, 8]"}}});
  expect_verdict({"one tensor for all peers",
                  {dump(0, {call(4, "all_to_allv", "started", "[[6, 8]]", "[[5, 8]]")}),
                   dump(1, {call(4, "all_to_allv", "started", "[[6, 8]]", "[[6, 8]]")}),
                   dump(2, {call(4, "all_to_allv", "started", "[[6, 8]]", "[[6, 8]]")})},
                  "splits-not-transposed",
                  {"its ranks send 144 elements and expect 136"},
                  {{"dumps/rank_0", "[[5, 8]]", "[[6, 8]]"}}});
}

TEST(DoctorDumps, RanksThatRasMisses) {
  expect_verdict(
      {"as text",
       {{"ras.txt",
         "#0-0 (cf26) INCOMPLETE\n  Missing communicator data from 1 rank\n  The missing rank: 21\nError\n"}},
       "ranks-missing",
       {"rank 21 does not answer"},
       {{"ras.txt", "The missing rank: 21", ""}}});
  expect_verdict({"counts of collectives",
                  {{"ras.json",
                    R"({"communicators": [{"hash": "0xae", "size": 2, "ranks": [
  {"rank": 0, "collective_counts": {"AllReduce": 7, "AllGather": 5}},
  {"rank": 1, "collective_counts": {"AllReduce": 6, "AllGather": 5}}], "missing_ranks": []}]})"}},
                  "ranks-missing",
                  {"some ranks are at operation 11, others at 12"},
                  {{"ras.json", "\"AllReduce\": 6", "\"AllReduce\": 7"}}});
}

TEST(DoctorDumps, ARankThatComesLast) {
  std::string text;
  for (int n = 0; n < 6; ++n) {
    for (int rank = 0; rank < 2; ++rank) {
      text += fmt::format(
          R"({{"header": {{"id": "0xc0", "rank": {}, "n_ranks": 2, "nnodes": 1}}, "metadata": {{"hostname": "h"}},)"
          R"( "coll_perf": {{"coll": "AllToAll", "coll_sn": {}, "coll_msg_size_bytes": 4096, "coll_exec_time_us": {}}}}})"
          "\n",
          rank, n, rank == 1 ? 100 : 400);
    }
  }
  expect_verdict({"everybody waits for rank 1",
                  {{"inspector.ndjson", text}},
                  "straggler",
                  {"rank 1 comes last to 6 of 6 collectives", "expert load of rank 1"},
                  {}});
  while (text.find(": 400}") != std::string::npos) text.replace(text.find(": 400}"), 6, ": 101}");
  EXPECT_FALSE(find(examined({{"inspector.ndjson", text}}), "straggler"));
}

// A job whose dumps were taken while it ran well: all the same calls, all ended.
TEST(DoctorDumps, DumpsOfARunningJobAreQuiet) {
  const Examination examination =
      examined({dump(0, {kDone}),
                dump(1, {call(4, "all_to_all", "completed", "[[3, 8], [3, 8], [1, 8]]", "[[3, 8], [3, 8], [1, 8]]")}),
                dump(2, {call(4, "all_to_all", "completed", "[[1, 8], [1, 8], [1, 8]]", "[[1, 8], [1, 8], [1, 8]]")})});
  EXPECT_THAT(ids(examination), testing::IsEmpty());
  EXPECT_EQ(examination.checked.size(), 3U);
}

}  // namespace
}  // namespace moetax::doctor
