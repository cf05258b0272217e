// A bill's JSON → what a comparison takes from it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "moetax/base/text.h"
#include "moetax/report/compare.h"

namespace moetax {
namespace {

using nlohmann::json;

// Keeps the first problem; every reader gives something sound meanwhile.
class Reader {
 public:
  explicit Reader(const std::string& name) : name_(name) {}

  const json& object(const json& in, const char* key) { return part(in, key, &json::is_object, "an object"); }
  const json& array(const json& in, const char* key) { return part(in, key, &json::is_array, "an array"); }
  double number(const json& in, const char* key) {
    const auto found = optional_number(in, key);
    if (!found) problem(key, "a number that is not negative");
    return found.value_or(0);
  }
  // Absent and null are nothing; what is no number, or a negative one, is a problem.
  std::optional<double> optional_number(const json& in, const char* key) {
    const auto found = in.find(key);
    if (found == in.end() || found->is_null()) return std::nullopt;
    const double value = found->is_number() ? found->get<double>() : -1;
    if (std::isfinite(value) && value >= 0) return value;
    problem(key, "a number that is not negative");
    return 0;
  }
  std::string text(const json& in, const char* key) {
    const auto found = in.find(key);
    return found != in.end() && found->is_string() ? found->get<std::string>() : std::string();
  }
  Rank rank(const json& in, const char* key) {
    const auto found = in.find(key);
    if (found == in.end() || found->is_null()) return kNoRank;
    if (found->is_number_integer() && found->get<std::int64_t>() >= 0 && found->get<std::int64_t>() < 1 << 24) {
      return found->get<Rank>();
    }
    problem(key, "a rank");
    return kNoRank;
  }
  const std::optional<std::string>& first_problem() const { return problem_; }

 private:
  const json& part(const json& in, const char* key, bool (json::*is)() const noexcept, const char* expected) {
    static const json kNothing = json::object();
    const auto found = in.find(key);
    if (found != in.end() && ((*found).*is)()) return *found;
    problem(key, expected);
    return kNothing;
  }
  void problem(const char* key, const char* expected) {
    if (!problem_) problem_ = fmt::format("{}: {}: expected {}, as bench and analyze write it", name_, key, expected);
  }

  const std::string& name_;
  std::optional<std::string> problem_;
};

std::vector<std::pair<std::string, std::string>> plain_values(const json& in, std::initializer_list<const char*> keys) {
  std::vector<std::pair<std::string, std::string>> values;
  for (const char* key : keys) {
    const auto found = in.find(key);
    if (found == in.end() || found->is_null()) continue;
    values.emplace_back(key, found->is_string() ? found->get<std::string>()
                                                : found->dump(-1, ' ', false, json::error_handler_t::replace));
  }
  return values;
}

void read_ranks(const json& bill, Reader& read, ComparedBill& out) {
  for (const json& rank : read.array(bill, "ranks")) {
    if (!rank.is_object()) continue;
    out.ranks.push_back({read.rank(rank, "rank"), read.number(rank, "step_us"), read.number(rank, "compute_us"),
                         read.number(rank, "exposed_us"), read.optional_number(rank, "wait_us"), 0});
  }
  for (const json& rank : read.array(bill, "ranks")) {
    if (!rank.is_object()) continue;
    for (const json& waited : read.array(rank, "waited_for")) {
      if (!waited.is_object()) continue;
      const Rank late = read.rank(waited, "rank");
      for (ComparedBill::PerRank& other : out.ranks) {
        if (other.rank == late && late != kNoRank) other.waited_for_us += read.number(waited, "us");
      }
    }
  }
}

void read_exchanges(const json& bill, Reader& read, ComparedBill& out) {
  for (const json& exchange : read.array(bill, "exchanges")) {
    if (!exchange.is_object()) continue;
    std::string name = read.text(exchange, "name");
    if (out.traced) name = read.text(exchange, "family") + " " + name;
    if (const std::string phase = read.text(exchange, "phase"); !phase.empty() && phase != "unknown") {
      name += " (" + phase + ")";
    }
    std::replace_if(
        name.begin(), name.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; }, '?');
    out.exchanges.push_back({std::move(name), read.number(exchange, "calls"), read.number(exchange, "us"),
                             read.optional_number(exchange, "wait_us"), read.optional_number(exchange, "transfer_us")});
  }
}

void read_times(const json& bill, Reader& read, ComparedBill& out) {
  const json& step = read.object(bill, "step_us");
  out.step_us = read.number(step, "mean");
  out.step_std_us = read.optional_number(step, "std").value_or(0);
  out.steps = read.number(step, "count");
  out.compute_us = read.number(bill, "compute_us");
  out.other_us = read.number(bill, "other_us");
  out.exposed_us = read.number(bill, "exposed_us");
  out.hidden_us = read.number(bill, "hidden_us");
  const json& tax = read.object(bill, "tax");
  out.pack_us = read.optional_number(tax, "pack_us");
  out.wire_us = read.optional_number(tax, "wire_us");
  out.wait_us = read.optional_number(tax, "wait_us");
  out.launch_us = read.optional_number(tax, "launch_us");
}

}  // namespace

Result<ComparedBill> parse_compared(std::string_view text, const std::string& name) {
  const json bill = json::parse(text, nullptr, false);
  Reader read(name);
  if (!bill.is_object() || read.text(bill, "schema") != "moetax.bill/1") {
    return fail(ErrorCode::kBadInput,
                fmt::format("{}: not a bill (moetax.bill/1); bench --json and analyze --json write them", name));
  }
  ComparedBill out;
  out.name = name;
  const json& config = read.object(bill, "config");
  out.traced = read.text(config, "mode") == "trace";
  out.machine = plain_values(read.object(bill, "machine"), {"cpu", "isa", "cores", "kernel", "gemm", "devices"});
  out.config = plain_values(config, {"model", "nodes", "tokens_per_rank", "hidden", "inter", "experts", "topk",
                                     "ep_size", "dtype", "wire_dispatch", "wire_combine", "exchange", "transport",
                                     "overlap", "routing", "backward", "layers", "threads"});
  out.config.emplace_back("moetax", read.text(bill, "tool_version"));
  read_times(bill, read, out);
  read_ranks(bill, read, out);
  read_exchanges(bill, read, out);
  out.output_hash = read.text(bill, "output_hash");
  if (read.first_problem()) return fail(ErrorCode::kBadInput, *read.first_problem());
  return out;
}

}  // namespace moetax
