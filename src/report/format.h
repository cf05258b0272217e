// Numbers and paragraphs as people read them: three significant digits, a unit, 100 columns of ASCII.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace moetax::report {

inline constexpr std::size_t kColumns = 100;

std::string digits3(double value);           // "5.00", "21.4", "812", "1.23e5"; "-" for NaN and infinities
std::string time_text(double us);            // "0.31 us", "412 us", "5.00 ms", "1.23 s", "2.00 h"
std::string bytes_text(double bytes);        // "512 B", "1.50 MiB"
std::string percent_text(double share);      // 0.123 -> "12.3 %"
std::string count_text(double count);        // "812", "1.41 k", "65.5 M"
std::string flops_text(double gflops);       // "812 GFLOP/s", "12.2 TFLOP/s"
std::string ratio_text(double ratio);        // "1.20x"
std::string bar(double share, int columns);  // '#' for share of columns, at least one when share is visible
std::string shorten(std::string_view text, std::size_t columns);  // cut with ".." where too long
std::string plural(std::size_t count, std::string_view noun);     // "1 rank", "2 ranks"

// Breaks text between words so that no line exceeds kColumns; lines after the first are indented.
std::string wrap(std::string_view text, std::size_t indent);
// Items separated by ", ".
std::string join(const std::vector<std::string>& items);

}  // namespace moetax::report
