#include "moetax/machine/flight_dump.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <map>
#include <numeric>

#include "machine/plain_data.h"
#include "machine/words.h"
#include "moetax/base/text.h"

namespace moetax {
namespace {

constexpr std::size_t kMaxCalls = std::size_t{1} << 18;
constexpr std::size_t kMaxRanks = std::size_t{1} << 17;
constexpr std::size_t kMaxTensors = 65536;
constexpr std::size_t kLongestText = 120;
constexpr std::int64_t kMostElements = std::int64_t{1} << 50;

std::int64_t whole_or(const PlainValue& value, std::int64_t fallback) {
  const auto whole = value.whole();
  return whole && *whole >= 0 ? *whole : fallback;
}

std::string shown(std::string_view text) {
  return printable(text, kLongestText);
}

// "[0, 1]", as a list or as a text.
std::vector<int> ranks_of(const PlainValue& value) {
  std::vector<int> ranks;
  const auto put = [&](std::optional<std::int64_t> rank) {
    if (rank && *rank >= 0 && *rank < 10'000'000 && ranks.size() < kMaxRanks) ranks.push_back(static_cast<int>(*rank));
  };
  for (std::size_t i = 0; i < value.size(); ++i) put(value[i].whole());
  std::string digits;
  for (const char c : value.text()) {
    if (std::isdigit(static_cast<unsigned char>(c))) {
      digits += c;
    } else if (!digits.empty()) {
      put(parse_number<std::int64_t>(digits));
      digits.clear();
    }
  }
  if (!digits.empty()) put(parse_number<std::int64_t>(digits));
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

// [[3, 4], [2]] -> 12, 2.
std::vector<std::int64_t> elements_of(const PlainValue& sizes) {
  std::vector<std::int64_t> elements;
  for (std::size_t i = 0; i < std::min(sizes.size(), kMaxTensors); ++i) {
    const PlainValue tensor = sizes[i];
    if (tensor.kind() != PlainKind::kList) continue;
    std::int64_t product = 1;
    for (std::size_t d = 0; d < std::min<std::size_t>(tensor.size(), 16); ++d) {
      const std::int64_t extent = std::min(whole_or(tensor[d], 0), kMostElements);
      product = extent > 0 && product > kMostElements / extent ? kMostElements : product * extent;
    }
    elements.push_back(product);
  }
  return elements;
}

FlightState state_of(std::string_view text) {
  if (text == "completed") return FlightState::kCompleted;
  if (text == "started") return FlightState::kStarted;
  return text == "scheduled" ? FlightState::kScheduled : FlightState::kUnknown;
}

// Frames come innermost first. Places inside of PyTorch say little.
std::string place_of(const PlainValue& frames) {
  const auto name = [](std::string_view path) { return path.substr(path.rfind('/') + 1); };
  const auto show = [&](const PlainValue& frame) {
    return shown(
        fmt::format("{}:{} {}", name(frame["filename"].text()), whole_or(frame["line"], 0), frame["name"].text()));
  };
  for (std::size_t i = 0; i < std::min<std::size_t>(frames.size(), 256); ++i) {
    const std::string_view file = frames[i]["filename"].text();
    if (!file.empty() && file.find("torch/") == std::string_view::npos) return show(frames[i]);
  }
  return frames.size() > 0 && !frames[0]["filename"].text().empty() ? show(frames[0]) : "";
}

int rank_of_name(std::string_view path) {
  std::string_view name = path.substr(path.rfind('/') + 1);
  // "rank_3.json.gz".
  for (const std::string_view marker : {"rank", "Rank"}) {
    if (const std::size_t at = name.rfind(marker); at != std::string_view::npos) {
      const std::string_view rest = name.substr(std::min(name.find_first_of("0123456789", at), name.size()));
      const auto rank = parse_number<int>(rest.substr(0, rest.find_first_not_of("0123456789")));
      if (rank) return *rank;
    }
  }
  // Otherwise the number that the name ends with.
  for (bool cut = true; cut;) {
    cut = false;
    for (const std::string_view suffix : {".gz", ".zst", ".json", ".pickle", ".pkl", ".txt"}) {
      if (!name.ends_with(suffix)) continue;
      name.remove_suffix(suffix.size());
      cut = true;
    }
  }
  const std::size_t begin = name.find_last_not_of("0123456789") + 1;
  return parse_number<int>(name.substr(begin)).value_or(-1);
}

class DumpReader {
 public:
  FlightDump read(const PlainValue& root) {
    dump_.version = shown(root["version"].text());
    const PlainValue groups = root["pg_config"];
    for (std::size_t i = 0; i < std::min(groups.size(), kMaxRanks); ++i) add_group(groups.key(i), groups.value(i));
    const PlainValue entries = root["entries"];
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].kind() == PlainKind::kMap && dump_.calls.size() < kMaxCalls) {
        add_call(entries[i]);
      } else {
        ++dump_.skipped;
      }
    }
    return std::move(dump_);
  }

 private:
  void add_group(std::string_view key, const PlainValue& value) {
    FlightGroup group{shown(value["name"].text()), shown(value["desc"].text()), ranks_of(value["ranks"])};
    if (group.name.empty()) group.name = shown(key);
    groups_.try_emplace(group.name, static_cast<int>(dump_.groups.size()));
    dump_.groups.push_back(std::move(group));
  }

  // Older versions know a group by its number alone.
  int group_of(const PlainValue& entry) {
    std::string name = shown(entry["process_group"][std::size_t{0}].text());
    if (name.empty()) name = std::to_string(whole_or(entry["pg_id"], 0));
    const auto [it, added] = groups_.try_emplace(name, static_cast<int>(dump_.groups.size()));
    if (added) dump_.groups.push_back({name, shown(entry["process_group"][std::size_t{1}].text()), {}});
    return it->second;
  }

  void add_call(const PlainValue& entry) {
    FlightCall call;
    std::string_view op = entry["profiling_name"].text();
    if (op.empty()) {
      ++dump_.skipped;
      return;
    }
    op.remove_prefix(op.find(':') == std::string_view::npos ? 0 : op.find(':') + 1);
    call.op = shown(op);
    call.group = group_of(entry);
    call.message = entry["is_p2p"].is_true() || op.starts_with("send") || op.starts_with("recv");
    call.sequence = whole_or(entry[call.message ? "p2p_seq_id" : "collective_seq_id"], -1);
    if (call.sequence < 0) call.sequence = whole_or(entry["seq_id"], -1);
    call.state = state_of(entry["state"].text());
    call.in_elements = elements_of(entry["input_sizes"]);
    call.out_elements = elements_of(entry["output_sizes"]);
    call.dtype = shown(entry["input_dtypes"][std::size_t{0}].text());
    call.created_ns = whole_or(entry["time_created_ns"], -1);
    call.started_ns = whole_or(entry["time_discovered_started_ns"], -1);
    call.completed_ns = whole_or(entry["time_discovered_completed_ns"], -1);
    call.timeout_ms = whole_or(entry["timeout_ms"], -1);
    call.where = place_of(entry["frames"]);
    dump_.calls.push_back(std::move(call));
  }

  FlightDump dump_;
  std::map<std::string, int> groups_;
};

std::int64_t sum(const std::vector<std::int64_t>& elements) {
  return std::accumulate(elements.begin(), elements.end(), std::int64_t{0},
                         [](std::int64_t a, std::int64_t b) { return std::min(a + b, kMostElements); });
}

}  // namespace

std::string_view flight_state_name(FlightState state) {
  switch (state) {
    case FlightState::kScheduled:
      return "scheduled";
    case FlightState::kStarted:
      return "started";
    case FlightState::kCompleted:
      return "completed";
    case FlightState::kUnknown:
      break;
  }
  return "in an unknown state";
}

std::int64_t FlightCall::elements_in() const {
  return sum(in_elements);
}
std::int64_t FlightCall::elements_out() const {
  return sum(out_elements);
}

Result<FlightDump> parse_flight_dump(std::string_view bytes, const std::string& origin) {
  const PlainRead read = looks_like_pickle(bytes) ? read_pickle(bytes) : read_plain_text(bytes);
  for (const PlainData::Id id : read.values) {
    const PlainValue root = read.data[id];
    if (root["entries"].kind() != PlainKind::kList) continue;
    FlightDump dump = DumpReader().read(root);
    dump.rank = rank_of_name(origin);
    dump.trouble = read.trouble;
    if (!dump.calls.empty() || !dump.groups.empty()) return dump;
  }
  return fail(ErrorCode::kBadInput,
              fmt::format("{}: no dump of a flight recorder; expected \"entries\" with their collectives{}", origin,
                          read.trouble.empty() ? "" : " (" + read.trouble + ")"));
}

bool looks_like_flight_dump(std::string_view bytes) {
  const auto has = [&](std::string_view word) { return bytes.substr(0, 1 << 20).find(word) != std::string_view::npos; };
  return has("entries") && (has("profiling_name") || has("pg_config") || has("pg_status"));
}

}  // namespace moetax
