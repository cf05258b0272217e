#include "moetax/cost/machine_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "moetax/base/file.h"
#include "moetax/base/text.h"

namespace moetax {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxFileBytes = std::size_t{4} << 20;
constexpr double kMost = 1e15;  // of any number: far beyond what is real, far from overflowing
constexpr std::array<const char*, kNumLinkClasses> kNames = {
    "copy",        "sum",         "memory",      "memory-shared", "link",
    "link-shared", "link-stream", "link-direct", "link-relay",    "link-two-level"};

Json link_json(const MeasuredLink& link) {
  Json samples = Json::array(), pieces = Json::array();
  for (const LinkSample& sample : link.samples) samples.push_back({{"bytes", sample.bytes}, {"us", sample.us}});
  for (const LinkPiece& piece : link.cost.pieces) {
    pieces.push_back(
        {{"from_bytes", piece.from_bytes}, {"start_up_us", piece.start_up_us}, {"bytes_per_us", piece.bytes_per_us}});
  }
  return {{"class", to_string(link.link)},
          {"what", link.what},
          {"pieces", pieces},
          {"mean_error", link.cost.mean_error},
          {"worst_error", link.cost.worst_error},
          {"samples", samples}};
}

// Looks up what must be there; keeps the first problem, so that readers read straight down and ask once at the end.
class Reader {
 public:
  explicit Reader(std::string name) : name_(std::move(name)) {}

  double number(const Json& object, const std::string& where, const char* key, double least) {
    const Json* value = find(object, where, key);
    const double found = value && value->is_number() ? value->get<double>() : std::nan("");
    if (found >= least && found <= kMost) return found;
    problem(fmt::format("{}: expected a number of at least {}", path(where, key), least));
    return least;
  }
  int whole(const Json& object, const std::string& where, const char* key, int least, int most = 1 << 20) {
    const Json* value = find(object, where, key);
    if (value && value->is_number_integer()) {
      const double found = value->get<double>();
      if (found >= least && found <= most) return static_cast<int>(found);
    }
    problem(fmt::format("{}: expected a whole number from {} to {}", path(where, key), least, most));
    return least;
  }
  std::string text(const Json& object, const std::string& where, const char* key) {
    const Json* value = find(object, where, key);
    if (value && value->is_string()) return value->get<std::string>();
    problem(fmt::format("{}: expected a text", path(where, key)));
    return {};
  }
  const Json& object(const Json& in, const std::string& where, const char* key) {
    const Json* value = find(in, where, key);
    if (value && value->is_object()) return *value;
    problem(fmt::format("{}: expected an object", path(where, key)));
    return nothing_;
  }
  const Json& array(const Json& in, const std::string& where, const char* key) {
    const Json* value = find(in, where, key);
    if (value && value->is_array()) return *value;
    problem(fmt::format("{}: expected a list", path(where, key)));
    return empty_;
  }
  void problem(std::string message) {
    if (!problem_) problem_ = fmt::format("{}: {}", name_, message);
  }
  const std::optional<std::string>& first_problem() const { return problem_; }

 private:
  static const Json* find(const Json& object, const std::string&, const char* key) {
    if (!object.is_object()) return nullptr;
    const auto found = object.find(key);
    return found == object.end() ? nullptr : &*found;
  }
  static std::string path(const std::string& where, const char* key) {
    return where.empty() ? key : fmt::format("{}.{}", where, key);
  }

  std::string name_;
  std::optional<std::string> problem_;
  Json nothing_ = Json::object(), empty_ = Json::array();
};

MeasuredLink read_link(const Json& json, const std::string& where, Reader& read) {
  MeasuredLink link;
  const std::string name = read.text(json, where, "class");
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) {
    read.problem(fmt::format("{}.class: {} is none of {}", where, in_quotes(name), fmt::join(kNames, ", ")));
    return link;
  }
  link.link = static_cast<LinkClass>(found - kNames.begin());
  link.what = read.text(json, where, "what");
  int idx = 0;
  for (const Json& sample : read.array(json, where, "samples")) {
    const std::string at = fmt::format("{}.samples[{}]", where, idx++);
    link.samples.push_back({read.number(sample, at, "bytes", 1), read.number(sample, at, "us", 1e-9)});
  }
  idx = 0;
  for (const Json& piece : read.array(json, where, "pieces")) {
    const std::string at = fmt::format("{}.pieces[{}]", where, idx++);
    const LinkPiece next{read.number(piece, at, "from_bytes", 0), read.number(piece, at, "start_up_us", -kMost),
                         read.number(piece, at, "bytes_per_us", 1e-9)};
    const double before = link.cost.pieces.empty() ? -1 : link.cost.pieces.back().from_bytes;
    if (next.from_bytes <= before || (before < 0 && next.from_bytes > 0)) {
      read.problem(fmt::format("{}.from_bytes: pieces begin at 0 and ascend", at));
    }
    if (next.start_up_us + next.from_bytes / next.bytes_per_us < 0) {
      read.problem(fmt::format("{}.start_up_us: the piece begins with a time below 0", at));
    }
    link.cost.pieces.push_back(next);
  }
  if (link.cost.pieces.empty()) read.problem(fmt::format("{}.pieces: expected at least one", where));
  link.cost.mean_error = read.number(json, where, "mean_error", 0);
  link.cost.worst_error = read.number(json, where, "worst_error", 0);
  return link;
}

CallCosts read_calls(const Json& json, Reader& read) {
  return {.dispatch_us = read.number(json, "calls", "dispatch_us", 0),
          .combine_us = read.number(json, "calls", "combine_us", 0),
          .node_dispatch_us = read.number(json, "calls", "node_dispatch_us", 0),
          .node_combine_us = read.number(json, "calls", "node_combine_us", 0),
          .node_push_us = read.number(json, "calls", "node_push_us", 0),
          .choice_ns = read.number(json, "calls", "choice_ns", 0)};
}

}  // namespace

const char* to_string(LinkClass link) {
  return kNames[static_cast<std::size_t>(link)];
}

const LinkCost* MachineCosts::find(LinkClass link) const {
  const auto is_it = [&](const MeasuredLink& measured) { return measured.link == link; };
  const auto found = std::find_if(links.begin(), links.end(), is_it);
  return found == links.end() ? nullptr : &found->cost;
}

std::string to_json(const MachineCosts& machine) {
  Json links = Json::array();
  for (const MeasuredLink& link : machine.links) links.push_back(link_json(link));
  const CallCosts& calls = machine.calls;
  const Json json = {{"schema", "moetax.machine/1"},
                     {"tool_version", machine.tool_version},
                     {"machine",
                      {{"cpu", machine.cpu},
                       {"isa", machine.isa},
                       {"cores", machine.cores},
                       {"l2_bytes", machine.l2_bytes},
                       {"kernel", machine.kernel}}},
                     {"ranks", machine.ranks},
                     {"nodes", machine.nodes},
                     {"transport", machine.transport},
                     {"links", links},
                     {"calls",
                      {{"dispatch_us", calls.dispatch_us},
                       {"combine_us", calls.combine_us},
                       {"node_dispatch_us", calls.node_dispatch_us},
                       {"node_combine_us", calls.node_combine_us},
                       {"node_push_us", calls.node_push_us},
                       {"choice_ns", calls.choice_ns}}}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<MachineCosts> parse_machine_costs(std::string_view text, const std::string& name) {
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded() || !json.is_object()) {
    return fail(ErrorCode::kBadInput,
                fmt::format("{}: not a JSON object; expected what moetax calibrate writes", name));
  }
  Reader read(name);
  const std::string schema = read.text(json, "", "schema");
  if (schema != "moetax.machine/1") {
    return fail(ErrorCode::kBadInput,
                fmt::format("{}: schema is {}, expected 'moetax.machine/1', which moetax calibrate "
                            "writes",
                            name, in_quotes(schema)));
  }
  MachineCosts machine;
  machine.tool_version = read.text(json, "", "tool_version");
  const Json& host = read.object(json, "", "machine");
  machine.cpu = read.text(host, "machine", "cpu");
  machine.isa = read.text(host, "machine", "isa");
  machine.kernel = read.text(host, "machine", "kernel");
  machine.cores = read.whole(host, "machine", "cores", 1);
  machine.l2_bytes = static_cast<std::size_t>(read.whole(host, "machine", "l2_bytes", 0, 1 << 30));
  machine.ranks = read.whole(json, "", "ranks", 2);
  machine.nodes = read.whole(json, "", "nodes", 1);
  if (machine.nodes > machine.ranks) read.problem("nodes: there are more than ranks");
  machine.transport = read.text(json, "", "transport");
  int idx = 0;
  for (const Json& link : read.array(json, "", "links")) {
    machine.links.push_back(read_link(link, fmt::format("links[{}]", idx++), read));
  }
  machine.calls = read_calls(read.object(json, "", "calls"), read);
  if (read.first_problem()) return fail(ErrorCode::kBadInput, *read.first_problem());
  return machine;
}

Result<MachineCosts> read_machine_costs(const std::string& path) {
  MOETAX_ASSIGN(const std::string text, read_text_file(path, kMaxFileBytes));
  return parse_machine_costs(text, path);
}

}  // namespace moetax
