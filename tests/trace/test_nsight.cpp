// Exports of Nsight Systems, of several versions and not quite whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <cstdio>
#include <fstream>

#include "moetax/trace/nsight.h"

namespace moetax {
namespace {

using testing::HasSubstr;

std::string database(const std::string& name, const std::string& sql) {
  const std::string path = testing::TempDir() + "moetax_" + name + ".sqlite";
  std::remove(path.c_str());
  sqlite3* db = nullptr;
  sqlite3_open(path.c_str(), &db);
  char* error = nullptr;
  sqlite3_exec(db, sql.c_str(), nullptr, nullptr, &error);
  EXPECT_EQ(error, nullptr) << error;
  sqlite3_close(db);
  return path;
}

const std::string kStrings =
    "CREATE TABLE StringIds (id INTEGER, value TEXT); INSERT INTO StringIds VALUES (1,'ncclDevKernel_SendRecv(int)'),"
    "(2,'cudaLaunchKernel'),(3,'ncclDevKernel_SendRecv'); CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);";

TEST(Nsight, WorkOfAllDevices) {
  const auto trace = read_nsight(database(
      "two", kStrings +
                 "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, \"end\" INTEGER, deviceId INTEGER, streamId "
                 "INTEGER, correlationId INTEGER, shortName INTEGER, demangledName INTEGER);"
                 "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10,20,0,7,5,3,1),(12,20,1,15,6,3,1);"
                 "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, \"end\" INTEGER, deviceId INTEGER, streamId "
                 "INTEGER);"
                 "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (30,40,1,9);"
                 "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, \"end\" INTEGER, correlationId INTEGER, "
                 "nameId INTEGER);"
                 "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (1,2,5,2);"
                 "CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT); INSERT INTO TARGET_INFO_GPU VALUES (0,'G');"));
  ASSERT_TRUE(trace) << trace.error().message;
  ASSERT_EQ(trace->events.size(), 4u);
  EXPECT_EQ(trace->names[trace->events[0].name], "ncclDevKernel_SendRecv(int)");
  EXPECT_EQ(trace->events[1].start_ns, 12);
  EXPECT_EQ(trace->tracks[trace->events[1].track].device, 1);
  EXPECT_EQ(trace->tracks[trace->events[1].track].stream, 15);
  EXPECT_EQ(trace->events[2].kind(), GpuEventKind::kCopy);
  EXPECT_EQ(trace->events[3].kind(), GpuEventKind::kRuntime);
  EXPECT_EQ(trace->events[3].correlation, 5u);
  EXPECT_EQ(trace->devices, std::vector<std::string>{"G"});
}

TEST(Nsight, ColumnsThatAVersionLeavesOutAndRowsThatMakeNoSense) {
  const auto trace = read_nsight(database(
      "old",
      kStrings +
          "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, \"end\" INTEGER, deviceId INTEGER, streamId "
          "INTEGER, shortName INTEGER);"
          "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10,20,0,7,3),(10,5,0,7,3),('x',20,0,7,3),(1,2,0,7,99);"));
  ASSERT_TRUE(trace) << trace.error().message;
  ASSERT_EQ(trace->events.size(), 2u);
  EXPECT_EQ(trace->names[trace->events[0].name], "ncclDevKernel_SendRecv");
  EXPECT_EQ(trace->names[trace->events[1].name], "kernel");
  EXPECT_EQ(trace->read.damaged, 2);
}

TEST(Nsight, OtherDatabasesAndDamagedOnes) {
  const auto other = read_nsight(database("other", "CREATE TABLE t (a INTEGER);"));
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error().message, HasSubstr("none of the tables"));
  const std::string path = testing::TempDir() + "moetax_noise.sqlite";
  std::ofstream(path) << "SQLite format 3" << std::string(3000, '\x7f');
  EXPECT_TRUE(is_sqlite(path));
  EXPECT_FALSE(read_nsight(path));
  EXPECT_FALSE(read_nsight(path + ".none"));
  EXPECT_FALSE(is_sqlite(path + ".none"));
}

}  // namespace
}  // namespace moetax
