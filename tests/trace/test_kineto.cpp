// Sound Kineto traces in all their spellings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <fstream>

#include "trace/kineto_text.h"

namespace moetax {
namespace {

using testing::HasSubstr;

TEST(Kineto, KeepsWhatHappenedWhereAndWhen) {
  const GpuTrace trace = parsed(trace_text({kernel_text("add<int>", "10.5", "2.25", 20)}));
  ASSERT_EQ(trace.events.size(), 1u) << trace.file;
  const GpuEvent& event = trace.events[0];
  EXPECT_EQ(name_of(trace, 0), "add<int>");
  EXPECT_EQ(event.kind(), GpuEventKind::kKernel);
  EXPECT_EQ(event.start_ns, 10'500);
  EXPECT_EQ(event.end_ns(), 12'750);
  EXPECT_EQ(event.correlation, 5u);
  EXPECT_EQ(trace.tracks[event.track].device, 0);
  EXPECT_EQ(trace.tracks[event.track].stream, 20);
}

TEST(Kineto, KeysInAnyOrder) {
  const GpuTrace trace = parsed(trace_text({
      R"({"args":{"stream":9,"device":1,"Collective name":"allreduce"},"dur":"3","ts":"4.001","cat":"kernel","name":"n","ph":"X"})",
  }));
  ASSERT_EQ(trace.events.size(), 1u) << trace.file;
  EXPECT_EQ(trace.events[0].start_ns, 4'001);
  EXPECT_EQ(trace.tracks[trace.events[0].track].device, 1);
  ASSERT_EQ(trace.collectives.size(), 1u);
  EXPECT_EQ(trace.names[trace.collectives[0].operation], "allreduce");
}

TEST(Kineto, JobBeforeOrAfterTheEventsOrNowhere) {
  const std::string job = R"("distributedInfo":{"backend":"nccl","rank":3,"world_size":8})";
  const std::string event = kernel_text("k", "1", "1");
  EXPECT_EQ(parsed(trace_text({event}, "," + job)).rank, 3);
  EXPECT_EQ(parsed("{" + job + ",\"traceEvents\":[" + event + "]}").world_size, 8);
  EXPECT_EQ(parsed(trace_text({event})).rank, kNoRank);
  EXPECT_EQ(parsed(trace_text({event}, R"(,"distributedInfo":{"backend":"nccl"})")).rank, kNoRank);
}

TEST(Kineto, BareListAndLegacyNames) {
  const GpuTrace trace =
      parsed(R"([{"ph":"X","cat":"Kernel","name":"k","pid":0,"tid":"stream 7","ts":5,"dur":6,"args":{}},)"
             R"({"ph":"X","cat":"Memcpy","name":"m","pid":0,"tid":"stream 8","ts":5,"dur":6},)"
             R"({"ph":"X","cat":"Runtime","name":"r","pid":77,"tid":"78","ts":5,"dur":6},)"
             R"({"ph":"X","cat":"Operator","name":"o","pid":77,"tid":"78","ts":5,"dur":6},)"
             R"({"ph":"s","cat":"async","name":"a","pid":0,"tid":"stream 7","ts":5,"id":1}])");
  ASSERT_EQ(trace.events.size(), 4u) << trace.file;
  EXPECT_EQ(trace.tracks[trace.events[0].track].stream, 7);
  EXPECT_EQ(trace.events[1].kind(), GpuEventKind::kCopy);
  EXPECT_EQ(trace.events[2].kind(), GpuEventKind::kRuntime);
  EXPECT_EQ(trace.events[3].kind(), GpuEventKind::kHostOp);
  EXPECT_EQ(trace.read.ignored, 1);
}

TEST(Kineto, ListsAsTextOrAsLists) {
  const std::string open = R"({"ph":"X","cat":"kernel","name":"nccl","ts":1,"dur":1,"args":{"device":0,"stream":1,)";
  const GpuTrace trace = parsed(trace_text({open + R"("Process Group Ranks":"[0, 1]","In msg nelems":"16"}})",
                                            open + R"("Process Group Ranks":[0, 1],"In msg nelems":16,"Seq":9}})"}));
  ASSERT_EQ(trace.collectives.size(), 2u) << trace.file;
  EXPECT_EQ(trace.collectives[0].ranks, trace.collectives[1].ranks);
  EXPECT_EQ(trace.names[trace.collectives[0].ranks], "[0, 1]");
  EXPECT_EQ(trace.collectives[0].in_elements, 16);
  EXPECT_EQ(trace.collectives[1].in_elements, 16);
  EXPECT_EQ(trace.collectives[1].sequence, 9);
}

TEST(Kineto, ArgumentsOfOperatorsOnlyWhereTheyDescribeACollective) {
  const std::string args = R"("ts":1,"dur":1,"pid":1,"tid":1,"args":{"Collective name":"allgather"}})";
  const GpuTrace trace = parsed(trace_text({R"({"ph":"X","cat":"cpu_op","name":"record_param_comms",)" + args,
                                            R"({"ph":"X","cat":"cpu_op","name":"aten::add",)" + args}));
  ASSERT_EQ(trace.events.size(), 2u);
  EXPECT_EQ(trace.events[0].collective, 0);
  EXPECT_EQ(trace.events[1].collective, -1);
}

TEST(Kineto, EscapedNamesMeanTheirText) {
  const GpuTrace trace = parsed(trace_text({kernel_text(R"(a\"b\u0041\\)", "1", "1")}));
  ASSERT_EQ(trace.events.size(), 1u);
  EXPECT_EQ(name_of(trace, 0), "a\"bA\\");
}

// Whatever the size of the chunks, the same is read: events across their borders, text that looks like borders.
TEST(Kineto, ChunksOfAnySizeGiveTheSame) {
  std::vector<std::string> events;
  for (int i = 0; i < 40; ++i) {
    events.push_back(kernel_text(i % 3 == 0 ? "k}, {\\\"ph" : "plain", std::to_string(i), "1", i % 4));
    events.push_back(
        R"({"ph":"X","cat":"cpu_op","name":"o","pid":1,"tid":2,"ts":3,"dur":4,"args":{"l":[{"a":1}, {"b":2}]}})");
  }
  const std::string text = trace_text(events, R"(,"pg":[{"a":1}, {"b":2}],"distributedInfo":{"rank":5})");
  for (std::size_t chunk = 64; chunk < 700; chunk += 7) {
    const GpuTrace trace = parsed(text, chunk);
    ASSERT_EQ(trace.events.size(), 80u) << chunk << trace.file;
    EXPECT_EQ(trace.read.damaged, 0) << chunk;
    EXPECT_EQ(trace.rank, 5) << chunk;
    EXPECT_FALSE(trace.read.cut) << chunk;
    EXPECT_EQ(trace.events[78].start_ns, 39'000);
  }
}

std::string gzipped(const std::string& text) {
  z_stream zip{};
  deflateInit2(&zip, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(text.size() + 1000, '\0');
  zip.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  zip.avail_in = static_cast<uInt>(text.size());
  zip.next_out = reinterpret_cast<Bytef*>(out.data());
  zip.avail_out = static_cast<uInt>(out.size());
  deflate(&zip, Z_FINISH);
  out.resize(zip.total_out);
  deflateEnd(&zip);
  return out;
}

std::string zstd_packed(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

TEST(Kineto, PackedFilesAreKnownByTheirFirstBytes) {
  const std::string text = trace_text({kernel_text("k", "1", "1"), kernel_text("l", "2", "1")});
  EXPECT_EQ(parsed(gzipped(text)).events.size(), 2u);
  EXPECT_EQ(parsed(zstd_packed(text)).events.size(), 2u);
  EXPECT_EQ(parsed(gzipped(text.substr(0, 50)) + gzipped(text.substr(50))).events.size(), 2u) << "two members";
}

TEST(Kineto, PackedFilesThatEndTooEarly) {
  std::vector<std::string> events;
  for (int i = 0; i < 3000; ++i)
    events.push_back(kernel_text(fmt::format("k{}", i * 7919 % 1000), std::to_string(i * 31), "1"));
  for (const auto& pack : {gzipped, zstd_packed}) {
    const std::string packed = pack(trace_text(events));
    const GpuTrace trace = parsed(packed.substr(0, packed.size() * 9 / 10));
    EXPECT_GT(trace.events.size(), 100u) << trace.file;
    EXPECT_LT(trace.events.size(), 3000u);
    EXPECT_TRUE(trace.read.cut);
    EXPECT_THAT(trace.read.cut_why, HasSubstr("end"));
  }
}

TEST(Kineto, FilesOnDisk) {
  const std::string path = testing::TempDir() + "moetax_kineto.json";
  std::ofstream(path) << trace_text({kernel_text("k", "1", "1")});
  const auto trace = read_kineto(path);
  ASSERT_TRUE(trace);
  EXPECT_EQ(trace->file, path);
  EXPECT_EQ(trace->events.size(), 1u);
  EXPECT_THAT(read_kineto(testing::TempDir()).error().message, HasSubstr("is a directory"));
  EXPECT_THAT(read_kineto(path + ".none").error().message, HasSubstr("cannot be read"));
}

}  // namespace
}  // namespace moetax
