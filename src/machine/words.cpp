#include "machine/words.h"

#include <algorithm>

namespace moetax {

std::vector<Word> words_of(std::string_view line) {
  std::vector<Word> words;
  std::size_t at = 0;
  while ((at = line.find_first_not_of(" \t\r", at)) != std::string_view::npos) {
    const std::size_t end = std::min(line.find_first_of(" \t\r", at), line.size());
    words.push_back({line.substr(at, end - at), at});
    at = end;
  }
  return words;
}

std::string without_escapes(std::string_view line) {
  std::string clean;
  while (!line.empty()) {
    const std::size_t escape = std::min(line.find("\x1b["), line.size());
    clean.append(line.substr(0, escape));
    line.remove_prefix(escape);
    const std::size_t end = line.find_first_of("ABCDEFGHJKSTfmnsulh", 2);
    line.remove_prefix(line.empty() ? 0 : end == std::string_view::npos ? line.size() : end + 1);
  }
  return clean;
}

std::string printable(std::string_view text, std::size_t longest) {
  std::string out;
  for (const char c : text.substr(0, longest)) out += c >= ' ' && c <= '~' ? c : '?';
  return out;
}

}  // namespace moetax
