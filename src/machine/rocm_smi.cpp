// Reader of `rocm-smi --showtopo`: matrices of weights, hops and link types between GPUs, and their NUMA nodes.
//
// The driver's weight of a way adds up 15 per XGMI link, and for PCIe 20 from a GPU to its NUMA node at either end plus
// the NUMA distance between the two: 40 within a node, more across. Hops are 1 for some ways over several XGMI links,
// so weights count.
#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "machine/nvidia_smi_words.h"
#include "machine/topology_readers.h"
#include "moetax/base/text.h"

namespace moetax {
namespace {

constexpr int kXgmiWeight = 15;
constexpr int kMostXgmiHops = 4;
constexpr int kSameNodeWeight = 40;
constexpr int kSameNodeHops = 2;
constexpr std::size_t kMaxLinks = std::size_t{1} << 20;  // of all machines of a file together

enum Matrix : std::uint8_t { kWeight, kHops, kType, kMatrices };
constexpr std::array<std::pair<std::string_view, Matrix>, 3> kTitles{
    {{"Weight between", kWeight}, {"Hops between", kHops}, {"Link Type between", kType}}};

std::optional<Matrix> title_of(std::string_view line) {
  for (const auto& [title, matrix] : kTitles) {
    if (line.find(title) != std::string_view::npos) return matrix;
  }
  return std::nullopt;
}

std::optional<int> gpu_number(std::string_view name) {
  const auto gpu = numbered(name, "GPU");
  return gpu ? gpu : numbered(name, "card");
}

// What the three matrices say of one pair; negative where they say nothing.
struct Pair {
  int weight = -1;
  int hops = -1;
  enum class Type : std::uint8_t { kNone, kXgmi, kPcie } type = Type::kNone;
};

Link xgmi(const Pair& pair) {
  const bool whole = pair.weight > 0 && pair.weight % kXgmiWeight == 0;
  return {.kind = LinkKind::kXgmi, .hops = whole ? pair.weight / kXgmiWeight : std::max(pair.hops, 0)};
}

Link link_of(const Pair& pair) {
  const bool xgmi_weight =
      pair.weight > 0 && pair.weight % kXgmiWeight == 0 && pair.weight / kXgmiWeight <= kMostXgmiHops;
  if (pair.type == Pair::Type::kXgmi || (pair.type == Pair::Type::kNone && xgmi_weight)) return xgmi(pair);
  if (pair.weight >= kSameNodeWeight) {
    return {.kind = pair.weight == kSameNodeWeight ? LinkKind::kNode : LinkKind::kSys};
  }
  if (pair.type == Pair::Type::kPcie && pair.weight < 0 && pair.hops >= kSameNodeHops) {
    return {.kind = pair.hops == kSameNodeHops ? LinkKind::kNode : LinkKind::kSys};
  }
  return {};
}

class RocmReader {
 public:
  void take(std::string_view raw, int number) {
    const std::string line = without_escapes(raw);
    if (const auto matrix = title_of(line)) return begin_matrix(*matrix, number);
    const std::vector<Word> words = words_of(line);
    if (words.empty() || line_ == 0) return;
    if (words.front().text.starts_with("GPU[")) return take_numa_node(words);
    if (matrix_ == kMatrices || !gpu_number(words.front().text)) return;
    if (words.size() > 1 && gpu_number(words[1].text)) return take_header(words);
    take_row(words, number);
  }

  std::vector<Topology> result() {
    finish();
    return std::move(machines_);
  }

 private:
  void begin_matrix(Matrix matrix, int number) {
    if (seen_[matrix]) finish();
    if (line_ == 0) line_ = number;
    seen_[matrix] = true;
    matrix_ = matrix;
    columns_.clear();
  }

  void take_header(const std::vector<Word>& words) {
    columns_.clear();
    for (const Word& word : words) {
      const auto gpu = gpu_number(word.text);
      if (!gpu || columns_.size() == static_cast<std::size_t>(Topology::kMaxDevices)) return columns_.clear();
      for (const int column : columns_) {
        if (column == *gpu) return columns_.clear();
      }
      columns_.push_back(*gpu);
    }
    if (gpus_.empty() && links_ + columns_.size() * columns_.size() <= kMaxLinks) {
      gpus_ = columns_;
      links_ += columns_.size() * columns_.size();
      pairs_.assign(gpus_.size() * gpus_.size(), {});
      numa_nodes_.assign(gpus_.size(), -1);
    }
    if (columns_ != gpus_) columns_.clear();
  }

  std::optional<std::size_t> position(int gpu) const {
    for (std::size_t i = 0; i < gpus_.size(); ++i) {
      if (gpus_[i] == gpu) return i;
    }
    return std::nullopt;
  }

  // A row counts when its own cell is 0; a shorter one up to where it was cut.
  void take_row(const std::vector<Word>& words, int number) {
    const auto row = position(*gpu_number(words.front().text));
    if (!row || columns_.empty()) return;
    const std::size_t cells = words.size() - 1;
    const bool self_is_zero = *row < cells && words[*row + 1].text == "0";
    if (cells > columns_.size() || !self_is_zero) {
      skipped_.push_back(
          {number, fmt::format("row GPU{} has {} cells for {} columns, or no 0 below its own name; skipped",
                               gpus_[*row], cells, columns_.size())});
      return;
    }
    if (cells < columns_.size()) {
      skipped_.push_back({number, fmt::format("row GPU{} has {} cells for {} columns; the others are unknown",
                                              gpus_[*row], cells, columns_.size())});
    }
    for (std::size_t column = 0; column < cells; ++column) {
      if (column == *row) continue;
      take_cell(pairs_[*row * gpus_.size() + column], words[column + 1].text);
      take_cell(pairs_[column * gpus_.size() + *row], words[column + 1].text);
    }
    rows_ = true;
  }

  void take_cell(Pair& pair, std::string_view cell) const {
    const auto value = parse_number<int>(cell);
    if (matrix_ == kWeight && value && *value > 0) pair.weight = std::max(pair.weight, *value);
    if (matrix_ == kHops && value && *value > 0) pair.hops = std::max(pair.hops, *value);
    if (matrix_ != kType) return;
    if (cell == "XGMI") pair.type = Pair::Type::kXgmi;
    if (cell == "PCIE") pair.type = Pair::Type::kPcie;
  }

  // "GPU[0]		: (Topology) Numa Node: 7"
  void take_numa_node(const std::vector<Word>& words) {
    std::string_view gpu = words.front().text.substr(4);
    gpu = gpu.substr(0, gpu.find(']'));
    const auto index = parse_number<int>(gpu);
    const auto at = index ? position(*index) : std::nullopt;
    const auto node = parse_number<int>(words.back().text);
    const bool is_node = words.size() >= 3 && words[words.size() - 2].text == "Node:";
    if (at && node && is_node && *node >= 0) numa_nodes_[*at] = *node;
  }

  void finish() {
    if (rows_) {
      std::vector<Device> devices;
      for (std::size_t i = 0; i < gpus_.size(); ++i) {
        devices.push_back({.kind = DeviceKind::kGpu,
                           .index = gpus_[i],
                           .name = fmt::format("GPU{}", gpus_[i]),
                           .numa_node = numa_nodes_[i],
                           .vendor = "AMD"});
      }
      Topology machine(TopologyFormat::kRocmSmi, line_, std::move(devices));
      for (int a = 0; a < machine.gpus(); ++a) {
        for (int b = a + 1; b < machine.gpus(); ++b) {
          machine.set_link(a, b,
                           link_of(pairs_[static_cast<std::size_t>(a) * gpus_.size() + static_cast<std::size_t>(b)]));
        }
      }
      for (auto& [line, why] : skipped_) machine.skip(line, std::move(why));
      machine.note_unknown_pairs();
      machines_.push_back(std::move(machine));
    }
    line_ = 0;
    matrix_ = kMatrices;
    seen_ = {};
    rows_ = false;
    gpus_.clear();
    skipped_.clear();
  }

  int line_ = 0;               // where this machine's first matrix begins; 0 before it
  Matrix matrix_ = kMatrices;  // the one being read
  std::array<bool, kMatrices> seen_{};
  bool rows_ = false;
  std::size_t links_ = 0;
  std::vector<int> gpus_, columns_, numa_nodes_;
  std::vector<Pair> pairs_;  // [gpus, gpus]
  std::vector<SkippedLine> skipped_;
  std::vector<Topology> machines_;
};

}  // namespace

std::vector<Topology> parse_rocm_smi(std::string_view text) {
  RocmReader reader;
  Splitter lines(text, '\n');
  int number = 0;
  while (const auto line = lines.next()) reader.take(*line, ++number);
  return reader.result();
}

}  // namespace moetax
