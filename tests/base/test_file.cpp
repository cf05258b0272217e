#include "moetax/base/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
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

// zlib's and zstd's own programs pack here.
TEST_F(File, EndsOfPackedFilesAreThoseOfTheText) {
  std::string text;
  for (int i = 0; i < 500'000; ++i) text += std::to_string(i) + "\n";
  hold(text);
  for (const std::string& packer : {std::string("gzip -kf"), std::string("zstd -qkf")}) {
    const std::string packed = path_ + (packer.starts_with("gzip") ? ".gz" : ".zst");
    if (std::system((packer + " '" + path_ + "' 2>/dev/null").c_str()) != 0) continue;
    const auto whole = read_text_ends(packed, std::size_t{64} << 20);
    ASSERT_TRUE(whole);
    EXPECT_TRUE(whole->text == text);
    EXPECT_EQ(whole->trouble, "");
    const auto ends = read_text_ends(packed, 4000);
    ASSERT_TRUE(ends);
    EXPECT_EQ(ends->left_out_bytes + ends->text.size(), text.size());
    EXPECT_LE(ends->text.size(), 4000U);
    EXPECT_TRUE(text.starts_with(ends->text.substr(0, 1900)) && text.ends_with(ends->text.substr(2000)));
    std::filesystem::resize_file(packed, std::filesystem::file_size(packed) / 2);
    const auto cut = read_text_ends(packed, std::size_t{64} << 20);
    ASSERT_TRUE(cut);
    EXPECT_THAT(cut->trouble, HasSubstr("too early"));
    EXPECT_TRUE(text.starts_with(cut->text.substr(0, 1000)));
    std::filesystem::remove(packed);
  }
}

}  // namespace
}  // namespace moetax
