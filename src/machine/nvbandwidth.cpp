#include "moetax/machine/nvbandwidth.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "machine/words.h"
#include "moetax/base/text.h"

namespace moetax {
namespace {

constexpr std::size_t kMaxTests = 1024;
constexpr std::size_t kMaxCells = std::size_t{1} << 16;

std::optional<double> rate(std::string_view word) {
  const auto value = parse_number<double>(word);
  return value && std::isfinite(*value) && *value >= 0 && *value < 1e9 ? value : std::nullopt;
}

class OutputReader {
 public:
  void take(std::string_view raw, int number) {
    const std::string_view line = trim(raw);
    if (line.starts_with("nvbandwidth Version:")) out_.version = printable(trim(line.substr(20)), 40);
    if (line.starts_with("Device ")) return device(line);
    if (line.starts_with("Running ")) return begin(line, number);
    if (line.starts_with("SUM ")) return end(line);
    if (open_ && !line.empty()) row(line);
    if (line.empty()) columns_.clear();
  }
  Nvbandwidth result() {
    out_.skipped += static_cast<int>(
        std::count_if(out_.tests.begin(), out_.tests.end(), [](const auto& test) { return test.cells.empty(); }));
    return std::move(out_);
  }

 private:
  void device(std::string_view line) {
    const std::size_t colon = line.find(':');
    if (colon != std::string_view::npos && out_.devices.size() < 4096) {
      out_.devices.push_back(printable(trim(line.substr(colon + 1)), 80));
    }
  }

  void begin(std::string_view line, int number) {
    open_ = out_.tests.size() < kMaxTests;
    columns_.clear();
    if (!open_) return;
    std::string_view name = line.substr(8);
    if (name.ends_with(".")) name.remove_suffix(1);
    out_.tests.push_back({printable(name, 80), number});
  }

  void end(std::string_view line) {
    const auto words = words_of(line);
    if (open_ && words.size() == 3) out_.tests.back().sum_gbs = rate(words[2].text).value_or(0);
    open_ = false;
  }

  // "0 1 2" names the columns, "1 323.36 N/A 312.11" is a row.
  void row(std::string_view line) {
    const auto words = words_of(line);
    if (columns_.empty()) {
      for (const Word& word : words) {
        const auto column = parse_number<int>(word.text);
        if (!column || *column < 0) return columns_.clear();  // a heading
        columns_.push_back(*column);
      }
      return;
    }
    const auto index = parse_number<int>(words[0].text);
    if (!index || *index < 0 || words.size() > columns_.size() + 1) {
      ++out_.skipped;
      return;
    }
    auto& cells = out_.tests.back().cells;
    for (std::size_t i = 1; i < words.size() && cells.size() < kMaxCells; ++i) {
      if (const auto gbs = rate(words[i].text)) cells.push_back({*index, columns_[i - 1], *gbs});
    }
  }

  Nvbandwidth out_;
  std::vector<int> columns_;
  bool open_ = false;
};

}  // namespace

double Nvbandwidth::slowest(std::string_view name) const {
  double slowest = 0;
  for (const NvbandwidthTest& test : tests) {
    if (!test.name.starts_with(name)) continue;
    for (const NvbandwidthTest::Cell& cell : test.cells) {
      if (cell.gbs > 0) slowest = slowest == 0 ? cell.gbs : std::min(slowest, cell.gbs);
    }
  }
  return slowest;
}

Result<Nvbandwidth> parse_nvbandwidth(std::string_view text, const std::string& origin) {
  OutputReader reader;
  Splitter lines(text, '\n');
  int number = 0;
  while (const auto line = lines.next()) reader.take(*line, ++number);
  Nvbandwidth out = reader.result();
  const bool any =
      std::any_of(out.tests.begin(), out.tests.end(), [](const auto& test) { return !test.cells.empty(); });
  if (any) return out;
  return fail(ErrorCode::kBadInput,
              fmt::format("{}: no output of nvbandwidth; expected \"Running TEST.\" and a matrix of GB/s", origin));
}

bool looks_like_nvbandwidth(std::string_view text) {
  return text.find("memcpy_ce") != std::string_view::npos && text.find("bandwidth (GB/s)") != std::string_view::npos;
}

}  // namespace moetax
