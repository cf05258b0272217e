// Recordings: complete or not there.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "cli/routing_record.h"
#include "moetax/route/load_file.h"

namespace moetax::cli {
namespace {

namespace fs = std::filesystem;

RoutingTable table_of(std::int64_t tokens, int topk) {
  RoutingTable table;
  table.resize(tokens, topk);
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (int k = 0; k < topk; ++k) {
      table.expert()(t, k) = static_cast<std::int32_t>((t + k) % 8);
      table.weight()(t, k) = 1.0f / static_cast<float>(t + k + 1);
    }
  }
  return table;
}

class Recording : public ::testing::Test {
 protected:
  Recording() { fs::create_directories(folder_); }
  ~Recording() override { fs::remove_all(folder_); }

  std::string text() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  fs::path folder_ = ::testing::TempDir() + "moetax_recording";
  std::string path_ = folder_ / "routes.txt";
};

TEST_F(Recording, ReplacesAnEarlierOneAndReadsBack) {
  std::ofstream(path_) << "an earlier one, and longer than the next\n";
  const std::vector<RoutingTable> tables = {table_of(3, 2), table_of(0, 2), table_of(2, 2)};
  ASSERT_TRUE(check_recordable(path_));
  ASSERT_TRUE(write_recording(path_, tables));
  const auto trace = RoutingTrace::read(path_, 8, 2);
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_EQ(trace->tokens(), 5);
  RoutingTable back;
  trace->fill(3, 1, back);
  EXPECT_EQ(back.weight()(0, 1), tables[2].weight()(0, 1));
  EXPECT_EQ(files(), 1u);
}

TEST_F(Recording, ThatFailsLeavesTheEarlierOneAlone) {
  std::ofstream(path_) << "an earlier one\n";
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{1000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Result<void> written = write_recording(path_, std::vector{table_of(10, 2), table_of(1000, 2)});
  setrlimit(RLIMIT_FSIZE, &before);
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, ErrorCode::kBadInput);
  EXPECT_NE(written.error().message.find("routes.txt"), std::string::npos) << written.error().message;
  EXPECT_EQ(text(), "an earlier one\n");
  EXPECT_EQ(files(), 1u);
}

TEST_F(Recording, FollowsALink) {
  const fs::path target = folder_ / "target.txt";
  fs::create_symlink("target.txt", path_);
  ASSERT_TRUE(write_recording(path_, std::vector{table_of(1, 2)}));
  EXPECT_TRUE(fs::is_symlink(path_));
  EXPECT_TRUE(fs::is_regular_file(target));
  EXPECT_NE(text(), "");
}

TEST_F(Recording, IsRefusedWhereNoneCanBe) {
  for (const std::string& path : {std::string("/dev/null"), folder_.string(), std::string("/nonexistent/routes.txt")}) {
    const Result<void> checked = check_recordable(path);
    ASSERT_FALSE(checked) << path;
    EXPECT_EQ(checked.error().code, ErrorCode::kUsage);
    EXPECT_NE(checked.error().message.find(path), std::string::npos);
  }
  EXPECT_EQ(files(), 0u);
}

}  // namespace
}  // namespace moetax::cli
