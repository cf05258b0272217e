// From inputs to findings: recognise, read, put jobs together, apply every rule to each.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "doctor/facts.h"
#include "doctor/readers.h"
#include "doctor/recognise.h"
#include "doctor/rule.h"
#include "doctor/stories.h"
#include "moetax/doctor/doctor.h"

namespace moetax::doctor {
namespace {

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", or ") + part;
  return text;
}

void add_evidence(const Evidence& evidence, std::vector<Evidence>& into) {
  constexpr std::size_t kMaxEvidence = 8;
  const bool known = std::any_of(into.begin(), into.end(), [&](const Evidence& other) {
    return other.file == evidence.file && other.line == evidence.line && other.text == evidence.text;
  });
  if (!known && into.size() < kMaxEvidence) into.push_back(evidence);
}

// Findings of several jobs that say the same become one with the evidence of all.
void merge(std::vector<Finding> found, std::vector<Finding>& into) {
  for (Finding& finding : found) {
    auto same = std::find_if(into.begin(), into.end(), [&](const Finding& other) {
      return other.id == finding.id && other.title == finding.title;
    });
    const std::vector<Evidence> evidence = std::move(finding.evidence);
    if (same == into.end()) {
      finding.evidence.clear();
      same = into.insert(into.end(), std::move(finding));
    }
    for (const Evidence& one : evidence) add_evidence(one, same->evidence);
  }
}

void sort_findings(std::vector<Finding>& findings) {
  const auto weight = [](const Finding& f) { return f.cost.share.value_or(0) * 1e9 + f.cost.us.value_or(0); };
  std::stable_sort(findings.begin(), findings.end(), [&](const Finding& a, const Finding& b) {
    if (a.severity != b.severity) return a.severity > b.severity;
    if (weight(a) != weight(b)) return weight(a) > weight(b);
    return a.confidence > b.confidence;
  });
}

// Puts what the inputs hold into a pool, and says of each what it was.
class Intake {
 public:
  Intake(Pool& pool, Examination& out) : pool_(pool), out_(out) {}

  void take(const Input& input) {
    if (!input.left_out.empty()) out_.skipped.push_back({input.name, input.left_out});
    const Recognised recognised = recognise(input.text);
    if (recognised.kind == InputKind::kUnknown && recognised.nearest.size() == 1 &&
        recognised.nearest[0].starts_with("a")) {
      skip(input, "is " + recognised.nearest[0]);
    } else if (recognised.kind == InputKind::kUnknown) {
      skip(input, "of no known kind; nearest: " + joined(recognised.nearest));
    } else if (recognised.kind == InputKind::kTrace) {
      skip(input, "a profiler trace: moetax analyze reads these");
    } else {
      read(input, recognised.kind);
    }
  }

 private:
  void skip(const Input& input, std::string why) { out_.skipped.push_back({input.name, std::move(why)}); }
  void checked(const Input& input, InputKind kind) { out_.checked.push_back({input.name, to_string(kind)}); }

  // "FILE: why" -> why; the file is said beside it.
  void failed(const Input& input, const Error& error) {
    std::string_view why = error.message;
    if (why.starts_with(input.name)) why.remove_prefix(std::min(why.size(), input.name.size() + 1));
    while (why.starts_with(" ")) why.remove_prefix(1);
    const bool line = !why.empty() && why.front() >= '0' && why.front() <= '9';  // "FILE:12: why"
    skip(input, (line ? "line " : "") + std::string(why));
  }

  template <class T>
  void keep(const Input& input, InputKind kind, Result<T> read, std::vector<T>& into) {
    if (!read) return failed(input, read.error());
    checked(input, kind);
    into.push_back(std::move(*read));
  }

  void read(const Input& input, InputKind kind) {
    switch (kind) {
      case InputKind::kModelConfig:
        return keep(input, kind, read_model(input.text, input.name), pool_.models);
      case InputKind::kDeepSpeed:
      case InputKind::kJobJson:
        return settings(input, kind, read_json_settings(input.text, input.name));
      case InputKind::kJobYaml:
        return settings(input, kind, read_yaml_settings(input.text, input.name));
      case InputKind::kJobToml:
        return settings(input, kind, read_toml_settings(input.text, input.name));
      case InputKind::kEnvironment:
        return settings(input, kind, read_environment(input.text, input.name));
      case InputKind::kScript:
        return script(input);
      case InputKind::kLoad:
        return load(input);
      case InputKind::kBill:
        return keep(input, kind, read_bill(input.text, input.name), pool_.bills);
      case InputKind::kMachineCosts:
        return measured(input);
      case InputKind::kTopology:
        return topology(input);
      case InputKind::kNcclLog:
        return nccl_log(input);
      case InputKind::kBandwidth:
        return bandwidth(input);
      case InputKind::kFlightDump:
        return flight(input);
      case InputKind::kInspector:
        return inspector(input);
      case InputKind::kHostLink:
        return host_link(input);
      case InputKind::kKernels:
        return kernels(input);
      case InputKind::kRanks:
        read_ranks(input.text, input.name, pool_.log);
        return log(input, kind);
      default:
        return log(input, kind);
    }
  }

  void settings(const Input& input, InputKind kind, SettingsFile read) {
    if (!read.trouble.empty()) skip(input, read.trouble);
    if (read.trouble.empty() && read.settings.empty()) skip(input, "holds no settings");
    if (read.settings.empty()) return;
    checked(input, kind);
    pool_.configs.push_back({input.name, kind, std::move(read.settings)});
  }

  void script(const Input& input) {
    Script script = read_script(input.text, input.name);
    if (script.launches.empty() && script.exported.empty()) {
      return skip(input, "a script without a command that starts a job");
    }
    checked(input, InputKind::kScript);
    // A command that was pasted together with what it printed.
    if (!input.text.starts_with("#!")) read_log(input.text, input.name, pool_.log);
    if (script.launches.empty()) {
      pool_.configs.push_back({input.name, InputKind::kScript, std::move(script.exported)});
    }
    for (Launch& launch : script.launches) {
      pool_.launches.push_back({input.name, std::move(launch), script.variables});
    }
  }

  // Ranks write a file each: those of the same model add up.
  void load(const Input& input) {
    const int experts = pool_.models.size() == 1 ? pool_.models[0].experts : 0;
    auto read = read_load(input.text, input.name, experts);
    if (!read && experts > 0) read = read_load(input.text, input.name, 0);
    keep(input, InputKind::kLoad, std::move(read), pool_.loads);
  }

  void measured(const Input& input) {
    auto read = read_measured(input.text, input.name);
    if (!read) return failed(input, read.error());
    checked(input, InputKind::kMachineCosts);
    pool_.measured = std::move(*read);
  }

  void log(const Input& input, InputKind kind) {
    read_log(input.text, input.name, pool_.log);
    checked(input, kind);
  }

  void nccl_log(const Input& input) {
    log(input, InputKind::kNcclLog);
    auto read = parse_nccl_log(input.text, input.name);
    if (!read) return;  // the words are there, its connections are not; what else a log says was read
    out_.understood.push_back(describe(*read));
    if (read->broken > 0) skip(input, fmt::format("{} lines about connections cannot be read", read->broken));
    pool_.nccl_logs.push_back({input.name, std::move(*read)});
  }

  // Tables often stand in a log.
  void bandwidth(const Input& input) {
    auto read = parse_nccl_tests(input.text, input.name);
    if (!read) return failed(input, read.error());
    for (NcclTestsTable& table : *read) pool_.bandwidths.push_back({input.name, std::move(table)});
    if (looks_like_nccl_log(input.text)) return nccl_log(input);
    checked(input, InputKind::kBandwidth);
  }

  void flight(const Input& input) {
    auto read = parse_flight_dump(input.text, input.name);
    if (!read) return failed(input, read.error());
    checked(input, InputKind::kFlightDump);
    if (!read->trouble.empty()) skip(input, "breaks off at " + read->trouble);
    if (pool_.flights.size() < 4) out_.understood.push_back(describe(*read));
    pool_.flights.push_back({input.name, std::move(*read)});
  }

  void inspector(const Input& input) {
    auto read = parse_nccl_inspector(input.text, input.name);
    if (!read) return failed(input, read.error());
    checked(input, InputKind::kInspector);
    if (!read->trouble.empty()) skip(input, "breaks off at " + read->trouble);
    if (pool_.inspectors.size() < 4) out_.understood.push_back(describe(*read));
    pool_.inspectors.push_back({input.name, std::move(*read)});
  }

  void host_link(const Input& input) {
    auto read = parse_nvbandwidth(input.text, input.name);
    if (!read) return failed(input, read.error());
    checked(input, InputKind::kHostLink);
    out_.understood.push_back(describe(*read));
    pool_.host_links.push_back({input.name, std::move(*read)});
  }

  void kernels(const Input& input) {
    auto read = parse_nsight_table(input.text, input.name);
    if (!read) return failed(input, read.error());
    checked(input, InputKind::kKernels);
    pool_.kernel_tables.push_back({input.name, std::move(*read)});
  }

  void topology(const Input& input) {
    auto read = parse_topologies(input.text, input.name);
    if (!read) return failed(input, read.error());
    checked(input, InputKind::kTopology);
    for (Topology& topology : *read) {
      for (const SkippedLine& line : topology.skipped()) {
        out_.skipped.push_back(
            {input.name, line.line > 0 ? fmt::format("line {}: {}", line.line, line.why) : line.why});
      }
      out_.understood.push_back(describe(topology));
      pool_.topologies.push_back({input.name, std::move(topology)});
    }
  }

  Pool& pool_;
  Examination& out_;
};

}  // namespace

Examination examine(const std::vector<Input>& inputs) {
  Examination out;
  Pool pool;
  Intake intake(pool, out);
  // Models first: a load without all experts in it is understood by them.
  std::vector<const Input*> order;
  for (const Input& input : inputs) order.push_back(&input);
  std::stable_partition(order.begin(), order.end(),
                        [](const Input* input) { return recognise(input->text).kind == InputKind::kModelConfig; });
  for (const Input* input : order) intake.take(*input);
  for (const Facts& facts : tell_stories(pool)) {
    Findings found;
    for (const Rule* rule : rules()) rule->check(facts, *rule, found);
    merge(found.take(), out.findings);
  }
  out.understood.insert(out.understood.end(), pool.understood.begin(), pool.understood.end());
  sort_findings(out.findings);
  return out;
}

void skip(Examination& examination, std::string file, std::string why) {
  examination.skipped.push_back({std::move(file), std::move(why)});
}

void ignore(Examination& examination, const std::string& id, const std::string& reason) {
  auto& findings = examination.findings;
  const auto kept =
      std::stable_partition(findings.begin(), findings.end(), [&](const Finding& f) { return f.id != id; });
  for (auto it = kept; it != findings.end(); ++it) examination.ignored.push_back({std::move(*it), reason});
  findings.erase(kept, findings.end());
}

}  // namespace moetax::doctor
