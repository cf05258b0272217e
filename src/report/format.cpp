#include "report/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace moetax::report {
std::string bar(double share, int columns) {
  if (!(share > 0.001)) return "";
  const auto length = std::lround(std::min(share, 1.0) * columns);
  return std::string(static_cast<std::size_t>(std::max(length, 1L)), '#');
}

std::string shorten(std::string_view text, std::size_t columns) {
  if (text.size() <= columns) return std::string(text);
  return std::string(text.substr(0, columns - 2)) + "..";
}

std::string plural(std::size_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string wrap(std::string_view text, std::size_t indent) {
  std::string out, line;
  bool fresh = true;  // nothing on the line yet but its indent
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!fresh && line.size() + 1 + word.size() > kColumns) {
      out += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
      line.assign(indent, ' ');
      fresh = true;
    }
    if (!fresh) line += ' ';
    line += word;
    fresh = false;
    while (line.size() > kColumns) {  // one word longer than a line
      out += line.substr(0, kColumns) + '\n';
      line = std::string(indent, ' ') + line.substr(kColumns);
    }
  }
  return out + line + '\n';
}

std::string join(const std::vector<std::string>& items) {
  return fmt::format("{}", fmt::join(items, ", "));
}

}  // namespace moetax::report
