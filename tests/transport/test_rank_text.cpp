#include <gtest/gtest.h>

#include "transport/rank_text.h"

namespace moetax {
namespace {

TEST(RankText, FormatsRanges) {
  EXPECT_EQ(format_ranks(std::vector<Rank>{3}), "rank 3");
  EXPECT_EQ(format_ranks(std::vector<Rank>{0, 1}), "ranks 0-1");
  EXPECT_EQ(format_ranks(std::vector<Rank>{0, 1, 2, 5, 7, 8}), "ranks 0-2, 5, 7-8");
  EXPECT_EQ(format_ranks(std::vector<Rank>{1, 3}), "ranks 1, 3");
}

TEST(RankText, GroupsRanksThatAgreeAndNamesTheFirstThatDiffers) {
  const Error error =
      disagreement("the layer", std::vector<Rank>{4, 5, 6}, std::vector<std::string>{"H=2048", "H=4096", "H=2048"});
  EXPECT_EQ(error.code, ErrorCode::kPeerFailed);
  EXPECT_EQ(error.message, "ranks disagree on the layer: ranks 4, 6 have H=2048, rank 5 has H=4096");
  EXPECT_EQ(error.rank, 5);
}

}  // namespace
}  // namespace moetax
