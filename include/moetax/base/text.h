// Small text: cutting it into lines and fields without copying, numbers, and quoting what a user wrote.
#pragma once

#include <charconv>
#include <optional>
#include <string>
#include <string_view>

namespace moetax {

// Takes the part of `rest` before the next `separator` off it; everything when there is none. Nothing once all is
// taken.
class Splitter {
 public:
  Splitter(std::string_view text, char separator) : rest_(text), separator_(separator) {}
  std::optional<std::string_view> next() {
    if (done_) return std::nullopt;
    const std::size_t end = rest_.find(separator_);
    const std::string_view part = rest_.substr(0, end);
    done_ = end == std::string_view::npos;
    rest_.remove_prefix(done_ ? rest_.size() : end + 1);
    return part;
  }

 private:
  std::string_view rest_;
  char separator_;
  bool done_ = false;
};

inline std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

// The number that `text` is, blanks around it aside; nothing when it is anything else or out of T's range.
template <class T>
std::optional<T> parse_number(std::string_view text) {
  text = trim(text);
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Text from a user or a file made fit for a one-line message: printable, short, in single quotes.
std::string in_quotes(std::string_view text);

}  // namespace moetax
