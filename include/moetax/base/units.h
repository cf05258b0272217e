// Numbers as people read them: three significant digits and a unit.
#pragma once

#include <string>

namespace moetax::units {

std::string digits3(double value);       // "5.00", "21.4", "812", "1.23e5"; "-" for NaN and infinities
std::string time_text(double us);        // "0.31 us", "412 us", "5.00 ms", "1.23 s", "2.00 h"
std::string bytes_text(double bytes);    // "512 B", "1.50 MiB"
std::string percent_text(double share);  // 0.123 -> "12.3 %"
std::string count_text(double count);    // "812", "1.41 k", "65.5 M"
std::string flops_text(double gflops);   // "812 GFLOP/s", "12.2 TFLOP/s"
std::string ratio_text(double ratio);    // "1.20x"

}  // namespace moetax::units
