#include "moetax/report/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "moetax/base/text.h"
#include "report/format.h"

namespace moetax {
namespace {

using report::percent_text;
using report::plural;
using report::time_text;

constexpr double kSame = 0.05;          // a smaller change is none, where nothing says how much runs differ
constexpr double kWorthNaming = 0.005;  // of the step
constexpr double kSureOfSpread = 2;     // standard errors

std::string change_text(double before, double after) {
  if (before <= 0) return after > 0 ? "new" : "none";
  return fmt::format("{:+.1f} %", 100 * (after / before - 1));
}

std::string from_to(double before, double after) {
  return fmt::format("{} -> {} ({})", time_text(before), time_text(after), change_text(before, after));
}

bool is_same(double before, double after) {
  return std::abs(after - before) <= kSame * std::max(before, after);
}

// Twice the standard error of the difference of two means; nothing where a side has a single step.
std::optional<double> spread_us(const ComparedBill& a, const ComparedBill& b) {
  if (a.traced || b.traced || a.steps < 2 || b.steps < 2) return std::nullopt;
  return kSureOfSpread * std::sqrt(a.step_std_us * a.step_std_us / a.steps + b.step_std_us * b.step_std_us / b.steps);
}

// ---- Whether they can be compared ----

void warn_of(const char* what, const std::vector<std::pair<std::string, std::string>>& before,
             const std::vector<std::pair<std::string, std::string>>& after, std::vector<std::string>& warnings) {
  for (const auto& [key, value] : before) {
    const auto is_it = [&, name = key](const auto& other) { return other.first == name; };
    const auto other = std::find_if(after.begin(), after.end(), is_it);
    if (other == after.end() || other->second == value) continue;
    warnings.push_back(
        fmt::format("{} differs: {} was {}, is {}", what, key, in_quotes(value), in_quotes(other->second)));
  }
}

std::vector<std::string> warnings_of(const ComparedBill& before, const ComparedBill& after) {
  std::vector<std::string> warnings;
  if (before.traced != after.traced) {
    warnings.push_back("one is a run's bill, the other one of traces: their steps are not the same thing");
  }
  warn_of("the machine", before.machine, after.machine, warnings);
  warn_of("the job", before.config, after.config, warnings);
  if (before.ranks.size() != after.ranks.size()) {
    warnings.push_back(
        fmt::format("{} before, {} now", plural(before.ranks.size(), "rank"), plural(after.ranks.size(), "rank")));
  }
  return warnings;
}

// ---- What changed ----

const ComparedBill::PerRank* most_waited_for(const ComparedBill& bill) {
  const auto less = [](const auto& a, const auto& b) { return a.waited_for_us < b.waited_for_us; };
  const auto most = std::max_element(bill.ranks.begin(), bill.ranks.end(), less);
  return most != bill.ranks.end() && most->waited_for_us > 0 ? &*most : nullptr;
}

const ComparedBill::PerRank* longest_waiting(const ComparedBill& bill) {
  const auto less = [](const auto& a, const auto& b) { return a.wait_us.value_or(0) < b.wait_us.value_or(0); };
  const auto most = std::max_element(bill.ranks.begin(), bill.ranks.end(), less);
  return most != bill.ranks.end() && most->wait_us.value_or(0) > 0 ? &*most : nullptr;
}

void say_step(Comparison& c) {
  const ComparedBill &a = c.before, &b = c.after;
  const char* what = a.traced && b.traced ? "the window" : "a step";
  const std::optional<double> spread = spread_us(a, b);
  const double change = std::abs(b.step_us - a.step_us);
  c.noise = spread ? change <= *spread : is_same(a.step_us, b.step_us);
  std::string text = fmt::format("{}: {}", what, from_to(a.step_us, b.step_us));
  if (spread) {
    text += c.noise ? fmt::format("; that is noise: steps differ, so that {} would not be sure", time_text(*spread))
                    : fmt::format("; more than the {} that steps' differences explain", time_text(*spread));
  } else if (c.noise) {
    text += "; too little to tell from noise";
  }
  c.sentences.push_back(std::move(text));
}

void say_exposed(Comparison& c) {
  const ComparedBill &a = c.before, &b = c.after;
  if (is_same(a.exposed_us, b.exposed_us)) {
    c.sentences.push_back(fmt::format("exposed communication did not change: {}", from_to(a.exposed_us, b.exposed_us)));
  } else {
    c.sentences.push_back(fmt::format("exposed communication {}: {}", b.exposed_us > a.exposed_us ? "grew" : "shrank",
                                      from_to(a.exposed_us, b.exposed_us)));
  }
}

// Per call, because two runs may hold different numbers of them.
void say_transfer(const ComparedBill::Exchange& a, const ComparedBill::Exchange& b, std::vector<std::string>& out) {
  if (!a.transfer_us || !b.transfer_us || !a.wait_us || !b.wait_us) return;
  const bool same = is_same(*a.transfer_us, *b.transfer_us), waits = is_same(*a.wait_us, *b.wait_us);
  if (same && waits) return;
  std::string text =
      same ? fmt::format("{}: transfer did not change ({} a call)", a.name, from_to(*a.transfer_us, *b.transfer_us))
           : fmt::format("{}: transfer {} ({} a call)", a.name,
                         *b.transfer_us > *a.transfer_us ? "takes longer" : "is faster",
                         from_to(*a.transfer_us, *b.transfer_us));
  text += waits ? ", nor waiting" : fmt::format("; waiting did: {}", from_to(*a.wait_us, *b.wait_us));
  if (!same && waits) text.replace(text.rfind(", nor waiting"), std::string::npos, ", waiting did not change");
  out.push_back(std::move(text));
}

void say_exchanges(Comparison& c) {
  for (const ComparedBill::Exchange& a : c.before.exchanges) {
    const auto is_it = [&](const auto& other) { return other.name == a.name; };
    const auto b = std::find_if(c.after.exchanges.begin(), c.after.exchanges.end(), is_it);
    if (b == c.after.exchanges.end()) {
      c.sentences.push_back(fmt::format("{} is gone", a.name));
    } else {
      say_transfer(a, *b, c.sentences);
    }
  }
  for (const ComparedBill::Exchange& b : c.after.exchanges) {
    const auto is_it = [&](const auto& other) { return other.name == b.name; };
    if (std::none_of(c.before.exchanges.begin(), c.before.exchanges.end(), is_it)) {
      c.sentences.push_back(fmt::format("{} is new: {} a call", b.name, time_text(b.us)));
    }
  }
}

void say_waits(Comparison& c) {
  const auto *late_a = most_waited_for(c.before), *late_b = most_waited_for(c.after);
  const double worth = kWorthNaming * std::max(c.before.step_us, c.after.step_us);
  if (late_a && late_b && std::max(late_a->waited_for_us, late_b->waited_for_us) >= worth) {
    if (late_a->rank == late_b->rank) {
      c.sentences.push_back(fmt::format("the straggler is rank {} as before: waited for {}", late_a->rank,
                                        from_to(late_a->waited_for_us, late_b->waited_for_us)));
    } else {
      c.sentences.push_back(fmt::format("the straggler flipped: rank {} was waited for most ({}), now rank {} ({})",
                                        late_a->rank, time_text(late_a->waited_for_us), late_b->rank,
                                        time_text(late_b->waited_for_us)));
    }
  }
  const auto *waits_a = longest_waiting(c.before), *waits_b = longest_waiting(c.after);
  if (waits_a && waits_b && waits_a->rank != waits_b->rank && std::max(*waits_a->wait_us, *waits_b->wait_us) >= worth) {
    c.sentences.push_back(fmt::format("waiting moved from rank {} ({}) to rank {} ({})", waits_a->rank,
                                      time_text(*waits_a->wait_us), waits_b->rank, time_text(*waits_b->wait_us)));
  }
}

void say_compute(Comparison& c) {
  const ComparedBill &a = c.before, &b = c.after;
  if (std::abs(b.compute_us - a.compute_us) < kWorthNaming * a.step_us || is_same(a.compute_us, b.compute_us)) return;
  c.sentences.push_back(fmt::format("compute {}: {}", b.compute_us > a.compute_us ? "takes longer" : "is faster",
                                    from_to(a.compute_us, b.compute_us)));
}

void say_output(Comparison& c) {
  if (c.before.output_hash.empty() || c.after.output_hash.empty()) return;
  c.sentences.push_back(c.before.output_hash == c.after.output_hash ? "outputs have the same bits"
                                                                    : "outputs differ in their bits");
}

}  // namespace

Comparison compare(ComparedBill before, ComparedBill after) {
  Comparison c;
  c.before = std::move(before);
  c.after = std::move(after);
  const ComparedBill &a = c.before, &b = c.after;
  c.warnings = warnings_of(a, b);
  say_step(c);
  say_exposed(c);
  say_waits(c);
  say_exchanges(c);
  say_compute(c);
  say_output(c);
  c.rows = {{a.traced && b.traced ? "window" : "step", a.step_us, b.step_us},
            {"compute", a.compute_us, b.compute_us},
            {"pack", a.pack_us, b.pack_us},
            {"wire", a.wire_us, b.wire_us},
            {"wait", a.wait_us, b.wait_us},
            {"launch", a.launch_us, b.launch_us},
            {"other", a.other_us, b.other_us},
            {"exposed", a.exposed_us, b.exposed_us},
            {"hidden", a.hidden_us, b.hidden_us}};
  std::erase_if(c.rows, [](const Comparison::Row& row) { return !row.before_us && !row.after_us; });
  return c;
}

}  // namespace moetax
