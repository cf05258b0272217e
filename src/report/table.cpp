#include "report/table.h"

#include <algorithm>
#include <cassert>
#include <numeric>

#include "report/format.h"

namespace moetax::report {
namespace {

constexpr std::size_t kIndent = 2;
constexpr std::size_t kMaxGap = 3;
constexpr std::size_t kLeastWidth = 4;  // of a column that is cut

}  // namespace

Table::Table(const std::vector<Column>& columns) : width_(columns.size(), 0) {
  std::vector<std::string> headers;
  for (const Column& column : columns) {
    align_.push_back(column.align);
    headers.push_back(column.header);
  }
  add(std::move(headers));
}

void Table::add(std::vector<std::string> cells) {
  assert(cells.size() == width_.size());
  for (std::size_t i = 0; i < cells.size(); ++i) width_[i] = std::max(width_[i], cells[i].size());
  rows_.push_back(std::move(cells));
}

std::string Table::text() const {
  const std::size_t gaps = std::max<std::size_t>(width_.size(), 2) - 1;
  const std::vector<std::size_t> width = fitted(kColumns - kIndent - gaps);
  const std::size_t used = kIndent + std::accumulate(width.begin(), width.end(), std::size_t{0});
  const std::size_t gap = std::clamp<std::size_t>((kColumns - std::min(used, kColumns)) / gaps, 1, kMaxGap);
  std::string out;
  for (const auto& cells : rows_) {
    std::string line(kIndent, ' ');
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const std::string cell = shorten(cells[i], width[i]);
      const std::string blanks(width[i] - cell.size(), ' ');
      if (i > 0) line.append(gap, ' ');
      line += align_[i] == Align::kLeft ? cell + blanks : blanks + cell;
    }
    out += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
  }
  return out;
}

std::vector<std::size_t> Table::fitted(std::size_t columns) const {
  std::vector<std::size_t> width = width_;
  while (std::accumulate(width.begin(), width.end(), std::size_t{0}) > columns) {
    std::size_t widest = width.size();
    for (std::size_t i = 0; i < width.size(); ++i) {
      if (align_[i] != Align::kLeft || width[i] <= kLeastWidth) continue;
      if (widest == width.size() || width[i] > width[widest]) widest = i;
    }
    if (widest == width.size()) break;  // nothing left to cut
    --width[widest];
  }
  return width;
}

}  // namespace moetax::report
