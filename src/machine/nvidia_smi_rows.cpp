#include "machine/nvidia_smi_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "moetax/base/text.h"

namespace moetax {
namespace {

constexpr std::size_t kSlip = 2;  // how far from its column's beginning a cell may stand; " X " is one off

std::vector<std::string_view> tab_fields(std::string_view line) {
  std::vector<std::string_view> fields;
  Splitter splitter(line, '\t');
  while (const auto field = splitter.next()) fields.push_back(trim(*field));
  return fields;
}

Device device_named(const std::string& name, int nics_before) {
  if (const auto gpu = numbered(name, "GPU")) {
    return {.kind = DeviceKind::kGpu, .index = *gpu, .name = name, .vendor = "NVIDIA"};
  }
  if (const auto nic = numbered(name, "NIC")) return {DeviceKind::kNic, *nic, name};
  return {DeviceKind::kNic, nics_before, name, name};  // the column has the adapter's own name
}

// GPUs first, then NICs, none twice.
bool plausible(const std::vector<Device>& devices) {
  std::set<std::string_view> names;
  for (const Device& device : devices) {
    if (!names.insert(device.name).second) return false;
  }
  return !devices.empty() && devices.size() <= static_cast<std::size_t>(Topology::kMaxDevices) &&
         devices.front().kind == DeviceKind::kGpu &&
         std::is_partitioned(devices.begin(), devices.end(),
                             [](const Device& device) { return device.kind == DeviceKind::kGpu; });
}

bool one_tab_per_column(std::string_view line, const std::vector<Device>& devices) {
  std::vector<std::string_view> fields = tab_fields(line);
  if (!fields.empty() && fields.front().empty()) fields.erase(fields.begin());
  if (line.find('\t') == std::string_view::npos || fields.size() < devices.size()) return false;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (fields[i] != devices[i].name) return false;
  }
  return true;
}

std::string_view affinity_column(std::string_view word) {
  for (const std::string_view name : {"CPU", "NUMA", "GPU"}) {
    if (word == name) return name;
  }
  return {};
}

std::optional<int> column_named(const MatrixHeader& header, std::string_view name) {
  for (std::size_t i = 0; i < header.devices.size(); ++i) {
    if (header.devices[i].name == name) return static_cast<int>(i);
  }
  return std::nullopt;
}

// Only the device itself is X.
bool self_in_place(const MatrixRow& row) {
  for (std::size_t i = 0; i < row.cells.size(); ++i) {
    if (row.cells[i] && row.cells[i]->self != (static_cast<int>(i) == row.device)) return false;
  }
  return true;
}

// Lays cells over the columns they stand below. False when one stands too far from any, or two below the same.
bool place_by_position(const MatrixHeader& header, const std::vector<MatrixCell>& cells, MatrixRow& row) {
  std::size_t next = 0;
  for (const MatrixCell& cell : cells) {
    while (next < header.at.size() && header.at[next] + kSlip < cell.at) ++next;
    if (next == header.at.size() || cell.at + kSlip < header.at[next]) return false;
    row.cells[next++] = cell;
  }
  return self_in_place(row);
}

bool place_in_order(const std::vector<MatrixCell>& cells, MatrixRow& row) {
  std::copy(cells.begin(), cells.end(), row.cells.begin());
  return self_in_place(row);
}

void place_cells(const MatrixHeader& header, const std::vector<MatrixCell>& cells, bool tabs, MatrixRow& row) {
  const std::size_t columns = header.devices.size();
  const auto self = static_cast<std::size_t>(row.device);
  const std::string have =
      fmt::format("row {} has {} cells for {} columns", header.devices[self].name, cells.size(), columns);
  if (cells.size() > columns) {
    row.trouble = have + "; skipped";
    return;
  }
  if (cells.size() == columns) {
    if (place_in_order(cells, row)) return;
    row.trouble = fmt::format("row {} does not have its X below its own name; skipped", header.devices[self].name);
  } else if (!tabs && place_by_position(header, cells, row)) {
    row.trouble = have + "; the others are unknown";
    return;
  } else if (row.cells.assign(columns, std::nullopt); cells.size() > self && cells[self].self) {
    // What stands before the X is complete; behind it a cell is missing, and which one cannot be told.
    if (place_in_order({cells.begin(), cells.begin() + row.device + 1}, row)) {
      row.trouble = have + "; those behind its X are unknown";
      return;
    }
  } else {
    row.trouble = have + "; skipped";
  }
  row.cells.assign(columns, std::nullopt);
}

bool is_cpu_list(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789,-") == std::string_view::npos;
}

// What follows the cells: CPUs, NUMA node, the GPU's own NUMA node. Each may be blank; then the others stand below
// their columns' names, which words between blanks are held against.
void read_affinity(const MatrixHeader& header, const std::vector<Word>& rest, bool tabs, MatrixRow& row) {
  constexpr std::array<std::string_view, 3> kInOrder{"CPU", "NUMA", "GPU"};
  auto from = header.affinity.begin();
  for (std::size_t i = 0; i < rest.size() && i < kInOrder.size(); ++i) {
    std::string_view column = kInOrder[i];
    if (!tabs && from != header.affinity.end()) {
      const auto distance = [at = rest[i].at](const MatrixHeader::Affinity& to) {
        return std::max(to.at, at) - std::min(to.at, at);
      };
      const auto nearest = std::min_element(from, header.affinity.end(),
                                            [&](const auto& a, const auto& b) { return distance(a) < distance(b); });
      column = nearest->name;
      from = nearest + 1;
    }
    if (column == "CPU" && is_cpu_list(rest[i].text)) row.cpus = rest[i].text;
    if (column != "NUMA") continue;
    const auto node = parse_number<int>(rest[i].text);
    if (node && *node >= 0) row.numa_node = *node;
  }
}

// One field per column, blank ones included. False when fields have grown together or hold something else.
bool read_by_tabs(const MatrixHeader& header, std::string_view line, MatrixRow& row) {
  const std::vector<std::string_view> fields = tab_fields(line);
  const std::size_t columns = header.devices.size();
  std::size_t at = 1;
  for (; at < fields.size() && at <= columns; ++at) {
    if (fields[at].empty() || fields[at] == "N/A") continue;
    const auto cell = cells_of({fields[at], 0});
    if (!cell || cell->size() != 1) return false;
    row.cells[at - 1] = cell->front();
  }
  if (!self_in_place(row)) return false;
  const auto known =
      std::count_if(row.cells.begin(), row.cells.end(), [](const auto& cell) { return cell.has_value(); });
  if (known < static_cast<std::ptrdiff_t>(columns)) {
    row.trouble = fmt::format("row {} has {} cells for {} columns; the others are unknown",
                              header.devices[static_cast<std::size_t>(row.device)].name, known, columns);
  }
  std::vector<Word> rest;
  for (; at < fields.size() && rest.size() < 2; ++at) rest.push_back({fields[at], 0});
  read_affinity(header, rest, true, row);
  return true;
}

void read_by_words(const MatrixHeader& header, std::vector<Word> words, bool tabs, MatrixRow& row) {
  std::vector<MatrixCell> cells;
  auto word = words.begin();
  for (; word != words.end(); ++word) {
    const auto more = cells_of(*word);
    if (!more) break;
    cells.insert(cells.end(), more->begin(), more->end());
  }
  row.cells.assign(header.devices.size(), std::nullopt);
  place_cells(header, cells, tabs, row);
  read_affinity(header, {word, words.end()}, tabs, row);
}

// The row's device, from its first word; cells that have grown on to the name stay in `words`.
std::optional<int> take_row_name(const MatrixHeader& header, std::vector<Word>& words) {
  const Word first = words.front();
  if (const auto column = column_named(header, first.text)) {
    words.erase(words.begin());
    return column;
  }
  for (std::size_t i = 0; i < header.devices.size(); ++i) {
    const std::string& name = header.devices[i].name;
    if (!first.text.starts_with(name)) continue;
    const Word rest{first.text.substr(name.size()), first.at + name.size()};
    if (!cells_of(rest)) continue;
    words.front() = rest;
    return static_cast<int>(i);
  }
  return std::nullopt;
}

}  // namespace

std::optional<MatrixHeader> matrix_header(std::string_view line, int number) {
  MatrixHeader header;
  header.line = number;
  bool devices_end = false;
  int nics = 0;
  for (const Word& word : words_of(line)) {
    const std::string_view affinity = affinity_column(word.text);
    devices_end = devices_end || !affinity.empty();
    if (devices_end) {
      // "NUMA" of "GPU NUMA ID" begins no column.
      const bool inside = !header.affinity.empty() && header.affinity.back().name == "GPU";
      if (!affinity.empty() && !inside) header.affinity.push_back({affinity, word.at});
      continue;
    }
    const std::vector<std::string> names = device_names(word.text);
    if (names.empty() || header.devices.size() > static_cast<std::size_t>(Topology::kMaxDevices)) return std::nullopt;
    std::size_t at = word.at;
    for (const std::string& name : names) {
      header.devices.push_back(device_named(name, nics));
      nics += header.devices.back().kind == DeviceKind::kNic;
      header.at.push_back(at);
      at += name.size();
    }
  }
  if (!plausible(header.devices) || (header.devices.size() < 2 && !devices_end)) return std::nullopt;
  header.tabs = one_tab_per_column(line, header.devices);
  return header;
}

std::optional<MatrixRow> matrix_row(const MatrixHeader& header, std::string_view line) {
  std::vector<Word> words = words_of(line);
  if (words.empty()) return std::nullopt;
  const auto device = take_row_name(header, words);
  if (!device) return std::nullopt;
  MatrixRow row;
  row.device = *device;
  row.cells.resize(header.devices.size());
  const bool tabs = line.find('\t') != std::string_view::npos;
  if (header.tabs && tabs && read_by_tabs(header, line, row)) return row;
  read_by_words(header, std::move(words), tabs || header.tabs, row);
  return row;
}

}  // namespace moetax
