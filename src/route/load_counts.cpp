// Loads of models that nobody told us the size of.
#include <algorithm>
#include <cctype>
#include <map>

#include "moetax/base/text.h"
#include "moetax/route/load_file.h"

namespace moetax {
namespace {

constexpr int kMostExperts = 65536;
constexpr std::size_t kMostLayers = 4096;

class LoadCounter {
 public:
  // "layer_id,expert_id,count".
  void take_count(std::string_view line) {
    Splitter fields(line, ',');
    const auto layer = number<int>(fields.next()), expert = number<int>(fields.next());
    const auto count = number<double>(fields.next());
    if (layer && expert && count && *count >= 0 && *count < 1e15) add(*layer, *expert, *count);
  }

  // "layer_id,52 40 85".
  void take_routes(std::string_view line) {
    Splitter fields(line, ',');
    const auto layer = number<int>(fields.next());
    const auto list = fields.next();
    if (!layer || !list) return;
    Splitter ids(trim(*list), ' ');
    while (const auto id = ids.next()) {
      if (const auto expert = number<int>(id)) add(*layer, *expert, 1);
    }
  }

  // Ids parted by tabs, weights behind an empty field.
  void take_ids(std::string_view line) {
    Splitter fields(line, '\t');
    while (const auto field = fields.next()) {
      const auto expert = number<int>(field);
      if (!expert) return;
      add(0, *expert, 1);
    }
  }

  std::vector<ExpertCounts> result() {
    std::vector<ExpertCounts> layers;
    for (auto& [layer, counts] : counts_) {
      counts.resize(static_cast<std::size_t>(experts_), 0);
      layers.push_back({layer, std::move(counts)});
    }
    return layers;
  }

 private:
  template <class T>
  static std::optional<T> number(std::optional<std::string_view> field) {
    return field ? parse_number<T>(*field) : std::nullopt;
  }

  void add(int layer, int expert, double count) {
    if (expert < 0 || expert >= kMostExperts || (counts_.size() >= kMostLayers && counts_.count(layer) == 0)) return;
    experts_ = std::max(experts_, expert + 1);
    std::vector<double>& counts = counts_[layer];
    if (counts.size() <= static_cast<std::size_t>(expert)) counts.resize(static_cast<std::size_t>(expert) + 1, 0);
    counts[static_cast<std::size_t>(expert)] += count;
  }

  int experts_ = 0;
  std::map<int, std::vector<double>> counts_;
};

bool is_ids(std::string_view line) {
  const auto fits = [](char c) {
    return std::isdigit(static_cast<unsigned char>(c)) || c == '\t' || c == '.' || c == '\r';
  };
  return line.find('\t') != std::string_view::npos && std::all_of(line.begin(), line.end(), fits);
}

}  // namespace

std::vector<ExpertCounts> count_expert_load(std::string_view text) {
  const std::string_view head = text.substr(0, text.find('\n'));
  const auto named = [&](std::string_view column) { return head.find(column) != std::string_view::npos; };
  const bool routes = named("expert_ids"), counts = !routes && named("expert_id") && named("count");
  LoadCounter counter;
  if (!routes && !counts && !is_ids(head)) return {};
  Splitter lines(text, '\n');
  while (const auto line = lines.next()) {
    if (routes) {
      counter.take_routes(*line);
    } else if (counts) {
      counter.take_count(*line);
    } else {
      counter.take_ids(*line);
    }
  }
  return counter.result();
}

}  // namespace moetax
