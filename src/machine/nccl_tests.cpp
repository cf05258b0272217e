#include "moetax/machine/nccl_tests.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "machine/words.h"
#include "moetax/base/file.h"
#include "moetax/base/text.h"

namespace moetax {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{64} << 20;
constexpr std::size_t kMaxSkipped = 50;
constexpr std::size_t kMaxHosts = 65'536;
constexpr double kMost = 1e15;  // of any number here

constexpr std::array<std::string_view, 11> kPrograms{"all_reduce", "all_gather", "reduce_scatter", "alltoallv",
                                                     "alltoall",   "sendrecv",   "broadcast",      "reduce",
                                                     "gather",     "scatter",    "hypercube"};

bool is_header(std::string_view line) {
  const auto has = [&](std::string_view word) { return line.find(word) != std::string_view::npos; };
  return line.starts_with('#') && has(" size ") && has(" algbw ") && has(" busbw ");
}

std::optional<double> value(std::string_view word) {
  const auto number = parse_number<double>(word);
  return number && std::isfinite(*number) && *number >= 0 && *number <= kMost ? number : std::nullopt;
}

bool not_available(std::string_view word) {
  return word == "N/A" || word == "n/a" || word == "-";
}

// time, algbw, busbw, wrong.
std::optional<NcclTestsTiming> timing(const Word* words) {
  NcclTestsTiming timing;
  if (not_available(words[0].text)) return timing;
  const auto time = value(words[0].text), algbw = value(words[1].text), busbw = value(words[2].text);
  if (!time || !algbw || !busbw) return std::nullopt;
  timing = {.time_us = *time, .algbw_gbs = *algbw, .busbw_gbs = *busbw};
  if (not_available(words[3].text)) return timing;
  // Older versions print the largest difference, "1e-06" or "0e+00", in its place.
  const auto wrong = value(words[3].text);
  if (!wrong) return std::nullopt;
  if (*wrong == std::floor(*wrong)) timing.wrong = static_cast<std::int64_t>(*wrong);
  return timing;
}

// "16777216 4194304 float sum -1 226.0 74.23 129.90 0 225.0 74.57 130.49 0"; reduction and root may be absent.
std::optional<NcclTestsRow> row(const std::vector<Word>& words) {
  constexpr std::size_t kTimings = 8;
  if (words.size() < 3 + kTimings || words.size() > 5 + kTimings) return std::nullopt;
  const auto bytes = parse_number<std::int64_t>(words[0].text), elements = parse_number<std::int64_t>(words[1].text);
  const auto out_of_place = timing(&words[words.size() - kTimings]);
  const auto in_place = timing(&words[words.size() - kTimings / 2]);
  const bool type =
      words[2].text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string_view::npos &&
      words[2].text[0] >= 'a' && words[2].text.size() < 32;
  if (!bytes || !elements || *bytes < 0 || *elements < 0 || !type || !out_of_place || !in_place) return std::nullopt;
  NcclTestsRow row{.bytes = *bytes,
                   .elements = *elements,
                   .type = std::string(words[2].text),
                   .out_of_place = *out_of_place,
                   .in_place = *in_place};
  if (words.size() > 3 + kTimings && !parse_number<int>(words[3].text)) {
    row.reduction = words[3].text == "none" ? "" : in_quotes(words[3].text);
    if (!row.reduction.empty()) row.reduction = row.reduction.substr(1, row.reduction.size() - 2);
  }
  return row;
}

class TableReader {
 public:
  void take(std::string_view line, int number) {
    const std::string_view text = trim(line);
    if (text.empty()) return;
    name_collective(text);
    if (text.starts_with('#')) return take_comment(text, number);
    const std::vector<Word> words = words_of(text);
    if (auto found = row(words)) {
      begin(number);
      found->line = number;
      table_.rows.push_back(std::move(*found));
    } else if (in_table_ && words.size() >= 2 && parse_number<std::int64_t>(words[0].text) &&
               parse_number<std::int64_t>(words[1].text) && table_.skipped.size() < kMaxSkipped) {
      table_.skipped.push_back({number, fmt::format("has {} columns that are no row of the table", words.size())});
    }
  }

  std::vector<NcclTestsTable> result() {
    finish();
    return std::move(tables_);
  }

 private:
  // "mpirun ... ./build/alltoall_perf -b 8", "# Collective test starting: all_reduce_perf".
  void name_collective(std::string_view text) {
    const std::size_t perf = text.find("_perf");
    if (perf == std::string_view::npos) return;
    for (const std::string_view program : kPrograms) {
      if (!text.substr(0, perf).ends_with(program)) continue;
      if (!table_.rows.empty()) finish();
      table_.collective = program;
      return;
    }
  }

  void take_comment(std::string_view text, int number) {
    if (text.find("nThread ") != std::string_view::npos || is_header(text)) {
      if (!table_.rows.empty()) finish();
      if (is_header(text)) begin(number);
      return;
    }
    const std::vector<Word> words = words_of(text);
    // "#  Rank  0 Group  0 Pid 12 on host device  0 [0x00] name"
    if (words.size() > 6 && words[1].text == "Rank") take_rank(words);
    constexpr std::string_view kAverage = "Avg bus bandwidth";
    if (text.find(kAverage) != std::string_view::npos) {
      table_.average_busbw_gbs = value(words.back().text).value_or(0);
      finish();
    }
  }

  void take_rank(const std::vector<Word>& words) {
    if (!table_.rows.empty()) finish();
    ++table_.ranks;
    for (std::size_t i = 2; i + 2 < words.size(); ++i) {
      if (words[i].text != "on" || words[i + 2].text != "device") continue;
      std::string host = in_quotes(words[i + 1].text);
      host = host.substr(1, host.size() - 2);
      if (std::find(table_.hosts.rbegin(), table_.hosts.rend(), host) == table_.hosts.rend() &&
          table_.hosts.size() < kMaxHosts) {
        table_.hosts.push_back(std::move(host));
      }
    }
  }

  void begin(int number) {
    if (!in_table_) table_.line = number;
    in_table_ = true;
  }

  void finish() {
    if (!table_.rows.empty()) tables_.push_back(std::move(table_));
    table_ = {};
    in_table_ = false;
  }

  NcclTestsTable table_;
  bool in_table_ = false;
  std::vector<NcclTestsTable> tables_;
};

}  // namespace

double NcclTestsTable::bus_factor() const {
  const NcclTestsTiming* best = nullptr;
  std::int64_t bytes = 0;
  for (const NcclTestsRow& row : rows) {
    for (const NcclTestsTiming* timing : {&row.out_of_place, &row.in_place}) {
      if (timing->algbw_gbs <= 0 || timing->busbw_gbs <= 0 || (best != nullptr && row.bytes <= bytes)) continue;
      best = timing;
      bytes = row.bytes;
    }
  }
  return best == nullptr ? 0 : best->busbw_gbs / best->algbw_gbs;
}

Result<std::vector<NcclTestsTable>> parse_nccl_tests(std::string_view text, const std::string& origin) {
  TableReader reader;
  Splitter lines(text, '\n');
  int number = 0;
  while (const auto line = lines.next()) reader.take(*line, ++number);
  std::vector<NcclTestsTable> tables = reader.result();
  if (!tables.empty()) return tables;
  return fail(
      ErrorCode::kBadInput,
      fmt::format("{}: holds no table of nccl-tests; expected rows of size, count, type, time, algbw, busbw", origin));
}

Result<std::vector<NcclTestsTable>> read_nccl_tests(const std::string& path) {
  MOETAX_ASSIGN(const std::string text, read_text_file(path, kMaxFileBytes));
  return parse_nccl_tests(text, path);
}

bool looks_like_nccl_tests(std::string_view text) {
  return parse_nccl_tests(text, "").has_value();
}

}  // namespace moetax
