// Loads of models of unknown size, from counts and routes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "moetax/route/load_file.h"

namespace moetax {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(LoadCounts, CountsAddUpAndWhatIsNoRowIsLeftOut) {
  const auto layers = count_expert_load("layer_id,expert_id,count\n2,1,5\n2,1,2\n0,3,1\nx\n1,-1,3\n1,0,nan\n");
  ASSERT_EQ(layers.size(), 2U);
  EXPECT_EQ(layers[0].layer, 0);
  EXPECT_THAT(layers[0].counts, ElementsAre(0, 0, 0, 1));
  EXPECT_THAT(layers[1].counts, ElementsAre(0, 7, 0, 0));
}

TEST(LoadCounts, RoutesOfBothKinds) {
  const auto listed = count_expert_load("layer_id,expert_ids\n3,5 1\n3,5 2\n");
  ASSERT_EQ(listed.size(), 1U);
  EXPECT_THAT(listed[0].counts, ElementsAre(0, 1, 1, 0, 0, 2));
  const auto tabs = count_expert_load("1\t2\t\t0.5\t0.5\n1\t0\t\t0.5\t0.5\t\n");
  ASSERT_EQ(tabs.size(), 1U);
  EXPECT_THAT(tabs[0].counts, ElementsAre(1, 2, 1));
}

TEST(LoadCounts, OtherTextsHaveNone) {
  for (const char* text : {"", "hello", "a,b,c\n1,2,3\n", "layer_id,expert_id\n1,2\n", "layer_id,expert_ids\n"}) {
    EXPECT_THAT(count_expert_load(text), IsEmpty()) << text;
  }
}

}  // namespace
}  // namespace moetax
