// Dumps of NCCL and PyTorch, and the readers of plain data beneath them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "machine/plain_data.h"
#include "moetax/machine/flight_dump.h"
#include "moetax/machine/nccl_inspector.h"
#include "moetax/machine/nvbandwidth.h"

namespace moetax {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// What Python's pickle.dumps makes of one small dump, by protocol.
const char* const kProtocol2 =
    "80027d710028580700000076657273696f6e71015803000000322e357102580900000070675f636f6e66696771037d71045801000000"
    "3071057d71062858040000006e616d65710768055804000000646573637108580a00000064656661756c745f70677109580500000072"
    "616e6b73710a58060000005b302c20315d710b75735807000000656e7472696573710c5d710d7d710e28580d00000070726f63657373"
    "5f67726f7570710f680568098671105811000000636f6c6c6563746976655f7365715f696471114b07580e00000070726f66696c696e"
    "675f6e616d657112580f0000006e63636c3a616c6c5f746f5f616c6c7113580f00000074696d655f637265617465645f6e7371148a08"
    "cf53669894a5ef17580b000000696e7075745f73697a657371155d71165d7117284b034b046561580c0000006f75747075745f73697a"
    "657371185d71195d711a284b054b046561580c000000696e7075745f647479706573711b5d711c5805000000466c6f6174711d615805"
    "0000007374617465711e580700000073746172746564711f580600000069735f703270712089580100000078712147bff80000000000"
    "00580300000062696771228a0500a22f4dff58040000006e6f6e6571234e58060000006672616d657371245d7125287d712628680758"
    "050000005f63616c6c7127580800000066696c656e616d65712858170000002f6f70742f746f7263682f6e6e2f6d6f64756c652e7079"
    "712958040000006c696e65712a4b09757d712b2868075807000000666f7277617264712c6828580b0000002f612f6d6f64656c2e7079"
    "712d682a4b0c75657561752e";
const char* const kProtocol4 =
    "800495ce010000000000007d94288c0776657273696f6e948c03322e35948c0970675f636f6e666967947d948c0130947d94288c046e"
    "616d659468058c0464657363948c0a64656661756c745f7067948c0572616e6b73948c065b302c20315d9475738c07656e7472696573"
    "945d947d94288c0d70726f636573735f67726f7570946805680986948c11636f6c6c6563746976655f7365715f6964944b078c0e7072"
    "6f66696c696e675f6e616d65948c0f6e63636c3a616c6c5f746f5f616c6c948c0f74696d655f637265617465645f6e73948a08cf5366"
    "9894a5ef178c0b696e7075745f73697a6573945d945d94284b034b0465618c0c6f75747075745f73697a6573945d945d94284b054b04"
    "65618c0c696e7075745f647479706573945d948c05466c6f617494618c057374617465948c0773746172746564948c0669735f703270"
    "94898c01789447bff80000000000008c03626967948a0500a22f4dff8c046e6f6e65944e8c066672616d6573945d94287d942868078c"
    "055f63616c6c948c0866696c656e616d65948c172f6f70742f746f7263682f6e6e2f6d6f64756c652e7079948c046c696e65944b0975"
    "7d942868078c07666f72776172649468288c0b2f612f6d6f64656c2e707994682a4b0c75657561752e";
const char* const kProtocol0 =
    "(dp0\nVversion\np1\nV2.5\np2\nsVpg_config\np3\n(dp4\nV0\np5\n(dp6\nVname\np7\ng5\nsVdesc\np8\n"
    "Vdefault_pg\np9\nsVranks\np10\nV[0, 1]\np11\nsssVentries\np12\n(lp13\n(dp14\nVprocess_group\np15\n"
    "(g5\ng9\ntp16\nsVcollective_seq_id\np17\nI7\nsVprofiling_name\np18\nVnccl:all_to_all\np19\n"
    "sVtime_created_ns\np20\nL1724779239936775119L\nsVinput_sizes\np21\n(lp22\n(lp23\nI3\naI4\n"
    "aasVoutput_sizes\np24\n(lp25\n(lp26\nI5\naI4\naasVinput_dtypes\np27\n(lp28\nVFloat\np29\nasVstate\n"
    "p30\nVstarted\np31\nsVis_p2p\np32\nI00\nsVx\np33\nF-1.5\nsVbig\np34\nL-3000000000L\nsVnone\np35\n"
    "NsVframes\np36\n(lp37\n(dp38\ng7\nV_call\np39\nsVfilename\np40\nV/opt/torch/nn/module.py\np41\n"
    "sVline\np42\nI9\nsa(dp43\ng7\nVforward\np44\nsg40\nV/a/model.py\np45\nsg42\nI12\nsasas.";

std::string bytes_of_hex(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

void expect_the_dump(const std::string& bytes) {
  const auto dump = parse_flight_dump(bytes, "/tmp/nccl_trace_rank_1");
  ASSERT_TRUE(dump) << dump.error().message;
  EXPECT_EQ(dump->trouble, "");
  EXPECT_EQ(dump->version, "2.5");
  EXPECT_EQ(dump->rank, 1);
  ASSERT_EQ(dump->groups.size(), 1U);
  EXPECT_THAT(dump->groups[0].ranks, ElementsAre(0, 1));
  ASSERT_EQ(dump->calls.size(), 1U);
  const FlightCall& call = dump->calls[0];
  EXPECT_EQ(call.op, "all_to_all");
  EXPECT_EQ(call.sequence, 7);
  EXPECT_EQ(call.state, FlightState::kStarted);
  EXPECT_THAT(call.in_elements, ElementsAre(12));
  EXPECT_EQ(call.elements_out(), 20);
  EXPECT_EQ(call.dtype, "Float");
  EXPECT_EQ(call.created_ns, 1724779239936775119);
  EXPECT_EQ(call.where, "model.py:12 forward");
  EXPECT_FALSE(call.message);
}

TEST(FlightDump, PicklesOfAllProtocols) {
  expect_the_dump(bytes_of_hex(kProtocol2));
  expect_the_dump(bytes_of_hex(kProtocol4));
  expect_the_dump(kProtocol0);
}

TEST(FlightDump, JsonAndWhatPythonPrints) {
  const std::string json =
      R"({"version": "2.5", "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": [0, 1]}},
    "entries": [{"process_group": ["0", "default_pg"], "collective_seq_id": 7, "profiling_name": "nccl:all_to_all",
    "time_created_ns": 1724779239936775119, "input_sizes": [[3, 4]], "output_sizes": [[5, 4]], "input_dtypes": ["Float"],
    "state": "started", "is_p2p": false, "frames": [{"name": "forward", "filename": "/a/model.py", "line": 12}]}]})";
  expect_the_dump(json);
  expect_the_dump(R"({'version': '2.5', 'pg_config': {'0': {'name': '0', 'desc': 'default_pg', 'ranks': '[0, 1]'}},
    'entries': [{'process_group': ('0', 'default_pg'), 'collective_seq_id': 7, 'profiling_name': 'nccl:all_to_all',
    'time_created_ns': 1724779239936775119, 'input_sizes': [[3, 4]], 'output_sizes': [(5, 4)], 'input_dtypes': ['Float'],
    'state': 'started', 'is_p2p': False, 'timeout': None,
    'frames': [{'name': 'forward', 'filename': '/a/model.py', 'line': 12}]}, ...]})");
}

TEST(FlightDump, WhatBreaksOffIsUsedAsFarAsItGoes) {
  const auto text = [](std::string_view t) {
    return std::string("X") + static_cast<char>(t.size()) + std::string(3, '\0') + std::string(t);
  };
  const std::string entry =
      "}(" + text("profiling_name") + text("nccl:all_reduce") + text("collective_seq_id") + "K\x05u";
  const std::string open = "\x80\x02}(" + text("entries") + "](" + entry + entry;
  for (const std::string& rest : {std::string(), "}(" + text("profiling_name"), std::string("K")}) {
    const auto cut = parse_flight_dump(open + rest, "rank0");
    ASSERT_TRUE(cut);
    EXPECT_THAT(cut->trouble, HasSubstr("byte"));
    EXPECT_EQ(cut->calls.size(), 2U);
    EXPECT_EQ(cut->calls[1].sequence, 5);
  }
  const std::string whole = bytes_of_hex(kProtocol2);
  for (std::size_t size = 0; size < whole.size(); ++size) (void)parse_flight_dump(whole.substr(0, size), "rank0");
  EXPECT_THAT(parse_flight_dump("{}", "x").error().message, HasSubstr("x: no dump of a flight recorder"));
}

TEST(FlightDump, RanksComeFromNames) {
  const std::string bytes = bytes_of_hex(kProtocol2);
  for (const auto& [name, rank] :
       {std::pair{"dumps/rank_3.json", 3}, std::pair{"nccl_trace_rank_12", 12}, std::pair{"2024/trace-17", 17},
        std::pair{"rank7_v2.pickle", 7}, std::pair{"dump.pickle", -1}, std::pair{"v2.5_sample.txt", -1}}) {
    EXPECT_EQ(parse_flight_dump(bytes, name)->rank, rank) << name;
  }
}

// A pickle that asks for a call gets none: "cos\nsystem\n(S'touch x'\ntR." is the classic.
TEST(PlainData, PicklesRunNothing) {
  const PlainRead read =
      read_pickle(std::string("\x80\x02}X\x01\x00\x00\x00"
                              "acos\nsystem\n(X\x04\x00\x00\x00"
                              "exittRs.",
                              34));
  EXPECT_EQ(read.trouble, "");
  ASSERT_EQ(read.values.size(), 1U);
  EXPECT_EQ(read.data[read.values[0]].size(), 1U);
  EXPECT_EQ(read.data[read.values[0]]["a"].kind(), PlainKind::kNull);
}

// torch.jit writes lists of numbers as calls of build_intlist.
TEST(PlainData, ListsOfTorchJit) {
  const std::string list =
      "ctorch.jit._pickle\nbuild_intlist\n](K\x03K\x04"
      "e\x85R";
  const PlainRead read = read_pickle(std::string("\x80\x02}X\x01\x00\x00\x00"
                                                 "a",
                                                 9) +
                                     list + "s.");
  ASSERT_EQ(read.values.size(), 1U);
  const PlainValue sizes = read.data[read.values[0]]["a"];
  ASSERT_EQ(sizes.size(), 2U);
  EXPECT_EQ(sizes[std::size_t{1}].whole(), 4);
}

// A list of itself, and lists that double: neither takes more than its bytes.
TEST(PlainData, PicklesThatHoldThemselves) {
  const PlainRead self =
      read_pickle(std::string("\x80\x02]q\x00h\x00"
                              "a.",
                              8));
  ASSERT_EQ(self.values.size(), 1U);
  EXPECT_EQ(self.data[self.values[0]].size(), 1U);
  std::string bomb = "\x80\x02]";
  for (int i = 0; i < 100; ++i) bomb += "2\x86";
  EXPECT_EQ(read_pickle(bomb + ".").values.size(), 1U);
  EXPECT_THAT(read_pickle("\x80\x02" + std::string(1000, '0')).trouble, HasSubstr("not there"));
}

TEST(PlainData, TextThatIsNested) {
  EXPECT_THAT(read_plain_text(std::string(100'000, '[')).trouble, HasSubstr("64 levels"));
  const PlainRead read = read_plain_text("noise {\"a\": \"x\\u00e9\\n\", 'b': [1, 2.5, -3e2, True, nan,]} {\"c\": 1");
  ASSERT_EQ(read.values.size(), 2U);
  EXPECT_EQ(read.data[read.values[0]]["a"].text(), "x\xc3\xa9\n");
  const PlainValue list = read.data[read.values[0]]["b"];
  EXPECT_EQ(list[std::size_t{1}].number(), 2.5);
  EXPECT_EQ(list[std::size_t{2}].whole(), -300);
  EXPECT_EQ(list[std::size_t{4}].number(), std::nullopt);
  EXPECT_EQ(read.data[read.values[1]]["c"].whole(), 1);
  EXPECT_THAT(read.trouble, HasSubstr("inside of a value"));
}

TEST(NcclInspector, ObjectsALineOrSpread) {
  const std::string one = R"({"header": {"id": "0xa", "rank": 2, "n_ranks": 8, "nnodes": 1},
   "metadata": {"inspector_output_format_version": "v4.0", "hostname": "h1"},
   "coll_perf": {"coll": "AllReduce", "coll_sn": 12, "coll_msg_size_bytes": 4096, "coll_exec_time_us": 61,
   "coll_algobw_gbs": 2.5, "coll_busbw_gbs": 4.5,
   "event_trace_ts": {"kernel_events": [{"kernel_start_ts": 105, "kernel_stop_ts": 160}, {"kernel_start_ts": 100,
   "kernel_stop_ts": 150}]}}}
)";
  const auto dump = parse_nccl_inspector(one + one + "{\"header\": {}}\n", "i.log");
  ASSERT_TRUE(dump) << dump.error().message;
  ASSERT_EQ(dump->calls.size(), 2U);
  EXPECT_EQ(dump->skipped, 1);
  const InspectorCall& call = dump->calls[0];
  EXPECT_EQ(call.op, "AllReduce");
  EXPECT_EQ(call.rank, 2);
  EXPECT_EQ(call.sequence, 12);
  EXPECT_EQ(call.us, 61);
  EXPECT_EQ(call.busbw_gbs, 4.5);
  EXPECT_EQ(call.start_us, 100);
  EXPECT_EQ(call.end_us, 160);
  EXPECT_THAT(parse_nccl_inspector("{}", "i.log").error().message, HasSubstr("i.log: no dump"));
}

TEST(NcclInspector, Prometheus) {
  const std::string labels =
      "{version=\"v5.1\",node=\"n1\",gpu=\"GPU3\",comm_name=\"EP\",n_nodes=\"1\",nranks=\"4\",collective=\"AllReduce\","
      "message_size=\"4-5GB\"}";
  const auto dump = parse_nccl_inspector("# HELP x\nnccl_bus_bandwidth_gbs" + labels +
                                             " 678.263\nnccl_collective_exec_time_microseconds" + labels +
                                             " 9498.47 1700000000\nnccl_other 5\n",
                                         "i.prom");
  ASSERT_TRUE(dump);
  ASSERT_EQ(dump->calls.size(), 1U);
  EXPECT_EQ(dump->skipped, 1);
  EXPECT_EQ(dump->calls[0].busbw_gbs, 678.263);
  EXPECT_EQ(dump->calls[0].us, 9498.47);
  EXPECT_EQ(dump->calls[0].size, "4-5GB");
  EXPECT_EQ(dump->calls[0].device, "GPU3");
  EXPECT_EQ(dump->calls[0].ranks, 4);
}

TEST(Nvbandwidth, MatricesAndWhatIsWaived) {
  const auto out = parse_nvbandwidth(
      "nvbandwidth Version: v0.6\nDevice 0: NVIDIA H100\n\nRunning host_to_device_memcpy_ce.\n"
      "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)\n           0         1\n 0     55.20     21.30\n\n"
      "SUM host_to_device_memcpy_ce 76.50\n\nWaived: \nRunning device_to_device_memcpy_read_ce.\n"
      "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)\n           0         1\n 0      N/A    276.07\n 1    276.36 "
      "      N/A\n x y\n",
      "nv.txt");
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_EQ(out->version, "v0.6");
  EXPECT_THAT(out->devices, ElementsAre("NVIDIA H100"));
  ASSERT_EQ(out->tests.size(), 2U);
  EXPECT_EQ(out->tests[0].line, 4);
  EXPECT_EQ(out->tests[0].sum_gbs, 76.5);
  EXPECT_EQ(out->slowest("host_to_device_memcpy"), 21.3);
  EXPECT_EQ(out->tests[1].cells.size(), 2U);
  EXPECT_EQ(out->skipped, 1);
  EXPECT_THAT(parse_nvbandwidth("x", "nv.txt").error().message, HasSubstr("nv.txt: no output"));
}

// ---- real files -----------------------------------------------------------------------------------------------------

std::string real_file(const std::string& name) {
  const char* folder = std::getenv("MOETAX_SHARED_DATA");
  if (!folder) return "";
  std::ifstream file(std::string(folder) + "/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(RealDumps, SayWhatTheirIndexSays) {
  if (real_file("nccl_dumps/ras_sample.json").empty()) GTEST_SKIP() << "no MOETAX_SHARED_DATA";
  const auto flight = parse_flight_dump(real_file("nccl_dumps/pytorch_docs_flight_recorder_v2.5_sample.txt"), "rank0");
  ASSERT_TRUE(flight) << flight.error().message;
  ASSERT_EQ(flight->calls.size(), 1U);
  EXPECT_EQ(flight->calls[0].op, "all_reduce");
  EXPECT_EQ(flight->calls[0].started_ns, -1);  // null: timing was off
  EXPECT_EQ(flight->calls[0].state, FlightState::kCompleted);
  for (const char* name : {"inspector_v4_sample.json", "inspector_v4_verbose_sample.json", "inspector_v4_sample.ndjson",
                           "inspector_prom_sample.prom"}) {
    const auto dump = parse_nccl_inspector(real_file(std::string("nccl_dumps/") + name), name);
    ASSERT_TRUE(dump) << dump.error().message;
    EXPECT_EQ(dump->skipped, 0) << name;
    EXPECT_GT(dump->calls[0].busbw_gbs, 300) << name;
  }
  const auto copies = parse_nvbandwidth(real_file("logs/superbench_nvbandwidth.log"), "nv");
  ASSERT_TRUE(copies);
  EXPECT_EQ(copies->slowest("host_to_device_memcpy_ce"), 269.33);
}

}  // namespace
}  // namespace moetax
