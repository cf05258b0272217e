#include <gtest/gtest.h>

#include "moetax/base/node_ways.h"
#include "moetax/base/statistics.h"

namespace moetax::test {
namespace {

TEST(Statistics, Median) {
  EXPECT_EQ(median(std::vector<double>{3}), 3);
  EXPECT_EQ(median(std::vector<double>{9, 1, 5}), 5);
  EXPECT_EQ(median(std::vector<double>{9, 1, 5, 7}), 7);
}

TEST(Statistics, WeightedMedianIsThatOfAllOccurrences) {
  EXPECT_EQ(median(std::vector<Weighted>{{4, 1}}), 4);
  EXPECT_EQ(median(std::vector<Weighted>{{9, 3}, {1, 2}}), 9);
  EXPECT_EQ(median(std::vector<Weighted>{{9, 2}, {1, 3}}), 1);
  EXPECT_EQ(median(std::vector<Weighted>{{9, 2}, {1, 2}}), 9);
  EXPECT_EQ(median(std::vector<Weighted>{{9, 0}, {1, 1}}), 1);
}

TEST(NodeWays, RingGoesTheShorterWay) {
  EXPECT_EQ(ring_distance(0, 1, 5), 1);
  EXPECT_EQ(ring_distance(0, 4, 5), -1);
  EXPECT_EQ(ring_distance(0, 2, 4), 2);
  EXPECT_EQ(ring_distance(1, 3, 4), -2);
}

TEST(NodeWays, MeshesAreAsSquareAsTheyCanBe) {
  EXPECT_EQ(mesh_columns(1), 1);
  EXPECT_EQ(mesh_columns(7), 7);
  EXPECT_EQ(mesh_columns(12), 4);
  EXPECT_EQ(mesh_columns(16), 4);
}

}  // namespace
}  // namespace moetax::test
