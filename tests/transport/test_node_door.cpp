#include "transport/node_door.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <thread>

namespace moetax {
namespace {

Deadline patience() {
  return Deadline::in_seconds(60);
}

TEST(NodeDoor, HandsADescriptorOfTheSameFileToThoseWhoKnock) {
  auto door = NodeDoor::open();
  ASSERT_TRUE(door) << door.error().message;
  const int file = memfd_create("door", MFD_CLOEXEC);
  ASSERT_EQ(pwrite(file, "home", 4, 0), 4);
  const NodeKnock first(door->name()), second(door->name());
  ASSERT_TRUE(first.heard() && second.heard());
  std::thread host([&] { door->hand_out(file, 2, patience()); });
  for (const NodeKnock* knock : {&first, &second}) {
    const int got = knock->take(patience());
    ASSERT_GE(got, 0);
    EXPECT_NE(got, file);
    char text[4] = {};
    EXPECT_EQ(pread(got, text, 4, 0), 4);
    EXPECT_EQ(std::string(text, 4), "home");
    close(got);
  }
  host.join();
  close(file);
}

TEST(NodeDoor, ThereIsNoneOfAnotherNameAndNoneOnceItIsGone) {
  std::string name;
  {
    auto door = NodeDoor::open();
    ASSERT_TRUE(door);
    name = door->name();
    EXPECT_FALSE(NodeKnock(name + "0").heard());
    EXPECT_TRUE(NodeKnock(name).heard());
  }
  EXPECT_FALSE(NodeKnock(name).heard());
}

TEST(NodeDoor, NamesAreNeverTheSame) {
  auto one = NodeDoor::open();
  auto other = NodeDoor::open();
  ASSERT_TRUE(one && other);
  EXPECT_NE(one->name(), other->name());
}

TEST(NodeDoor, AVisitorWhomNobodyAnswersGivesUpAtTheDeadline) {
  auto door = NodeDoor::open();
  ASSERT_TRUE(door);
  const NodeKnock knock(door->name());
  EXPECT_EQ(knock.take(Deadline::in_seconds(0.02)), -1);
  door->hand_out(-1, 2, Deadline::in_seconds(0.02));  // one knocked, with nothing to be had
}

}  // namespace
}  // namespace moetax
