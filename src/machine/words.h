// Lines of text as people paste them from a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace moetax {

struct Word {
  std::string_view text;
  std::size_t at = 0;  // first column of the line
};
// The words between blanks and tabs.
std::vector<Word> words_of(std::string_view line);

// `line` without the escape sequences that colour or underline it on a terminal.
std::string without_escapes(std::string_view line);

// Fit to show: other characters than ASCII's as '?', at most `longest`.
std::string printable(std::string_view text, std::size_t longest);

}  // namespace moetax
