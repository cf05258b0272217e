#include "moetax/trace/nsight_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <unordered_map>

#include "moetax/base/text.h"

namespace moetax {
namespace {

constexpr std::size_t kMaxKernels = std::size_t{1} << 20;

struct Unit {
  std::string_view name;
  double ns;
};
// The micro sign and the Greek letter mu are two characters.
constexpr std::array kUnits = {Unit{"ns", 1},   Unit{"us", 1e3}, Unit{"\xc2\xb5s", 1e3}, Unit{"\xce\xbcs", 1e3},
                               Unit{"ms", 1e6}, Unit{"s", 1e9},  Unit{"min", 60e9}};

std::optional<double> unit_ns(std::string_view name) {
  for (const Unit& unit : kUnits) {
    if (unit.name == name) return unit.ns;
  }
  return std::nullopt;
}

// Fields of one line; a quoted one may hold commas, and quotes as two of them.
std::vector<std::string> fields_of(std::string_view line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"') {
      fields.back() += line[++i];
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  return fields;
}

std::string without_commas(std::string_view text) {
  std::string digits;
  for (const char c : text) {
    if (c != ',') digits += c;
  }
  return digits;
}

struct Columns {
  std::size_t total = SIZE_MAX, instances = SIZE_MAX, name = SIZE_MAX;
  double total_ns = 0;    // of the header's unit; 0: in the cells
  bool launches = false;  // a row is one launch
  std::array<std::size_t, 3> grid = {SIZE_MAX, SIZE_MAX, SIZE_MAX}, block = {SIZE_MAX, SIZE_MAX, SIZE_MAX};
};

std::optional<Columns> columns_of(std::string_view line) {
  const auto fields = fields_of(line);
  Columns columns;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const std::string_view field = trim(fields[i]);
    const bool launch = field.starts_with("Duration");
    if (field.starts_with("Total Time") || launch) {
      columns.total = i;
      columns.launches = launch;
      const std::size_t open = field.find('('), close = field.find(')');
      if (open < close) columns.total_ns = unit_ns(field.substr(open + 1, close - open - 1)).value_or(0);
    } else if (field == "Instances") {
      columns.instances = i;
    } else if (field == "Name" || field == "Kernel Name") {
      columns.name = i;
    } else if (field.size() == 4 && (field.starts_with("Grd") || field.starts_with("Blk")) && field[3] >= 'X' &&
               field[3] <= 'Z') {
      (field[0] == 'G' ? columns.grid : columns.block)[static_cast<std::size_t>(field[3] - 'X')] = i;
    }
  }
  const bool shaped = !columns.launches || columns.grid[0] != SIZE_MAX;
  return columns.total != SIZE_MAX && columns.name != SIZE_MAX && shaped ? std::optional(columns) : std::nullopt;
}

constexpr std::int64_t kMostExtent = std::int64_t{1} << 31;

std::int64_t whole_at(const std::vector<std::string>& fields, std::size_t column) {
  const auto value = column < fields.size() ? parse_number<std::int64_t>(without_commas(fields[column])) : std::nullopt;
  return value && *value > 0 ? *value : 0;
}

// Of three extents; 0 where one is not said.
std::int64_t product_at(const std::vector<std::string>& fields, const std::array<std::size_t, 3>& columns) {
  std::int64_t product = 1;
  for (const std::size_t column : columns) {
    product = std::min(product * std::min(whole_at(fields, column), kMostExtent), kMostExtent);
  }
  return product;
}

// "71.065 s", or a number of the header's unit.
std::optional<double> time_ns(std::string_view cell, double header_ns) {
  cell = trim(cell);
  const std::size_t blank = cell.find(' ');
  const auto number = parse_number<double>(without_commas(cell.substr(0, blank)));
  const auto unit = blank == std::string_view::npos ? std::optional(header_ns) : unit_ns(trim(cell.substr(blank + 1)));
  if (!number || !unit || *unit <= 0 || !std::isfinite(*number) || *number < 0 || *number > 1e15) return std::nullopt;
  return *number * *unit;
}

}  // namespace

Result<NsightTable> parse_nsight_table(std::string_view text, const std::string& origin) {
  std::optional<Columns> columns;
  NsightTable table;
  std::unordered_map<std::string, std::size_t> known;
  Splitter lines(text, '\n');
  while (const auto line = lines.next()) {
    if (!columns) {
      columns = columns_of(*line);
      continue;
    }
    if (trim(*line).empty()) continue;
    const auto fields = fields_of(trim(*line));
    const auto ns = columns->total < fields.size() ? time_ns(fields[columns->total], columns->total_ns) : std::nullopt;
    if (!ns || columns->name >= fields.size() || table.kernels.size() >= kMaxKernels) {
      ++table.skipped;
      continue;
    }
    // Launches of one kernel become one row.
    const auto [it, added] = known.try_emplace(fields[columns->name], table.kernels.size());
    if (added || !columns->launches) {
      it->second = table.kernels.size();
      table.kernels.emplace_back().name = fields[columns->name];
    }
    KernelTotal& kernel = table.kernels[it->second];
    kernel.ns += *ns;
    kernel.instances += columns->launches ? 1 : whole_at(fields, columns->instances);
    if (const std::int64_t blocks = product_at(fields, columns->grid); blocks > kernel.blocks) {
      kernel.blocks = blocks;
      kernel.threads = product_at(fields, columns->block);
    }
  }
  if (!table.kernels.empty()) return table;
  return fail(ErrorCode::kBadInput,
              fmt::format("{}: no table of kernels; expected columns \"Total Time\" and \"Name\", and rows", origin));
}

bool looks_like_nsight_table(std::string_view text) {
  Splitter lines(text.substr(0, 4096), '\n');
  for (int i = 0; i < 8; ++i) {
    const auto line = lines.next();
    if (!line) return false;
    if (columns_of(*line)) return true;
  }
  return false;
}

}  // namespace moetax
