// Reads layers.txt and finds the includes of a source tree that break it.
#pragma once

#include <filesystem>
#include <istream>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace moetax::project {

struct Layers {
  std::map<std::string, int> level;                      // by room
  std::map<std::string, std::set<std::string>> allowed;  // by room: itself, what it lists, and what those list
  std::vector<std::string> errors;                       // of the table itself, one line each
};

// Lines are "level room : rooms it may use"; rooms come after the rooms they use, on a higher level.
Layers parse_layers(std::istream& text);

// One line per include under root/include/moetax and root/src that breaks the table, "file:line: what is wrong". A room
// may include public headers of allowed rooms ("moetax/<room>/...") and its own private ones ("<room>/...").
std::vector<std::string> find_violations(const Layers& layers, const std::filesystem::path& root);

}  // namespace moetax::project
