// Kineto traces that are not quite JSON, end too early, or are something else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trace/kineto_text.h"

namespace moetax {
namespace {

using testing::HasSubstr;

// One event of that text between two sound ones.
GpuTrace with_one(const std::string& text, std::size_t chunk = std::size_t{1} << 20) {
  return parsed(trace_text({kernel_text("before", "1", "1"), text, kernel_text("after", "9", "1")},
                           R"(,"distributedInfo":{"rank":2})"),
                chunk);
}

void expect_skipped(const std::string& text, const char* what) {
  for (const std::size_t chunk : {std::size_t{64}, std::size_t{300}, std::size_t{1} << 20}) {
    const GpuTrace trace = with_one(text, chunk);
    ASSERT_EQ(trace.events.size(), 2u) << what << " " << chunk << " " << trace.file;
    EXPECT_EQ(name_of(trace, 0), "before") << what;
    EXPECT_EQ(name_of(trace, 1), "after") << what;
    EXPECT_EQ(trace.read.damaged, 1) << what;
    EXPECT_EQ(trace.read.events, 3) << what;
    EXPECT_GT(trace.read.first_damage, 0) << what;
    EXPECT_EQ(trace.rank, 2) << what;
  }
}

TEST(KinetoDamage, OneEventIsSkippedAndCounted) {
  expect_skipped(kernel_text("k", "inf", "1"), "infinite time");
  expect_skipped(kernel_text("k", "1", "-5"), "negative duration");
  expect_skipped(kernel_text("k", "1", "null"), "no duration");
  expect_skipped(kernel_text("quote \"inside\" a name", "1", "1"), "unescaped quotes");
  expect_skipped(R"({"ph":"X","cat":"kernel","name":"k" "ts":1,"dur":1})", "a missing comma");
}

TEST(KinetoDamage, OneQuoteTooManyCostsOneEvent) {
  expect_skipped(kernel_text("quote \" inside", "1", "1"), "one unescaped quote");
}

TEST(KinetoDamage, ForeignBytesInANameAreReplaced) {
  const GpuTrace trace = with_one(kernel_text("caf\xe9", "5", "1"));
  ASSERT_EQ(trace.events.size(), 3u) << trace.file;
  EXPECT_EQ(name_of(trace, 1), "caf?");
  EXPECT_EQ(trace.read.damaged, 0);
}

TEST(KinetoDamage, ControlCharactersDoNoHarm) {
  const GpuTrace trace = with_one(kernel_text("a\tb\x01", "5", "1"));
  EXPECT_EQ(trace.events.size(), 3u);
}

TEST(KinetoDamage, NoNumbersInArgumentsThatNobodyReads) {
  const GpuTrace trace = with_one(
      R"({"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1,"dur":1,"args":{"device":0,"stream":7,"x":inf,"y":nan}})");
  EXPECT_EQ(trace.events.size(), 3u);
}

// Cut at every byte: never more than the event at the cut is lost.
TEST(KinetoDamage, CutAnywhere) {
  std::vector<std::string> events(6, kernel_text("k", "1", "1"));
  const std::string text = trace_text(events);
  const std::size_t first_end = text.find("}},") + 2;
  for (std::size_t size = first_end; size < text.size(); ++size) {
    const GpuTrace trace = parsed(text.substr(0, size), 256);
    std::size_t whole = 0;
    for (std::size_t at = text.find("}}"); at != std::string::npos && at + 2 <= size; at = text.find("}}", at + 2))
      ++whole;
    EXPECT_EQ(trace.events.size(), whole) << size << trace.file;
    EXPECT_TRUE(trace.read.cut) << size;
  }
}

std::string refusal(const std::string& text) {
  const auto trace = parse_kineto(text, "t.json");
  return trace ? "accepted" : trace.error().message;
}

TEST(KinetoDamage, SomethingElseIsNamed) {
  EXPECT_THAT(refusal(""), HasSubstr("t.json: is empty"));
  EXPECT_THAT(refusal("[[-1, 1, 37888, 7], [2, 3]]"), HasSubstr("memory timeline"));
  EXPECT_THAT(refusal(R"({"schema":"1.0","nodes":[{"id":1}]})"), HasSubstr("execution trace"));
  EXPECT_THAT(refusal(R"({"segments":[],"device_traces":[]})"), HasSubstr("memory snapshot"));
  EXPECT_THAT(refusal(R"({"hidden_size":12})"), HasSubstr("'hidden_size'"));
  EXPECT_THAT(refusal("\x0a\x12protobuf"), HasSubstr("byte 0x12"));
  EXPECT_THAT(refusal(R"([{"a":1},{"b":2}])"), HasSubstr("no event that can be read"));
}

TEST(KinetoDamage, NoEventsAtAllIsATrace) {
  EXPECT_EQ(refusal(R"({"traceEvents":[]})"), "accepted");
}

}  // namespace
}  // namespace moetax
