// Every include of the library respects layers.txt, and the check can tell when one does not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "project/layers.h"

namespace moetax::project {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Layers layers_from(const std::string& text) {
  std::istringstream in(text);
  return parse_layers(in);
}

// A small source tree in a temporary folder of its own.
class PlantedTree : public testing::Test {
 protected:
  PlantedTree() : root_(fs::path(testing::TempDir()) / ("moetax_layers_" + std::to_string(getpid()))) {}
  ~PlantedTree() override { fs::remove_all(root_); }

  void write(const fs::path& file, const std::string& text) {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }

  fs::path root_;
  Layers layers_ = layers_from("0 base :\n1 wire : base\n2 route : base\n3 exchange : wire route\n");
};

TEST(Layers, TheLibraryRespectsThem) {
  std::ifstream file(MOETAX_SOURCE_DIR "/layers.txt");
  ASSERT_TRUE(file);
  const Layers layers = parse_layers(file);
  EXPECT_THAT(layers.errors, IsEmpty());
  EXPECT_TRUE(layers.level.contains("base"));
  EXPECT_THAT(find_violations(layers, MOETAX_SOURCE_DIR), IsEmpty());
}

TEST(Layers, WhatAListedRoomListsComesWithIt) {
  const Layers layers = layers_from("# comment\n0 base :\n1 wire : base\n2 exchange : wire\n");
  EXPECT_THAT(layers.errors, IsEmpty());
  EXPECT_THAT(layers.allowed.at("exchange"), ElementsAre("base", "exchange", "wire"));
}

TEST(Layers, AFaultyTableIsReported) {
  EXPECT_THAT(layers_from("0 base\n").errors, ElementsAre(HasSubstr("expected 'level room : rooms'")));
  EXPECT_THAT(layers_from("0 base : wire\n1 wire :\n").errors, ElementsAre(HasSubstr("not 'wire'")));
  EXPECT_THAT(layers_from("1 a :\n1 b : a\n").errors, ElementsAre(HasSubstr("not 'a'")));
}

TEST_F(PlantedTree, AllowedIncludesPass) {
  write("include/moetax/version.h", "#include \"moetax/exchange/x.h\"\n");  // belongs to no room
  write("include/moetax/exchange/x.h",
        "#include <vector>\n#include \"moetax/base/b.h\"\n#include \"moetax/version.h\"\n");
  write("src/exchange/x.cpp",
        "#include \"exchange/private.h\"\n#include <hwy/highway.h>\n#include \"moetax/wire/w.h\"\n");
  EXPECT_THAT(find_violations(layers_, root_), IsEmpty());
}

TEST_F(PlantedTree, AnIncludeUpwardsIsFoundWithItsPlace) {
  write("src/route/r.cpp", "#include \"moetax/base/b.h\"\n\n  #  include <moetax/exchange/x.h>\n");
  EXPECT_THAT(find_violations(layers_, root_),
              ElementsAre("src/route/r.cpp:3: room 'route' may not include room 'exchange'"));
}

TEST_F(PlantedTree, AnIncludeSidewaysIsFound) {
  write("include/moetax/route/r.h", "#include \"moetax/wire/w.h\"\n");
  EXPECT_THAT(find_violations(layers_, root_), ElementsAre(HasSubstr("room 'route' may not include room 'wire'")));
}

TEST_F(PlantedTree, PrivateHeadersStayInTheirRoom) {
  write("src/exchange/x.cpp", "#include \"route/kernel.h\"\n");
  write("include/moetax/route/r.h", "#include \"route/kernel.h\"\n");
  EXPECT_THAT(find_violations(layers_, root_), ElementsAre(HasSubstr("a public header includes a private one"),
                                                           HasSubstr("includes a private header of room 'route'")));
}

TEST_F(PlantedTree, UnknownRoomsAreFound) {
  write("src/attic/a.cpp", "int x;\n");
  write("src/route/r.cpp", "#include \"moetax/attic/a.h\"\n");
  EXPECT_THAT(find_violations(layers_, root_), ElementsAre(HasSubstr("src/attic/a.cpp: room 'attic' is not in"),
                                                           HasSubstr("includes room 'attic', which is not in")));
}

}  // namespace
}  // namespace moetax::project
