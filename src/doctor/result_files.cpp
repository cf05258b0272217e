// Files that runs leave behind: expert loads and bills.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "doctor/facts.h"
#include "doctor/readers.h"
#include "moetax/base/text.h"

namespace moetax::doctor {
namespace {

using nlohmann::json;

constexpr int kMaxExperts = 65536;

Unexpected bad(const std::string& file, std::string_view what) {
  return fail(ErrorCode::kBadInput, fmt::format("{}: {}", file, what));
}

// Deep nesting is refused while parsing, before it costs anything.
json parse(std::string_view text) {
  constexpr int kMaxDepth = 32;
  bool deep = false;
  json parsed = json::parse(
      text,
      [&](int depth, json::parse_event_t, json&) {
        deep = deep || depth > kMaxDepth;
        return !deep;
      },
      false);
  return deep ? json(json::value_t::discarded) : parsed;
}

// The second number of each row, to know how many experts there are before the load is read.
struct Rows {
  int experts = 0;
  std::map<int, std::vector<char>> named;
};
Rows look_at_rows(std::string_view text) {
  Rows rows;
  Splitter lines(text, '\n');
  while (const auto line = lines.next()) {
    Splitter fields(*line, ',');
    const auto layer = fields.next(), expert = fields.next();
    if (!layer || !expert) continue;
    const auto layer_id = parse_number<int>(*layer), expert_id = parse_number<int>(*expert);
    if (!layer_id || !expert_id || *expert_id < 0 || *expert_id >= kMaxExperts) continue;
    rows.experts = std::max(rows.experts, *expert_id + 1);
    if (rows.named.size() > 4096) continue;
    auto& named = rows.named[*layer_id];
    if (named.size() <= static_cast<std::size_t>(*expert_id)) named.resize(static_cast<std::size_t>(*expert_id) + 1);
    named[static_cast<std::size_t>(*expert_id)] = 1;
  }
  return rows;
}

bool all_named(const Rows& rows) {
  return std::all_of(rows.named.begin(), rows.named.end(), [&](const auto& layer) {
    return std::count(layer.second.begin(), layer.second.end(), 1) == rows.experts;
  });
}

// Lines of chosen experts instead of counts.
bool is_routes(std::string_view text) {
  const std::string_view head = text.substr(0, text.find('\n'));
  return head.find("expert_ids") != std::string_view::npos || head.find('\t') != std::string_view::npos;
}

// {"weight": [[90, 132, ...], ...]}: one list a layer.
Result<LoadFacts> read_load_json(std::string_view text, const std::string& file) {
  const json parsed = parse(text);
  if (!parsed.is_object() || !parsed.contains("weight") || !parsed["weight"].is_array()) {
    return bad(file, "expected a JSON object with \"weight\", a list of loads for each layer");
  }
  LoadFacts load{file, 0, true, {}};
  for (const json& row : parsed["weight"]) {
    if (!row.is_array() || row.empty() || row.size() > kMaxExperts)
      return bad(file, "weight: expected lists of numbers");
    ExpertCounts layer{static_cast<int>(load.layers.size()), {}};
    for (const json& value : row) {
      if (!value.is_number() || !(value.get<double>() >= 0 && value.get<double>() < 1e15)) {
        return bad(file, "weight: expected numbers from 0 up");
      }
      layer.counts.push_back(value.get<double>());
    }
    if (!load.layers.empty() && layer.counts.size() != load.layers[0].counts.size()) {
      return bad(file, "weight: layers with different numbers of experts");
    }
    load.layers.push_back(std::move(layer));
  }
  if (load.layers.empty()) return bad(file, "weight: no layers");
  load.experts = static_cast<int>(load.layers[0].counts.size());
  return load;
}

double number_or(const json& object, const char* key, double fallback) {
  const auto it = object.find(key);
  return it != object.end() && it->is_number() ? it->get<double>() : fallback;
}
std::optional<double> maybe_number(const json& object, const char* key) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_number()) return std::nullopt;
  return it->get<double>();
}
// Ranks and the like; nonsense is -1.
int small_or(const json& object, const char* key, int fallback) {
  const double value = number_or(object, key, fallback);
  return value >= -1 && value < 10'000'000 ? static_cast<int>(value) : -1;
}
std::string text_or_empty(const json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : "";
}
const json& member(const json& object, const char* key) {
  static const json kNothing = json::object();
  const auto it = object.find(key);
  return it != object.end() && it->is_object() ? *it : kNothing;
}

void take_waits(const json& ranks, BillFacts& bill) {
  for (const json& rank : ranks) {
    if (!rank.is_object() || !rank.contains("waited_for") || !rank["waited_for"].is_array()) continue;
    for (const json& wait : rank["waited_for"]) {
      if (!wait.is_object()) continue;
      bill.waits.push_back({small_or(rank, "rank", 0), small_or(wait, "rank", -1), number_or(wait, "us", 0),
                            text_or_empty(wait, "cause"), text_or_empty(wait, "cause_text")});
    }
  }
}

void take_findings(const json& list, BillFacts& bill) {
  for (const json& item : list) {
    if (!item.is_object()) continue;
    Finding finding;
    finding.id = "bill-" + text_or_empty(item, "id");
    const std::string severity = text_or_empty(item, "severity");
    finding.severity = severity == "error"     ? Severity::kError
                       : severity == "warning" ? Severity::kWarning
                                               : Severity::kNote;
    finding.title = text_or_empty(item, "title");
    finding.cause = text_or_empty(item, "cause");
    finding.fix = text_or_empty(item, "fix");
    finding.evidence = {{bill.file, 0, text_or_empty(item, "evidence")}};
    finding.cost.us = maybe_number(item, "gain_us_estimate");
    finding.confidence = Confidence::kCertain;
    bill.findings.push_back(std::move(finding));
  }
}

}  // namespace

Result<LoadFacts> read_load(std::string_view text, const std::string& file, int experts_of_model) {
  if (trim(text.substr(0, 256)).starts_with("{")) return read_load_json(text, file);
  if (is_routes(text)) {
    auto layers = count_expert_load(text);
    if (layers.empty()) return bad(file, "no routes in it");
    const int largest = static_cast<int>(layers[0].counts.size()), all = std::max(largest, experts_of_model);
    bool each_chosen = true;
    for (ExpertCounts& layer : layers) {
      each_chosen = each_chosen && std::count(layer.counts.begin(), layer.counts.end(), 0.0) == 0;
      layer.counts.resize(static_cast<std::size_t>(all), 0);
    }
    return LoadFacts{file, all, experts_of_model >= largest || each_chosen, std::move(layers)};
  }
  const Rows rows = look_at_rows(text);
  const int experts = std::max(experts_of_model, rows.experts);
  if (experts == 0) return bad(file, "no rows layer_id,expert_id,count");
  MOETAX_ASSIGN(auto layers, parse_expert_counts(text, file, experts));
  return LoadFacts{file, experts, experts_of_model >= rows.experts || all_named(rows), std::move(layers)};
}

Result<BillFacts> read_bill(std::string_view text, const std::string& file) {
  const json parsed = parse(text);
  if (!parsed.is_object()) return bad(file, "not a bill: expected the JSON that moetax bench --json writes");
  BillFacts bill;
  bill.file = file;
  bill.step_us = number_or(member(parsed, "step_us"), "mean", 0);
  bill.tax_share = number_or(member(parsed, "tax"), "share", 0);
  bill.wait_us = maybe_number(member(parsed, "tax"), "wait_us");
  bill.rank_max_over_mean = maybe_number(member(parsed, "routing"), "rank_max_over_mean");
  bill.expert_max_over_mean = maybe_number(member(parsed, "routing"), "expert_max_over_mean");
  bill.compute_us = maybe_number(parsed, "compute_us");
  bill.exposed_us = maybe_number(parsed, "exposed_us");
  bill.hidden_us = maybe_number(parsed, "hidden_us");
  bill.from_traces = parsed.contains("sources") && parsed["sources"].is_array() && !parsed["sources"].empty();
  if (parsed.contains("ranks") && parsed["ranks"].is_array()) take_waits(parsed["ranks"], bill);
  if (parsed.contains("findings") && parsed["findings"].is_array()) take_findings(parsed["findings"], bill);
  return bill;
}

namespace {

// Ranks of one communicator that have started other numbers of collectives, the fewest and the most.
void take_counts(const json& communicator, const std::string& file, LogFacts& out) {
  if (!communicator.contains("ranks") || !communicator["ranks"].is_array()) return;
  std::map<double, int> ranks_of_count;
  for (const json& rank : communicator["ranks"]) {
    if (!rank.is_object() || !rank.contains("collective_counts")) continue;
    double count = 0;
    for (const auto& entry : member(rank, "collective_counts").items()) {
      if (entry.value().is_number()) count += entry.value().get<double>();
    }
    if (count >= 0 && count < 1e15) ++ranks_of_count[count];
  }
  if (ranks_of_count.size() < 2) return;
  for (const auto& [count, ranks] : {*ranks_of_count.begin(), *ranks_of_count.rbegin()}) {
    LogEvent event;
    event.kind = LogKind::kOperationCount;
    event.seq = static_cast<long long>(count);
    event.numbers = {static_cast<double>(ranks)};
    event.at = {file, 0,
                fmt::format("communicator {}: {} ranks have started {:.0f} collectives",
                            text_or_empty(communicator, "hash"), ranks, count)};
    out.events.push_back(std::move(event));
  }
}

}  // namespace

void read_ranks(std::string_view text, const std::string& file, LogFacts& out) {
  const json parsed = parse(text);
  if (!parsed.is_object() || !parsed.contains("communicators") || !parsed["communicators"].is_array()) return;
  constexpr std::size_t kMaxMissing = 1024;
  for (const json& communicator : parsed["communicators"]) {
    if (!communicator.is_object()) continue;
    take_counts(communicator, file, out);
    if (!communicator.contains("missing_ranks")) continue;
    const json& missing = communicator["missing_ranks"];
    if (!missing.is_array()) continue;
    for (const json& rank : missing) {
      if (!rank.is_object() || out.events.size() >= kMaxMissing) continue;
      LogEvent event;
      event.kind = LogKind::kMissingRank;
      event.rank = small_or(rank, "rank", -1);
      event.at = {file, 0,
                  fmt::format("communicator {}: rank {} of {:.0f} is missing", text_or_empty(communicator, "hash"),
                              *event.rank, number_or(communicator, "size", 0))};
      out.events.push_back(std::move(event));
    }
  }
}

}  // namespace moetax::doctor
