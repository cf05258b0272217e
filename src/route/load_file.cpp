#include "moetax/route/load_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <fstream>
#include <map>
#include <numeric>
#include <span>
#include <utility>

#include "moetax/base/file.h"
#include "moetax/base/random.h"
#include "moetax/base/text.h"
#include "moetax/route/router.h"

namespace moetax {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{1} << 31;
constexpr int kMaxLayer = 9999;
constexpr double kMaxCount = 1e15;  // sums stay whole numbers in a double

Unexpected bad_line(const std::string& origin, int line, const std::string& what) {
  return fail(ErrorCode::kBadInput, fmt::format("{}:{}: {}", origin, line, what));
}

Unexpected bad_file(const std::string& origin, const std::string& what) {
  return fail(ErrorCode::kBadInput, fmt::format("{}: {}", origin, what));
}

std::string_view without_byte_order_mark(std::string_view text) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  return text;
}

bool starts_with_letter(std::string_view text) {
  return !text.empty() && ((text[0] >= 'a' && text[0] <= 'z') || (text[0] >= 'A' && text[0] <= 'Z'));
}

// llama.cpp's log of chosen experts: the header "layer_id,expert_ids", then "3,52 40 85".
bool is_llama_cpp_log(std::string_view line) {
  if (line.find("expert_ids") != std::string_view::npos) return true;
  const std::size_t comma = line.find(',');
  return comma != std::string_view::npos && trim(line.substr(comma + 1)).find(' ') != std::string_view::npos &&
         line.find(',', comma + 1) == std::string_view::npos && parse_number<int>(line.substr(0, comma));
}
constexpr const char* kLlamaCppLog = "is a llama.cpp log of chosen experts (layer_id,expert_ids)";

// ---- counts ---------------------------------------------------------------------------------------------------------

constexpr const char* kCountsExpected = "expected layer_id,expert_id,count";

// Takes a counts file line by line.
class CountsReader {
 public:
  explicit CountsReader(int experts) : experts_(experts), named_(static_cast<std::size_t>(experts), 0) {}

  // What is wrong with the line, empty when nothing is.
  std::string take(std::string_view line) {
    if (is_llama_cpp_log(line)) return std::string(kLlamaCppLog) + ", not a table of counts";
    if (line.find('\t') != std::string_view::npos)
      return "holds routes (tabs), not counts; " + std::string(kCountsExpected);
    std::vector<std::string_view> fields;
    Splitter parts(line, ',');
    while (const auto part = parts.next()) fields.push_back(trim(*part));
    return starts_with_letter(fields[0]) ? take_header(fields) : take_row(fields);
  }

  // What is wrong with the file as a whole.
  std::string finish() const {
    if (layers_.empty()) return fmt::format("no rows; {}", kCountsExpected);
    const auto unnamed = std::count(named_.begin(), named_.end(), 0);
    if (largest_ < experts_ - 1 && unnamed * 4 > experts_) {
      return fmt::format("holds {} experts, the model has {}", largest_ + 1, experts_);
    }
    for (const auto& [layer, counts] : layers_) {
      const bool positive = std::any_of(counts.begin(), counts.end(), [](double count) { return count > 0; });
      if (!positive) return fmt::format("layer {}: every count is zero", layer);
    }
    return {};
  }

  std::vector<ExpertCounts> layers() && {
    std::vector<ExpertCounts> sorted;
    for (auto& [layer, counts] : layers_) sorted.push_back({layer, std::move(counts)});
    return sorted;
  }

 private:
  std::string take_header(const std::vector<std::string_view>& fields) {
    constexpr std::array<std::string_view, 3> kNames = {"layer_id", "expert_id", "count"};
    for (std::size_t i = 0; i < kNames.size(); ++i) {
      const auto it = std::find(fields.begin(), fields.end(), kNames[i]);
      if (it == fields.end()) return fmt::format("no column {}; {}", kNames[i], kCountsExpected);
      column_[i] = static_cast<std::size_t>(it - fields.begin());
    }
    columns_ = fields.size();
    return {};
  }

  std::string take_row(const std::vector<std::string_view>& fields) {
    if (fields.size() != columns_) {
      return fmt::format("{} field{}, expected {}", fields.size(), fields.size() == 1 ? "" : "s",
                         columns_ == 3 ? "layer_id,expert_id,count" : fmt::format("{} as in the header", columns_));
    }
    const auto layer = parse_number<int>(fields[column_[0]]);
    const auto expert = parse_number<int>(fields[column_[1]]);
    const auto count = parse_number<double>(fields[column_[2]]);
    if (!layer || *layer < 0 || *layer > kMaxLayer)
      return fmt::format("layer_id is not a number from 0 to {}", kMaxLayer);
    if (!expert || *expert < 0) return "expert_id is not a number from 0 up";
    if (*expert >= experts_)
      return fmt::format("expert {}, the model has {} (0 to {})", *expert, experts_, experts_ - 1);
    if (!count || !(*count >= 0 && *count <= kMaxCount))
      return fmt::format("count is not a number from 0 to {:g}", kMaxCount);
    auto& counts = layers_[*layer];
    counts.resize(static_cast<std::size_t>(experts_));
    counts[static_cast<std::size_t>(*expert)] += *count;
    named_[static_cast<std::size_t>(*expert)] = 1;
    largest_ = std::max(largest_, *expert);
    return {};
  }

  int experts_;
  std::array<std::size_t, 3> column_ = {0, 1, 2};  // where layer, expert and count stand
  std::size_t columns_ = 3;
  std::map<int, std::vector<double>> layers_;
  std::vector<char> named_;
  int largest_ = -1;
};

// ---- routes ---------------------------------------------------------------------------------------------------------

// Takes a routes file line by line.
class RoutesReader {
 public:
  RoutesReader(int experts, int topk) : experts_(experts), topk_(static_cast<std::size_t>(topk)) {}

  std::string take(std::string_view line) {
    if (is_llama_cpp_log(line)) {
      return std::string(kLlamaCppLog) + "; keep the lines of one layer, without the layer, ids separated by tabs";
    }
    const std::size_t first = expert.size(), first_weight = weight.size();
    Splitter fields(line, '\t');
    bool ids = true;
    for (auto field = fields.next(); field; field = fields.next()) {
      if (trim(*field).empty()) {
        if (std::exchange(ids, false)) continue;  // the field between ids and weights
        if (!fields.next()) break;                // a tab at the end of the line
        return "an empty field among the weights";
      }
      std::string problem = ids ? take_id(*field) : take_weight(*field);
      if (!problem.empty()) return problem;
    }
    return check_line(first, first_weight);
  }

  std::string finish() const {
    if (expert.empty()) return fmt::format("no tokens; expected {} expert ids a token, separated by tabs", topk_);
    if (same_width_ && width_ != topk_ && width_ <= kMaxTopK) {
      return fmt::format("every line holds {} expert ids, the model chooses {}", width_, topk_);
    }
    return {};
  }

  std::vector<std::int32_t> expert;
  std::vector<float> weight;

 private:
  std::string take_id(std::string_view field) {
    const auto id = parse_number<std::int32_t>(field);
    if (!id) return fmt::format("not an expert id; expected {} ids a token, separated by tabs", topk_);
    if (*id < 0 || *id >= experts_)
      return fmt::format("expert {}, the model has {} (0 to {})", *id, experts_, experts_ - 1);
    expert.push_back(*id);
    return {};
  }

  std::string take_weight(std::string_view field) {
    const auto value = parse_number<float>(field);
    if (!value || !std::isfinite(*value)) return "a weight that is not a finite number";
    weight.push_back(*value);
    return {};
  }

  std::string check_line(std::size_t first, std::size_t first_weight) {
    const std::size_t ids = expert.size() - first, weights = weight.size() - first_weight;
    if (ids == 0 || ids % topk_ != 0) return fmt::format("{} expert ids, expected {} for each token", ids, topk_);
    if (weights != 0 && weights != ids) return fmt::format("{} weights for {} expert ids", weights, ids);
    if ((weight.size() != expert.size()) && !weight.empty()) return "weights on some lines only";
    same_width_ = same_width_ && (first == 0 || ids == width_);
    width_ = ids;
    for (std::size_t token = first; token < expert.size(); token += topk_) {
      const auto begin = expert.begin() + static_cast<std::ptrdiff_t>(token);
      for (auto it = begin; it != begin + static_cast<std::ptrdiff_t>(topk_); ++it) {
        if (std::find(begin, it, *it) != it) return fmt::format("expert {} twice in one token", *it);
      }
    }
    return {};
  }

  int experts_;
  std::size_t topk_;
  std::size_t width_ = 0;  // ids on the last line
  bool same_width_ = true;
};

// Hands every line that is neither blank nor a comment to `reader`; "file:line: problem" for the first it refuses.
template <class Reader>
Result<void> read_lines(std::string_view text, const std::string& origin, Reader& reader) {
  Splitter lines(without_byte_order_mark(text), '\n');
  int number = 0;
  while (const auto line = lines.next()) {
    ++number;
    const std::string_view shown = trim(*line);
    if (shown.empty() || shown.front() == '#') continue;
    const std::string problem = reader.take(*line);
    if (!problem.empty()) return bad_line(origin, number, problem);
  }
  const std::string problem = reader.finish();
  if (!problem.empty()) return bad_file(origin, problem);
  return {};
}

// ---- sampling -------------------------------------------------------------------------------------------------------

constexpr std::uint64_t kOne = std::uint64_t{1} << 40;  // certainty, as a fixed-point number

// Probability with which each expert is among the K: proportional to its count, capped at one.
std::vector<double> inclusion_probabilities(const std::vector<double>& counts, int topk) {
  const std::size_t experts = counts.size();
  const double largest = *std::max_element(counts.begin(), counts.end());
  std::vector<std::size_t> hottest(experts);
  std::iota(hottest.begin(), hottest.end(), std::size_t{0});
  std::stable_sort(hottest.begin(), hottest.end(), [&](std::size_t a, std::size_t b) { return counts[a] > counts[b]; });

  // rest[i]: what the experts from the i-th hottest on have together, in units of the largest count.
  std::vector<double> rest(experts + 1, 0.0);
  const auto share = [&](std::size_t i) { return largest > 0 ? counts[hottest[i]] / largest : 0.0; };
  for (std::size_t i = experts; i-- > 0;) rest[i] = rest[i + 1] + share(i);

  std::vector<double> probability(experts, 1.0);
  std::size_t certain = 0;
  while (certain < static_cast<std::size_t>(topk) && share(certain) > 0 &&
         static_cast<double>(static_cast<std::size_t>(topk) - certain) * share(certain) >= rest[certain]) {
    ++certain;
  }
  const auto left = static_cast<double>(static_cast<std::size_t>(topk) - certain);
  for (std::size_t i = certain; i < experts; ++i) {
    const double even = left / static_cast<double>(experts - certain);
    probability[hottest[i]] = rest[certain] > 0 ? left * share(i) / rest[certain] : even;
  }
  return probability;
}

// The probabilities as whole multiples of 1 / kOne that sum to exactly topk, so that every draw finds K experts.
std::vector<std::uint64_t> to_fixed_point(const std::vector<double>& probability, int topk) {
  std::vector<std::uint64_t> fixed;
  auto missing = static_cast<std::int64_t>(kOne) * topk;
  for (const double p : probability) {
    fixed.push_back(std::min(kOne, static_cast<std::uint64_t>(p * static_cast<double>(kOne))));
    missing -= static_cast<std::int64_t>(fixed.back());
  }
  // Rounding down leaves less than one unit an expert; each takes one back until none is missing.
  for (std::size_t e = 0; missing > 0; e = (e + 1) % fixed.size()) {
    if (fixed[e] == 0 || fixed[e] == kOne) continue;
    ++fixed[e];
    --missing;
  }
  return fixed;
}

struct Candidate {
  std::uint64_t probability;
  std::int32_t expert;
};

// Lays the candidates in a random order on a line, each as long as its probability, and takes those under the K points
// start, start + 1, ... : no expert is longer than 1, so none is taken twice, and each is taken with its probability
// whatever the order. The order is shuffled only as far as it is looked at.
void draw(std::span<Candidate> candidates, const RandomStream& random, std::span<std::int32_t> chosen) {
  std::uint64_t point = random.bits(0) & (kOne - 1);
  std::uint64_t covered = 0, bits = 0;
  std::size_t found = 0;
  for (std::size_t i = 0; found < chosen.size(); ++i) {
    bits = i % 4 == 0 ? random.bits(1 + i / 4) : bits >> 16;
    std::swap(candidates[i], candidates[i + (((bits & 0xffff) * (candidates.size() - i)) >> 16)]);
    covered += candidates[i].probability;
    if (covered <= point) continue;
    chosen[found++] = candidates[i].expert;
    point += kOne;
  }
  std::sort(chosen.begin(), chosen.end());
}

}  // namespace

Result<std::vector<ExpertCounts>> parse_expert_counts(std::string_view text, const std::string& origin, int experts) {
  assert(experts > 0);
  CountsReader reader(experts);
  MOETAX_TRY(read_lines(text, origin, reader));
  return std::move(reader).layers();
}

Result<std::vector<ExpertCounts>> read_expert_counts(const std::string& path, int experts) {
  MOETAX_ASSIGN(const std::string text, read_text_file(path, kMaxFileBytes));
  return parse_expert_counts(text, path, experts);
}

Result<ExpertCounts> pick_layer(const std::vector<ExpertCounts>& layers, std::optional<int> layer,
                                const std::string& path) {
  if (!layer && layers.size() == 1) return layers.front();
  std::vector<int> ids;
  for (const ExpertCounts& candidate : layers) {
    if (layer && candidate.layer == *layer) return candidate;
    ids.push_back(candidate.layer);
  }
  const std::string wanted = layer ? fmt::format("no layer {}", *layer) : std::string("several layers, name one");
  constexpr std::size_t kListed = 64;
  const bool all = ids.size() <= kListed;
  return bad_file(path, all ? fmt::format("{}; it has {}", wanted, fmt::join(ids, ", "))
                            : fmt::format("{}; it has {} from {} to {}", wanted, ids.size(), ids.front(), ids.back()));
}

Result<RoutingTrace> RoutingTrace::parse(std::string_view text, const std::string& origin, int experts, int topk) {
  assert(experts > 0 && topk > 0);
  RoutesReader reader(experts, topk);
  MOETAX_TRY(read_lines(text, origin, reader));
  RoutingTrace trace;
  trace.topk_ = topk;
  trace.expert_ = std::move(reader.expert);
  trace.weight_ = std::move(reader.weight);
  return trace;
}

Result<RoutingTrace> RoutingTrace::read(const std::string& path, int experts, int topk) {
  MOETAX_ASSIGN(const std::string text, read_text_file(path, kMaxFileBytes));
  return parse(text, path, experts, topk);
}

void RoutingTrace::fill(std::int64_t first, std::int64_t count, RoutingTable& out) const {
  assert(first >= 0 && count >= 0 && tokens() > 0);
  out.resize(count, topk_);
  for (std::int64_t t = 0; t < count; ++t) {
    const auto at = static_cast<std::ptrdiff_t>((first + t) % tokens() * topk_);
    std::copy_n(expert_.begin() + at, topk_, out.expert().row(t));
    if (weight_.empty()) {
      std::fill_n(out.weight().row(t), topk_, 1.0f / static_cast<float>(topk_));
    } else {
      std::copy_n(weight_.begin() + at, topk_, out.weight().row(t));
    }
  }
}

Result<void> append_routing(const std::string& path, const RoutingTable& table) {
  fmt::memory_buffer text;
  for (std::int64_t t = 0; t < table.tokens(); ++t) {
    fmt::format_to(std::back_inserter(text), "{}\t\t{}\n", fmt::join(table.expert().row_span(t), "\t"),
                   fmt::join(table.weight().row_span(t), "\t"));  // {} of a float is the shortest that reads back
  }
  std::ofstream file(path, std::ios::app | std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (!file) return bad_file(path, "cannot be written");
  return {};
}

void sample_routing(const std::vector<double>& counts, int topk, std::uint64_t seed, std::int64_t first,
                    std::int64_t count, RoutingTable& out) {
  assert(topk >= 1 && static_cast<std::size_t>(topk) <= counts.size() && counts.size() <= kMaxExperts);
  const auto fixed = to_fixed_point(inclusion_probabilities(counts, topk), topk);
  std::vector<Candidate> candidates;
  for (std::size_t e = 0; e < fixed.size(); ++e) {
    if (fixed[e] > 0) candidates.push_back({fixed[e], static_cast<std::int32_t>(e)});
  }
  out.resize(count, topk);
  std::vector<Candidate> shuffled(candidates.size());
  for (std::int64_t t = 0; t < count; ++t) {
    shuffled = candidates;  // every token starts from the same order, so that it depends on nothing but its number
    draw(shuffled, RandomStream(seed, static_cast<std::uint64_t>(first + t)), out.expert().row_span(t));
    std::fill_n(out.weight().row(t), topk, 1.0f / static_cast<float>(topk));
  }
}

std::vector<double> zipf_counts(int experts, double s, std::uint64_t seed) {
  assert(experts > 0);
  const auto size = static_cast<std::size_t>(experts);
  std::vector<std::size_t> hottest(size);
  std::iota(hottest.begin(), hottest.end(), std::size_t{0});
  const RandomStream random(seed, 0x7a697066);  // a stream of its own, away from the tokens'
  for (std::size_t i = size; i-- > 1;) std::swap(hottest[i], hottest[random.bits(i) % (i + 1)]);
  std::vector<double> counts(size);
  for (std::size_t i = 0; i < size; ++i) counts[hottest[i]] = std::pow(static_cast<double>(i + 1), -s);
  return counts;
}

}  // namespace moetax
