#include "moetax/base/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace moetax {
namespace {

using testing::HasSubstr;

class File : public testing::Test {
 protected:
  explicit File() : path_(testing::TempDir() + "moetax_file_test.txt") {}
  ~File() override { std::filesystem::remove(path_); }
  void hold(const std::string& text) const { std::ofstream(path_, std::ios::binary) << text; }

  std::string path_;
};

TEST_F(File, WholeAndInPiecesHoldTheSame) {
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += std::to_string(i) + "\n";
  for (const std::string& content : {std::string(), std::string("a"), text}) {
    hold(content);
    std::string joined;
    std::size_t longest = 0;
    ASSERT_TRUE(read_text_pieces(path_, [&](std::string_view piece) {
      joined += piece;
      longest = std::max(longest, piece.size());
    }));
    EXPECT_EQ(joined, content);
    EXPECT_LE(longest, std::size_t{256} << 10);
    const auto whole = read_text_file(path_, content.size());
    ASSERT_TRUE(whole);
    EXPECT_EQ(*whole, content);
  }
}

TEST_F(File, WhatCannotBeReadIsNamed) {
  const auto pieces = [](const std::string& path) { return read_text_pieces(path, [](std::string_view) {}); };
  hold("\x1f\x8b...");
  EXPECT_THAT(pieces(path_).error().message, HasSubstr("gzip"));
  EXPECT_THAT(read_text_file(path_, 100).error().message, HasSubstr("gzip"));
  EXPECT_THAT(pieces(testing::TempDir()).error().message, HasSubstr("is a directory"));
  EXPECT_THAT(pieces("/nonexistent/file").error().message, HasSubstr("/nonexistent/file: cannot be read"));
  hold("12345");
  EXPECT_THAT(read_text_file(path_, 4).error().message, HasSubstr("more than the 4 bytes"));
}

}  // namespace
}  // namespace moetax
