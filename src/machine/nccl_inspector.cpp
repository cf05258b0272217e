#include "moetax/machine/nccl_inspector.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "machine/plain_data.h"
#include "machine/words.h"
#include "moetax/base/text.h"

namespace moetax {
namespace {

constexpr std::size_t kMaxCalls = std::size_t{1} << 20;
constexpr double kMost = 1e15;

std::string shown(std::string_view text) {
  return printable(text, 120);
}

double amount(std::optional<double> value) {
  return value && std::isfinite(*value) && *value >= 0 && *value <= kMost ? *value : 0;
}

int small(std::optional<std::int64_t> value, int fallback) {
  return value && *value >= 0 && *value < 10'000'000 ? static_cast<int>(*value) : fallback;
}

std::int64_t large(std::optional<std::int64_t> value) {
  return value && *value >= 0 ? *value : -1;
}

// ---- JSON -----------------------------------------------------------------------------------------------------------

// First start and last stop of the kernels on its channels.
void take_kernels(const PlainValue& times, InspectorCall& call) {
  const PlainValue kernels = times["kernel_events"];
  for (std::size_t i = 0; i < std::min<std::size_t>(kernels.size(), 4096); ++i) {
    const std::int64_t start = large(kernels[i]["kernel_start_ts"].whole());
    const std::int64_t stop = large(kernels[i]["kernel_stop_ts"].whole());
    if (start < 0 || stop < start) continue;
    call.start_us = call.start_us < 0 ? start : std::min(call.start_us, start);
    call.end_us = std::max(call.end_us, stop);
  }
}

// {"coll": "AllReduce", "coll_sn": 1407, "coll_msg_size_bytes": ..., ...}, and the same of "p2p".
bool take_object(const PlainValue& object, InspectorDump& dump) {
  for (const std::string prefix : {"coll", "p2p"}) {
    const PlainValue perf = object[prefix + "_perf"];
    if (perf.kind() != PlainKind::kMap || perf[prefix].text().empty()) continue;
    const PlainValue header = object["header"];
    InspectorCall call;
    call.communicator = shown(header["id"].text());
    call.rank = small(header["rank"].whole(), -1);
    call.ranks = small(header["n_ranks"].whole(), 0);
    call.nodes = small(header["nnodes"].whole(), 0);
    call.host = shown(object["metadata"]["hostname"].text());
    call.op = shown(perf[prefix].text());
    call.sequence = large(perf[prefix + "_sn"].whole());
    call.bytes = large(perf[prefix + "_msg_size_bytes"].whole());
    call.us = amount(perf[prefix + "_exec_time_us"].number());
    call.algbw_gbs = amount(perf[prefix + "_algobw_gbs"].number());
    call.busbw_gbs = amount(perf[prefix + "_busbw_gbs"].number());
    take_kernels(perf["event_trace_ts"], call);
    if (dump.version.empty()) dump.version = shown(object["metadata"]["inspector_output_format_version"].text());
    dump.calls.push_back(std::move(call));
    return true;
  }
  return false;
}

// A piece at a time, so that memory follows the calls and not the text.
void read_json(std::string_view text, InspectorDump& dump) {
  constexpr std::size_t kPiece = std::size_t{4} << 20;
  while (!text.empty() && dump.calls.size() < kMaxCalls) {
    // Objects begin at the beginning of a line.
    std::size_t end = text.size() > kPiece ? text.find("\n{", kPiece) : std::string_view::npos;
    end = end == std::string_view::npos ? text.size() : end + 1;
    const PlainRead read = read_plain_text(text.substr(0, end));
    for (const PlainData::Id id : read.values) {
      const PlainValue value = read.data[id];
      // One list of all, too.
      const bool list = value.kind() == PlainKind::kList;
      for (std::size_t i = 0; i < (list ? value.size() : 1); ++i) {
        if (!take_object(list ? value[i] : value, dump)) ++dump.skipped;
      }
    }
    if (!read.trouble.empty()) dump.trouble = read.trouble;
    text.remove_prefix(end);
  }
}

// ---- Prometheus -----------------------------------------------------------------------------------------------------

using Labels = std::map<std::string, std::string>;

// name="value",... up to the closing bracket.
Labels labels_of(std::string_view text) {
  Labels labels;
  while (true) {
    const std::size_t equals = text.find("=\"");
    if (equals == std::string_view::npos) return labels;
    const std::size_t end = text.find('"', equals + 2);
    if (end == std::string_view::npos) return labels;
    std::string_view name = text.substr(0, equals);
    name.remove_prefix(std::min(name.find_first_not_of(", {"), name.size()));
    labels[std::string(name.substr(0, 64))] = shown(text.substr(equals + 2, end - equals - 2));
    text.remove_prefix(end + 1);
    if (labels.size() > 64) return labels;
  }
}

class PrometheusReader {
 public:
  explicit PrometheusReader(InspectorDump& dump) : dump_(dump) {}

  void take(std::string_view line) {
    const std::size_t open = line.find('{'), close = line.rfind('}');
    if (line.empty() || line.starts_with('#')) return;
    const std::string_view name = line.substr(0, std::min(open, line.size()));
    const bool time = name.ends_with("exec_time_microseconds"), rate = name.ends_with("bus_bandwidth_gbs");
    if (open == std::string_view::npos || close == std::string_view::npos || close < open || !(time || rate)) {
      ++dump_.skipped;
      return;
    }
    // A time stamp may follow the value.
    std::string_view value = trim(line.substr(close + 1));
    value = value.substr(0, value.find(' '));
    const auto number = parse_number<double>(value);
    if (!number || dump_.calls.size() >= kMaxCalls) {
      ++dump_.skipped;
      return;
    }
    InspectorCall& call = call_of(line.substr(open, close - open));
    (time ? call.us : call.busbw_gbs) = amount(number);
  }

 private:
  InspectorCall& call_of(std::string_view text) {
    const auto [it, added] = known_.try_emplace(std::string(text.substr(0, 1024)), dump_.calls.size());
    if (!added) return dump_.calls[it->second];
    Labels labels = labels_of(text);
    InspectorCall call;
    call.communicator = labels["comm_name"];
    call.ranks = small(parse_number<std::int64_t>(labels["nranks"]), 0);
    call.nodes = small(parse_number<std::int64_t>(labels["n_nodes"]), 0);
    call.host = labels["node"];
    call.device = labels["gpu"];
    call.op = labels["collective"].empty() ? labels["p2p_operation"] : labels["collective"];
    call.size = labels["message_size"];
    if (dump_.version.empty()) dump_.version = labels["version"];
    dump_.calls.push_back(std::move(call));
    return dump_.calls.back();
  }

  InspectorDump& dump_;
  std::map<std::string, std::size_t> known_;
};

bool is_prometheus(std::string_view text) {
  return text.find("nccl_") != std::string_view::npos &&
         (text.find("bus_bandwidth_gbs{") != std::string_view::npos ||
          text.find("exec_time_microseconds{") != std::string_view::npos);
}

}  // namespace

Result<InspectorDump> parse_nccl_inspector(std::string_view text, const std::string& origin) {
  InspectorDump dump;
  if (is_prometheus(text)) {
    PrometheusReader reader(dump);
    Splitter lines(text, '\n');
    while (const auto line = lines.next()) reader.take(trim(*line));
  } else {
    read_json(text, dump);
  }
  if (!dump.calls.empty()) return dump;
  return fail(ErrorCode::kBadInput, fmt::format("{}: no dump of NCCL's inspector; expected objects with \"coll_perf\", "
                                                "or lines nccl_bus_bandwidth_gbs{{...}} VALUE",
                                                origin));
}

bool looks_like_nccl_inspector(std::string_view text) {
  text = text.substr(0, 1 << 20);
  return is_prometheus(text) || text.find("\"coll_perf\"") != std::string_view::npos ||
         text.find("\"p2p_perf\"") != std::string_view::npos;
}

}  // namespace moetax
