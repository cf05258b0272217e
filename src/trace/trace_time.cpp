#include "trace/trace_time.h"

#include <charconv>
#include <cmath>

namespace moetax {
namespace {

constexpr std::int64_t kMostUs = 9'200'000'000'000'000;  // in nanoseconds still an int64

// With an exponent the digits are a double's anyway.
std::optional<std::int64_t> by_double(std::string_view text) {
  double us = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), us);
  if (error != std::errc{} || end != text.data() + text.size() || !(std::fabs(us) < kMostUs)) return std::nullopt;
  return std::llround(us * 1e3);
}

// The digits after the point as nanoseconds, and how many of `text` they are.
std::int64_t fraction_ns(std::string_view text, std::size_t& used) {
  std::int64_t ns = 0;
  std::int64_t unit = 100;
  bool up = false;
  for (used = 0; used < text.size() && text[used] >= '0' && text[used] <= '9'; ++used) {
    if (used == 3) up = text[used] >= '5';
    ns += unit * (text[used] - '0');
    unit /= 10;
  }
  return ns + (up ? 1 : 0);
}

}  // namespace

std::optional<std::int64_t> microseconds_as_ns(std::string_view text) {
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"') text = text.substr(1, text.size() - 2);
  const std::string_view whole = text;
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  std::uint64_t us_size = 0;  // of 19 digits at most, so it fits
  std::size_t digits = 0;
  for (; digits < text.size(); ++digits) {
    const auto digit = static_cast<unsigned char>(text[digits] - '0');
    if (digit > 9) break;
    us_size = us_size * 10 + digit;
  }
  if (digits > 19 || us_size > INT64_MAX) return std::nullopt;
  const auto us = static_cast<std::int64_t>(us_size);
  if (digits == 0) return std::nullopt;
  std::int64_t ns = 0;
  if (digits < text.size() && text[digits] == '.') {
    std::size_t used = 0;
    ns = fraction_ns(text.substr(digits + 1), used);
    digits += 1 + used;
  } else if (digits == text.size() && us > kMostUs) {
    return negative ? -us : us;
  }
  if (digits < text.size()) return by_double(whole);
  if (us > kMostUs) return std::nullopt;
  ns += us * 1000;
  return negative ? -ns : ns;
}

}  // namespace moetax
