#include "machine/nvidia_smi_words.h"

#include <algorithm>
#include <array>
#include <utility>

#include "moetax/base/text.h"

namespace moetax {
namespace {

constexpr int kMaxNvlinks = 999;
constexpr double kNvlinkGbs = 25;

// Older drivers write SOC for SYS and PSB for a switch on the board of the two.
constexpr std::array<std::pair<std::string_view, LinkKind>, 7> kClasses{{{"PIX", LinkKind::kPix},
                                                                         {"PSB", LinkKind::kPix},
                                                                         {"PXB", LinkKind::kPxb},
                                                                         {"PHB", LinkKind::kPhb},
                                                                         {"NODE", LinkKind::kNode},
                                                                         {"SYS", LinkKind::kSys},
                                                                         {"SOC", LinkKind::kSys}}};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

std::size_t digits_at_front(std::string_view text) {
  return static_cast<std::size_t>(std::find_if_not(text.begin(), text.end(), is_digit) - text.begin());
}

Link nvlinks(int lanes) {
  return {LinkKind::kNvlink, lanes, 0, lanes * kNvlinkGbs,
          "25 GB/s each way per NVLink of generations 2 to 4; generation 5 has twice as much"};
}

// Takes one cell off the front of `rest`.
std::optional<MatrixCell> take_cell(std::string_view& rest) {
  if (rest.starts_with('X')) {
    rest.remove_prefix(1);
    return MatrixCell{.self = true, .link = {}};
  }
  if (rest.starts_with("NV")) {
    const std::size_t digits = digits_at_front(rest.substr(2));
    const auto lanes = parse_number<int>(rest.substr(2, digits));
    if (!lanes || *lanes < 1 || *lanes > kMaxNvlinks) return std::nullopt;
    rest.remove_prefix(2 + digits);
    return MatrixCell{.self = false, .link = nvlinks(*lanes)};
  }
  for (const auto& [name, kind] : kClasses) {
    if (!rest.starts_with(name)) continue;
    rest.remove_prefix(name.size());
    return MatrixCell{.self = false, .link = {.kind = kind}};
  }
  return std::nullopt;
}

// "GPU12", "NIC3", "mlx5_0", "mlx5_bond_0": the names whose ends can be told when they have grown together.
std::string_view take_known_name(std::string_view& rest) {
  for (const std::string_view prefix : {"GPU", "NIC", "mlx5_bond_", "mlx5_"}) {
    if (!rest.starts_with(prefix)) continue;
    const std::size_t digits = digits_at_front(rest.substr(prefix.size()));
    if (digits == 0) continue;
    const std::string_view name = rest.substr(0, prefix.size() + digits);
    rest.remove_prefix(name.size());
    return name;
  }
  return {};
}

bool name_character(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-' || c == '.' ||
         c == ':';
}

}  // namespace

std::optional<std::vector<MatrixCell>> cells_of(const Word& word) {
  std::vector<MatrixCell> cells;
  std::string_view rest = word.text;
  while (!rest.empty()) {
    const std::size_t at = word.at + (word.text.size() - rest.size());
    auto cell = take_cell(rest);
    if (!cell) return std::nullopt;
    cell->at = at;
    cells.push_back(*cell);
  }
  return cells;
}

std::optional<int> numbered(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  const std::string_view number = name.substr(prefix.size());
  if (number.empty() || digits_at_front(number) != number.size()) return std::nullopt;
  return parse_number<int>(number);
}

std::vector<std::string> device_names(std::string_view word) {
  std::vector<std::string> names;
  std::string_view rest = word;
  while (!rest.empty()) {
    const std::string_view name = take_known_name(rest);
    if (name.empty()) break;
    names.emplace_back(name);
  }
  if (rest.empty()) return names;
  if (!std::all_of(word.begin(), word.end(), name_character)) return {};
  if (std::none_of(word.begin(), word.end(), is_digit) || is_digit(word[0])) return {};
  if (cells_of({word, 0})) return {};
  return {std::string(word)};
}

}  // namespace moetax
