// Numbers and paragraphs as people read them: three significant digits, a unit, 100 columns of ASCII.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "moetax/base/units.h"

namespace moetax::report {

inline constexpr std::size_t kColumns = 100;

using units::bytes_text;
using units::count_text;
using units::digits3;
using units::flops_text;
using units::percent_text;
using units::ratio_text;
using units::time_text;

std::string bar(double share, int columns);  // '#' for share of columns, at least one when share is visible
std::string shorten(std::string_view text, std::size_t columns);  // cut with ".." where too long
std::string plural(std::size_t count, std::string_view noun);     // "1 rank", "2 ranks"

// Breaks text between words so that no line exceeds kColumns; lines after the first are indented.
std::string wrap(std::string_view text, std::size_t indent);
// Items separated by ", ".
std::string join(const std::vector<std::string>& items);

}  // namespace moetax::report
