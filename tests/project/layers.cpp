#include "project/layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

namespace moetax::project {
namespace {

namespace fs = std::filesystem;

struct Place {
  std::string room;
  std::string text;  // "file:line"
  bool is_public;    // a header under include/
};

void check_public(const Layers& layers, const Place& place, const std::string& target, std::vector<std::string>& out) {
  if (!layers.level.contains(target)) {
    out.push_back(fmt::format("{}: includes room '{}', which is not in layers.txt", place.text, target));
  } else if (!layers.allowed.at(place.room).contains(target)) {
    out.push_back(fmt::format("{}: room '{}' may not include room '{}'", place.text, place.room, target));
  }
}

void check_private(const Layers& layers, const Place& place, const std::string& target, std::vector<std::string>& out) {
  if (!layers.level.contains(target)) return;  // another library's folder
  if (place.is_public) {
    out.push_back(fmt::format("{}: a public header includes a private one", place.text));
  } else if (target != place.room) {
    out.push_back(fmt::format("{}: includes a private header of room '{}'", place.text, target));
  }
}

// Takes `prefix` and the blanks after it off the front of `text`, if it is there.
bool consume(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  return true;
}

// The path between the quotes or angle brackets, if `line` is an include.
std::optional<std::string_view> included_path(std::string_view line) {
  consume(line, line.substr(0, line.find_first_not_of(" \t")));
  if (!consume(line, "#") || !consume(line, "include")) return std::nullopt;
  if (!line.starts_with('"') && !line.starts_with('<')) return std::nullopt;
  return line.substr(1, line.find_first_of("\">", 1) - 1);
}

void scan_file(const Layers& layers, const fs::path& root, const fs::path& file, Place place,
               std::vector<std::string>& out) {
  std::ifstream in(file);
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    auto path = included_path(line);
    if (!path) continue;
    const bool is_public = consume(*path, "moetax/");
    const std::size_t slash = path->find('/');
    if (slash == std::string_view::npos) continue;  // belongs to no room
    place.text = fmt::format("{}:{}", fs::relative(file, root).string(), number);
    (is_public ? check_public : check_private)(layers, place, std::string(path->substr(0, slash)), out);
  }
}

void scan_tree(const Layers& layers, const fs::path& root, const fs::path& tree, bool is_public,
               std::vector<std::string>& out) {
  if (!fs::exists(tree)) return;
  for (const auto& entry : fs::recursive_directory_iterator(tree)) {
    const fs::path inside = fs::relative(entry.path(), tree);
    const auto extension = entry.path().extension();
    if (!inside.has_parent_path() || (extension != ".h" && extension != ".cpp")) continue;
    const std::string room = inside.begin()->string();
    if (!layers.level.contains(room)) {
      out.push_back(fmt::format("{}: room '{}' is not in layers.txt", fs::relative(entry.path(), root).string(), room));
      continue;
    }
    scan_file(layers, root, entry.path(), {room, "", is_public}, out);
  }
}

}  // namespace

Layers parse_layers(std::istream& text) {
  Layers layers;
  std::string line;
  while (std::getline(text, line)) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream fields(line);
    int level = 0;
    std::string room, colon, dep;
    if (!(fields >> level >> room >> colon) || colon != ":") {
      layers.errors.push_back(fmt::format("expected 'level room : rooms', got '{}'", line));
      continue;
    }
    layers.level[room] = level;
    auto& allowed = layers.allowed[room];
    allowed.insert(room);
    while (fields >> dep) {
      if (!layers.level.contains(dep) || layers.level[dep] >= level) {
        layers.errors.push_back(
            fmt::format("'{}' may only use rooms of lower levels listed before it, not '{}'", room, dep));
      } else {
        allowed.insert(layers.allowed[dep].begin(), layers.allowed[dep].end());
      }
    }
  }
  return layers;
}

std::vector<std::string> find_violations(const Layers& layers, const fs::path& root) {
  std::vector<std::string> out;
  scan_tree(layers, root, root / "include" / "moetax", true, out);
  scan_tree(layers, root, root / "src", false, out);
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace moetax::project
