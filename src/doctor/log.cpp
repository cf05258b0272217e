#include "doctor/log.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <limits>

#include "doctor/readers.h"
#include "doctor/settings.h"
#include "moetax/base/text.h"

namespace moetax::doctor {
namespace {

constexpr std::size_t kMaxEventsOfKind = 4096;  // a log that repeats itself for ever says nothing new
constexpr std::size_t kMaxNumbers = 4096;

// The number that stands after `name`, blanks, ':' and '=' aside; commas between digits are left out.
std::optional<double> number_after(std::string_view line, std::string_view name) {
  const std::size_t found = line.find(name);
  if (found == std::string_view::npos) return std::nullopt;
  std::size_t at = found + name.size();
  while (at < line.size() && (line[at] == ' ' || line[at] == '=' || line[at] == ':')) ++at;
  std::string digits;
  for (; at < line.size() && digits.size() < 24; ++at) {
    const char c = line[at];
    if (c == ',' && at + 1 < line.size() && std::isdigit(static_cast<unsigned char>(line[at + 1]))) continue;
    if (!std::isdigit(static_cast<unsigned char>(c)) && c != '.' && !(c == '-' && digits.empty())) break;
    digits += c;
  }
  while (!digits.empty() && digits.back() == '.') digits.pop_back();
  const auto value = parse_number<double>(digits);
  return value && std::abs(*value) < 1e15 ? value : std::nullopt;
}

template <class T>
std::optional<T> whole_after(std::string_view line, std::string_view name) {
  const auto number = number_after(line, name);
  if (!number || std::abs(*number) >= static_cast<double>(std::numeric_limits<T>::max())) return std::nullopt;
  return static_cast<T>(*number);
}

std::string word_after(std::string_view line, std::string_view name) {
  const std::size_t found = line.find(name);
  if (found == std::string_view::npos) return "";
  const std::string_view rest = line.substr(found + name.size());
  const auto end = std::find_if(rest.begin(), rest.end(),
                                [](char c) { return !std::isalnum(static_cast<unsigned char>(c)) && c != '_'; });
  return std::string(rest.substr(0, static_cast<std::size_t>(end - rest.begin())));
}

// The numbers of the next "[1, 2, 3]" or "1/2/3" from `at` on.
std::vector<double> list_from(std::string_view line, std::size_t at) {
  std::vector<double> numbers;
  if (at == std::string_view::npos) return numbers;
  const std::size_t open = line.find_first_of("[(", at);
  std::size_t end = open == std::string_view::npos ? line.size() : line.find_first_of("])", open);
  if (end == std::string_view::npos) end = line.size();
  std::string digits;
  for (std::size_t i = open == std::string_view::npos ? at : open; i <= end && numbers.size() < kMaxNumbers; ++i) {
    const char c = i < end ? line[i] : ' ';
    if (std::isdigit(static_cast<unsigned char>(c)) || c == '.') {
      digits += c;
    } else if (!digits.empty()) {
      if (const auto number = parse_number<double>(digits)) numbers.push_back(*number);
      digits.clear();
    }
  }
  return numbers;
}

std::optional<int> rank_of(std::string_view line) {
  for (const std::string_view name : {"[Rank ", "[rank", "rank = ", "rank=", "rank ", "Rank "}) {
    if (const auto rank = whole_after<int>(line, name)) return rank;
  }
  return std::nullopt;
}

// ---- what each kind holds -------------------------------------------------------------------------------------------

void read_watchdog(std::string_view line, LogEvent& event) {
  event.rank = rank_of(line);
  event.seq = whole_after<long long>(line, "SeqNum");
  event.op = word_after(line, "OpType=");
  event.elements = whole_after<long long>(line, "NumelIn");
  event.limit = whole_after<long long>(line, "Timeout(ms)");
  event.group = word_after(line, "PG ID ");
}

void read_peer(std::string_view line, LogEvent& event) {
  event.rank = whole_after<int>(line, "rank");
  event.peer = whole_after<int>(line, "thread");
}

void read_shapes(std::string_view line, LogEvent& event) {
  event.op = contains(line, "number of tensors") ? "tensors" : "shapes";
  for (const std::string_view name : {"saved metadata", "saved:", "Number of tensors saved during forward"}) {
    const std::size_t found = line.find(name);
    if (found == std::string_view::npos) continue;
    const std::size_t size = line.find("Size(", found);
    event.numbers = list_from(line, size == std::string_view::npos ? found + name.size() : size + 5);
  }
  for (const std::string_view name : {"recomputed metadata", "Number of tensors saved during recomputation"}) {
    const std::size_t found = line.find(name);
    if (found == std::string_view::npos) continue;
    const std::size_t size = line.find("Size(", found);
    event.second = list_from(line, size == std::string_view::npos ? found + name.size() : size + 5);
  }
}

// "2% 11/512 [01:09<57:05, 6.84s/it]": what is left, in seconds.
void read_warmup(std::string_view line, LogEvent& event) {
  const std::size_t less = line.find('<');
  if (less == std::string_view::npos) return;
  double seconds = 0;
  std::string_view rest = line.substr(less + 1);
  rest = rest.substr(0, rest.find_first_of(",]"));
  Splitter parts(rest, ':');
  while (const auto part = parts.next()) {
    const auto value = parse_number<double>(*part);
    if (!value) return;
    seconds = seconds * 60 + *value;
  }
  event.numbers = {seconds};
}

void read_splits(std::string_view line, LogEvent& event) {
  event.rank = rank_of(line);
  event.numbers = list_from(line, line.find("input_split"));
  event.second = list_from(line, line.find("output_split"));
}

void read_counts(std::string_view line, LogEvent& event) {
  for (const std::string_view name : {"tokens per rank", "tokens_per_rank", "batches per rank", "batches_per_rank"}) {
    const std::size_t found = line.find(name);
    if (found == std::string_view::npos) continue;
    event.op = name.starts_with("tokens") ? "tokens" : "batches";
    event.numbers = list_from(line, found + name.size());
  }
}

void read_throughput(std::string_view line, LogEvent& event) {
  constexpr std::array<std::string_view, 5> kUnits = {"tokens/s/GPU", "tok/s/GPU", "tokens/s/gpu", "tok/s/gpu",
                                                      "tokens/sec/GPU"};
  for (const std::string_view unit : kUnits) {
    const std::size_t found = line.find(unit);
    if (found == std::string_view::npos) continue;
    // The number stands before its unit, or after it.
    std::size_t begin = line.find_last_not_of(" :=", found == 0 ? 0 : found - 1);
    const std::size_t end = begin == std::string_view::npos ? 0 : begin + 1;
    while (begin != std::string_view::npos && begin > 0 &&
           (std::isdigit(static_cast<unsigned char>(line[begin])) || line[begin] == ',' || line[begin] == '.')) {
      --begin;
    }
    auto value = begin == std::string_view::npos ? std::nullopt : number_after(line.substr(0, end).substr(begin), "");
    if (!value && begin != std::string_view::npos) value = number_after(line.substr(begin + 1), "");
    if (!value) value = number_after(line.substr(found + unit.size()), "");
    if (value && *value > 0) event.numbers = {*value};
    return;
  }
}

void read_rebalance(std::string_view line, LogEvent& event) {
  for (const std::string_view name : {"rebalance end: time", "time=", "took ", "completed in ", "cost "}) {
    const auto value = number_after(line, name);
    if (!value) continue;
    event.numbers = {line.find("ms", line.find(name)) != std::string_view::npos ? *value / 1000 : *value};
    return;
  }
}

void read_tuned(std::string_view line, LogEvent& event) {
  const std::size_t unit = line.find(" GB/s (RDMA)");
  if (unit == std::string_view::npos) return;
  std::size_t begin = unit;
  while (begin > 0 && (std::isdigit(static_cast<unsigned char>(line[begin - 1])) || line[begin - 1] == '.')) --begin;
  if (const auto value = parse_number<double>(line.substr(begin, unit - begin))) event.numbers = {*value};
  event.op = line.find("combine") != std::string_view::npos ? "combine" : "dispatch";
}

void read_memory(std::string_view line, LogEvent& event) {
  const std::size_t slash = line.find("GiB /");
  const std::size_t used = line.find("memory");
  if (slash == std::string_view::npos || used == std::string_view::npos) return;
  const auto first = number_after(line.substr(used), "memory used");
  const auto alternative = first ? first : number_after(line.substr(used), "memory");
  const auto total = number_after(line, "GiB /");
  if (alternative && total) event.numbers = {*alternative, *total};
}

// The number in front of a unit.
std::optional<double> number_before(std::string_view line, std::string_view unit) {
  const std::size_t found = line.find(unit);
  if (found == std::string_view::npos) return std::nullopt;
  std::size_t end = found;
  while (end > 0 && line[end - 1] == ' ') --end;
  std::size_t begin = end;
  while (begin > 0 && (std::isdigit(static_cast<unsigned char>(line[begin - 1])) || line[begin - 1] == '.')) --begin;
  const auto value = parse_number<double>(line.substr(begin, end - begin));
  return value && *value < 1e15 ? value : std::nullopt;
}

void read_raw_link(std::string_view line, LogEvent& event) {
  if (const auto bytes = number_before(line, "GB/s")) event.numbers = {*bytes};
  const auto bits = number_before(line, "Gb/s");
  if (bits && event.numbers.empty()) event.numbers = {*bits / 8};
}

// "/sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data:123456".
void read_port(std::string_view line, LogEvent& event) {
  const std::size_t ports = line.find("/ports/"), colon = line.find("port_xmit_data");
  if (ports == std::string_view::npos || ports == 0) return;
  const std::size_t slash = line.rfind('/', ports - 1);
  const std::size_t begin = slash == std::string_view::npos ? 0 : slash + 1;
  const std::size_t end = std::min(line.find('/', ports + 7), line.size());
  event.op =
      std::string(line.substr(begin, ports - begin)) + " port " + std::string(line.substr(ports + 7, end - ports - 7));
  if (const auto value = number_after(line.substr(colon), "port_xmit_data")) event.numbers = {*value};
}

void read_hits(std::string_view line, LogEvent& event) {
  if (!contains(line, "expert")) return;
  if (const auto share = number_before(line, "%")) event.numbers = {*share};
}

// "load_tensors: offloaded 25/49 layers to GPU"
void read_layers(std::string_view line, LogEvent& event) {
  const auto some = number_after(line, "offloaded");
  const std::size_t slash = line.find('/', line.find("offloaded"));
  const auto all = slash == std::string_view::npos ? std::nullopt : number_after(line.substr(slash + 1), "");
  if (some && all) event.numbers = {*some, *all};
}

// "load_tensors:   CPU_Mapped model buffer size =  166.92 MiB"
void read_buffer(std::string_view line, LogEvent& event) {
  const std::size_t found = line.find(" model buffer size");
  const std::size_t blank = line.find_last_of(" :", found == 0 ? 0 : found - 1);
  event.op = std::string(line.substr(blank + 1, found - blank - 1));
  if (const auto size = number_after(line, "model buffer size")) event.numbers = {*size};
}

void read_free(std::string_view line, LogEvent& event) {
  if (const auto size = number_before(line, "MiB free")) event.numbers = {*size};
}

void read_cap(std::string_view line, LogEvent& event) {
  event.limit = whole_after<long long>(line, "num_max_dispatch_tokens_per_rank=");
}

// "26 ranks have launched up to operation 6650"
void read_operations(std::string_view line, LogEvent& event) {
  event.seq = whole_after<long long>(line, "up to operation");
  if (const auto count = number_after(line, "")) event.numbers = {*count};
}

// "The missing rank: 21"; of several the first.
void read_missing(std::string_view line, LogEvent& event) {
  event.rank = whole_after<int>(line, line.find("ranks:") != std::string_view::npos ? "ranks:" : "rank:");
}

void read_rank_only(std::string_view line, LogEvent& event) {
  event.rank = rank_of(line);
}
void read_nothing(std::string_view, LogEvent&) {}

struct Anchor {
  LogKind kind;
  std::string_view text;
  void (*read)(std::string_view line, LogEvent& event);
};

constexpr Anchor kAnchors[] = {
    {LogKind::kWatchdog, "Watchdog caught collective operation timeout", read_watchdog},
    {LogKind::kTraceCache, "Invalidate trace cache", read_nothing},
    {LogKind::kDeepEpTimeout, "DeepEP error: timeout", read_rank_only},
    {LogKind::kDeepEpTimeout, "CPU recv timeout", read_rank_only},
    {LogKind::kDeepEpTimeout, "DeepEP error: CPU", read_rank_only},
    {LogKind::kPeerTimeout, "timeout check failed", read_peer},
    {LogKind::kJitWarmup, "DeepGEMM warmup", read_warmup},
    {LogKind::kJitWarmup, "DeepGEMM JIT", read_warmup},
    {LogKind::kOutOfMemory, "out of memory", read_rank_only},
    {LogKind::kOutOfMemory, "OutOfMemoryError", read_rank_only},
    {LogKind::kShapeChanged, "saved metadata", read_shapes},
    {LogKind::kShapeChanged, "recomputed metadata", read_shapes},
    {LogKind::kShapeChanged, "different number of tensors was saved during", read_shapes},
    {LogKind::kShapeChanged, "Number of tensors saved during", read_shapes},
    {LogKind::kGpuFallback, "ibgda_alloc_and_map_qp_uar with GPU as handler failed", read_nothing},
    {LogKind::kBufferCap, "num_max_dispatch_tokens_per_rank", read_cap},
    {LogKind::kCaptureRefused, "operation not permitted when stream is capturing", read_nothing},
    {LogKind::kCaptureRefused, "StreamCaptureUnsupported", read_nothing},
    {LogKind::kDefaultMoeConfig, "Using default MoE config", read_nothing},
    {LogKind::kDtypeMismatch, "to have the same dtype", read_nothing},
    {LogKind::kDtypeMismatch, "expected scalar type", read_nothing},
    {LogKind::kSplitMismatch, "plit sizes doesn't match", read_nothing},
    {LogKind::kSplits, "input_split", read_splits},
    {LogKind::kSharedMemory, "/dev/shm/nccl", read_nothing},
    {LogKind::kLockedMemory, "ibv_reg_mr", read_nothing},
    {LogKind::kLockedMemory, "ibv_create_cq", read_nothing},
    {LogKind::kRankCounts, "tokens per rank", read_counts},
    {LogKind::kRankCounts, "tokens_per_rank", read_counts},
    {LogKind::kRankCounts, "batches per rank", read_counts},
    {LogKind::kRankCounts, "batches_per_rank", read_counts},
    {LogKind::kThroughput, "tokens/s/GPU", read_throughput},
    {LogKind::kThroughput, "tok/s/GPU", read_throughput},
    {LogKind::kThroughput, "tokens/s/gpu", read_throughput},
    {LogKind::kThroughput, "tok/s/gpu", read_throughput},
    {LogKind::kRebalance, "rebalance end", read_rebalance},
    {LogKind::kRebalance, "Rearranged experts", read_rebalance},
    {LogKind::kTuned, "GB/s (RDMA)", read_tuned},
    {LogKind::kExited, "exited with", read_rank_only},
    {LogKind::kExited, "process exited", read_rank_only},
    {LogKind::kMemoryUse, "GiB /", read_memory},
    {LogKind::kFirstStep, "first optimizer step", read_nothing},
    {LogKind::kOperationCount, "ranks have launched up to operation", read_operations},
    {LogKind::kMissingRank, "The missing rank", read_missing},
    {LogKind::kRawLink, "shmem_put_bw", read_raw_link},
    {LogKind::kRawLink, "ib_write_bw", read_raw_link},
    {LogKind::kPortCounter, "counters/port_xmit_data", read_port},
    {LogKind::kCacheHits, "hit rate", read_hits},
    {LogKind::kLayersOnGpu, "layers to GPU", read_layers},
    {LogKind::kExpertsOnHost, "buffer type overridden to CPU", read_nothing},
    {LogKind::kModelBuffer, " model buffer size", read_buffer},
    {LogKind::kDeviceFree, "MiB free", read_free},
    {LogKind::kGpuName, "NVIDIA H", read_nothing},
    {LogKind::kGpuName, "NVIDIA A100", read_nothing},
    {LogKind::kGpuName, "NVIDIA B", read_nothing},
    {LogKind::kGpuName, "MI300X", read_nothing},
};

// ---- going through the text -----------------------------------------------------------------------------------------

struct Found {
  std::size_t at;
  const Anchor* anchor;
};

std::vector<Found> find_anchors(std::string_view text) {
  std::vector<Found> found;
  for (const Anchor& anchor : kAnchors) {
    std::size_t count = 0;
    for (std::size_t at = text.find(anchor.text); at != std::string_view::npos && count < kMaxEventsOfKind;
         at = text.find(anchor.text, at + anchor.text.size())) {
      found.push_back({at, &anchor});
      ++count;
    }
  }
  std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) { return a.at < b.at; });
  return found;
}

// "02:40:36" anywhere near the line's beginning, in seconds of the day.
std::optional<double> time_of_day(std::string_view line) {
  const std::string_view head = line.substr(0, 80);
  for (std::size_t i = 0; i + 8 <= head.size(); ++i) {
    if (head[i + 2] != ':' || head[i + 5] != ':') continue;
    const auto hours = parse_number<int>(head.substr(i, 2)), minutes = parse_number<int>(head.substr(i + 3, 2)),
               seconds = parse_number<int>(head.substr(i + 6, 2));
    if (hours && minutes && seconds && *hours < 24 && *minutes < 60 && *seconds < 60) {
      return *hours * 3600.0 + *minutes * 60.0 + *seconds;
    }
  }
  return std::nullopt;
}

// The longest silence of the file. A step back in time is another day or another process and counts for nothing.
void find_gap(std::string_view text, const std::string& file, LogFacts& out) {
  LogFacts::Gap longest;
  std::optional<double> before;
  std::string_view before_line;
  int number = 0, before_number = 0;
  Splitter lines(text, '\n');
  while (const auto line = lines.next()) {
    ++number;
    const auto now = time_of_day(*line);
    if (!now) continue;
    if (before && *now - *before > longest.seconds) {
      longest = {*now - *before, {file, before_number, shown_line(before_line)}, {file, number, shown_line(*line)}};
    }
    before = now;
    before_line = *line;
    before_number = number;
  }
  if (longest.seconds > 0) out.gaps.push_back(std::move(longest));
}

bool ends_by_time(const LogFacts& log) {
  return log.has(LogKind::kDeepEpTimeout) || log.has(LogKind::kWatchdog) || log.has(LogKind::kPeerTimeout);
}

}  // namespace

std::vector<const LogEvent*> LogFacts::of(LogKind kind) const {
  std::vector<const LogEvent*> found;
  for (const LogEvent& event : events) {
    if (event.kind == kind) found.push_back(&event);
  }
  return found;
}

void read_log(std::string_view text, const std::string& file, LogFacts& out) {
  std::size_t counted = 0, last_begin = std::string_view::npos;
  int line_number = 1;
  LogKind last_kind = LogKind::kWatchdog;
  for (const Found& found : find_anchors(text)) {
    line_number += static_cast<int>(std::count(text.begin() + static_cast<std::ptrdiff_t>(counted),
                                               text.begin() + static_cast<std::ptrdiff_t>(found.at), '\n'));
    counted = found.at;
    const std::size_t newline = text.rfind('\n', found.at);
    const std::size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
    if (begin == last_begin && found.anchor->kind == last_kind) continue;  // one event a line and kind
    const std::string_view line = text.substr(begin, std::min(text.find('\n', found.at), text.size()) - begin);
    LogEvent event;
    event.kind = found.anchor->kind;
    event.at = {file, line_number, shown_line(line)};
    found.anchor->read(line.substr(0, 8192), event);
    out.events.push_back(std::move(event));
    last_begin = begin;
    last_kind = found.anchor->kind;
  }
  if (ends_by_time(out)) find_gap(text, file, out);
}

}  // namespace moetax::doctor
