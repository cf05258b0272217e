#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "moetax/report/compare.h"
#include "report/format.h"
#include "report/table.h"

namespace moetax {
namespace {

using nlohmann::ordered_json;
using report::Align;
using report::Table;
using report::time_text;

std::string time_or_dash(const std::optional<double>& us) {
  return us ? time_text(*us) : "-";
}

ordered_json us(const std::optional<double>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

}  // namespace

std::string to_text(const Comparison& c) {
  std::string out;
  for (const std::string& warning : c.warnings) out += report::wrap("warning: " + warning, 2);
  if (!c.warnings.empty()) out += '\n';
  for (const std::string& sentence : c.sentences) out += report::wrap("- " + sentence, 2);
  Table table({{"mean over ranks", Align::kLeft}, {"before"}, {"after"}, {"change"}, {""}});
  for (const Comparison::Row& row : c.rows) {
    const bool both = row.before_us && row.after_us;
    table.add({row.name, time_or_dash(row.before_us), time_or_dash(row.after_us),
               both ? (*row.after_us < *row.before_us ? "-" : "+") +
                          time_text(std::max(*row.after_us, *row.before_us) - std::min(*row.after_us, *row.before_us))
                    : "-",
               both && *row.before_us > 0 ? fmt::format("{:+.1f} %", 100 * (*row.after_us / *row.before_us - 1)) : ""});
  }
  out += '\n' + table.text();
  Table ranks({{"rank"}, {"waits"}, {"after"}, {"waited for"}, {"after"}, {"compute"}, {"after"}});
  const std::size_t shown = std::min({c.before.ranks.size(), c.after.ranks.size(), std::size_t{16}});
  for (std::size_t r = 0; r < shown; ++r) {
    const auto &a = c.before.ranks[r], &b = c.after.ranks[r];
    ranks.add({fmt::format("{}", a.rank), time_or_dash(a.wait_us), time_or_dash(b.wait_us), time_text(a.waited_for_us),
               time_text(b.waited_for_us), time_text(a.compute_us), time_text(b.compute_us)});
  }
  if (shown > 0) out += '\n' + ranks.text();
  return out;
}

std::string to_json(const Comparison& c) {
  ordered_json rows = ordered_json::array();
  for (const Comparison::Row& row : c.rows) {
    rows.push_back({{"name", row.name}, {"before_us", us(row.before_us)}, {"after_us", us(row.after_us)}});
  }
  const ordered_json json = {
      {"schema", "moetax.comparison/1"}, {"before", c.before.name},  {"after", c.after.name}, {"noise", c.noise},
      {"warnings", c.warnings},          {"sentences", c.sentences}, {"parts", rows}};
  return json.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace moetax
