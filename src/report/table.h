// Tables of text that keep within the columns of the bill.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace moetax::report {

enum class Align : std::uint8_t { kLeft, kRight };

// Every column is as wide as its widest cell. Where that would exceed kColumns, first the blanks between columns give
// way, from three down to one, then the left-aligned columns, widest first, whose cells are cut with "..".
class Table {
 public:
  struct Column {
    std::string header;
    Align align = Align::kRight;
  };
  explicit Table(const std::vector<Column>& columns);

  void add(std::vector<std::string> cells);  // one per column
  // One line a row, the headers first, all indented by two blanks, no blanks at the end.
  std::string text() const;

 private:
  std::vector<std::size_t> fitted(std::size_t columns) const;  // widths that sum up to so much at most

  std::vector<Align> align_;
  std::vector<std::size_t> width_;
  std::vector<std::vector<std::string>> rows_;  // the headers first
};

}  // namespace moetax::report
