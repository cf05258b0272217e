#include "moetax/base/units.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstddef>

namespace moetax::units {
namespace {

struct Unit {
  double size;
  const char* name;
};

// The largest unit that the value reaches; 999.5 already rounds to the next one.
std::string with_unit(double value, const Unit* units, std::size_t count, double step) {
  std::size_t i = 0;
  while (i + 1 < count && std::abs(value) >= units[i + 1].size * (1 - 0.5 / step)) ++i;
  const std::string number = digits3(value / units[i].size);
  return units[i].name[0] ? number + " " + units[i].name : number;
}

}  // namespace

std::string digits3(double value) {
  if (!std::isfinite(value)) return "-";
  const double size = std::abs(value);
  if (size < 0.005) return "0";
  if (size < 9.995) return fmt::format("{:.2f}", value);
  if (size < 99.95) return fmt::format("{:.1f}", value);
  if (size < 99999.5) return fmt::format("{:.0f}", value);
  std::string text = fmt::format("{:.2e}", value);  // 1.23e+05
  const std::size_t sign = text.find('e') + 1;
  text.erase(sign, text[sign + 1] == '0' ? 2 : 1);
  return text;
}

std::string time_text(double us) {
  static constexpr std::array<Unit, 4> kUnits{{{1, "us"}, {1e3, "ms"}, {1e6, "s"}, {3.6e9, "h"}}};
  return with_unit(us, kUnits.data(), kUnits.size(), 1000);
}

std::string bytes_text(double bytes) {
  static constexpr std::array<Unit, 7> kUnits{
      {{1, "B"}, {0x1p10, "KiB"}, {0x1p20, "MiB"}, {0x1p30, "GiB"}, {0x1p40, "TiB"}, {0x1p50, "PiB"}, {0x1p60, "EiB"}}};
  if (std::abs(bytes) < 1000) return fmt::format("{:.0f} B", std::isfinite(bytes) ? bytes : 0);
  return with_unit(bytes, kUnits.data(), kUnits.size(), 1024);
}

std::string percent_text(double share) {
  return digits3(share * 100) + " %";
}

std::string count_text(double count) {
  static constexpr std::array<Unit, 7> kUnits{
      {{1, ""}, {1e3, "k"}, {1e6, "M"}, {1e9, "G"}, {1e12, "T"}, {1e15, "P"}, {1e18, "E"}}};
  if (std::abs(count) < 1000 && count == std::floor(count)) return fmt::format("{:.0f}", count);
  return with_unit(count, kUnits.data(), kUnits.size(), 1000);
}

std::string flops_text(double gflops) {
  static constexpr std::array<Unit, 4> kUnits{{{1, "GFLOP/s"}, {1e3, "TFLOP/s"}, {1e6, "PFLOP/s"}, {1e9, "EFLOP/s"}}};
  return with_unit(gflops, kUnits.data(), kUnits.size(), 1000);
}

std::string ratio_text(double ratio) {
  return digits3(ratio) + "x";
}

}  // namespace moetax::units
