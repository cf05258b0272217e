// Times of traces as nanoseconds.
#include <gtest/gtest.h>

#include "trace/trace_time.h"

namespace moetax {
namespace {

TEST(TraceTime, WholeMicrosecondsAndNanosecondDigits) {
  EXPECT_EQ(microseconds_as_ns("0"), 0);
  EXPECT_EQ(microseconds_as_ns("12"), 12'000);
  EXPECT_EQ(microseconds_as_ns("4203669604595.407"), 4'203'669'604'595'407);
  EXPECT_EQ(microseconds_as_ns("1712195495519695.8"), 1'712'195'495'519'695'800);
  EXPECT_EQ(microseconds_as_ns("-2.5"), -2'500);
}

TEST(TraceTime, DigitsThatADoubleWouldLose) {
  EXPECT_EQ(microseconds_as_ns("\"1699529623106750.241\""), 1'699'529'623'106'750'241);
  EXPECT_EQ(microseconds_as_ns("1699529623106750241"), 1'699'529'623'106'750'241);  // can only be nanoseconds
}

TEST(TraceTime, RoundsBelowANanosecond) {
  EXPECT_EQ(microseconds_as_ns("1.0004"), 1'000);
  EXPECT_EQ(microseconds_as_ns("1.0005"), 1'001);
  EXPECT_EQ(microseconds_as_ns("1.9999"), 2'000);
  EXPECT_EQ(microseconds_as_ns("1.5e3"), 1'500'000);
}

TEST(TraceTime, WhatIsNoTime) {
  for (const char* text : {"", "\"\"", "inf", "NaN", "-", ".5", "1x", "1.2.3", "99999999999999999999",
                           "9300000000000000.5", "1e300", "null"}) {
    EXPECT_FALSE(microseconds_as_ns(text)) << text;
  }
}

}  // namespace
}  // namespace moetax
