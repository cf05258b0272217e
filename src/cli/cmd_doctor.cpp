// moetax doctor: cause, evidence, price and fix from configurations, launch scripts, topologies, logs, loads and bills.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "cli/cli.h"
#include "cli/doctor_inputs.h"
#include "cli/output_file.h"
#include "moetax/base/file.h"
#include "moetax/base/text.h"
#include "moetax/machine/topology.h"
#include "moetax/report/bill.h"
#include "moetax/report/findings.h"
#include "moetax/report/topology_text.h"

namespace moetax::cli {
namespace {

struct DoctorOptions {
  std::vector<std::string> files;
  bool here = false, redact = false, list = false, draw = false;
  std::string explain, symptom, json, baseline, fail_on;
  std::vector<std::string> ignore;
};

// "ID=reason": a reason has to be there, so that somebody can ask about it later.
Result<std::pair<std::string, std::string>> parse_ignore(const std::string& text) {
  const std::size_t equals = text.find('=');
  const std::string id = text.substr(0, equals);
  if (equals == std::string::npos || equals + 1 == text.size()) {
    return fail(ErrorCode::kUsage, fmt::format("--ignore {}: expected ID=reason", in_quotes(text)));
  }
  if (!id.starts_with("bill-") && doctor::find_rule_text(id).found.empty()) {
    return fail(ErrorCode::kUsage, fmt::format("--ignore: there is no rule {}; nearest: {}", in_quotes(id),
                                               fmt::join(doctor::find_rule_text(id).nearest, ", ")));
  }
  return std::pair(id, text.substr(equals + 1));
}

Result<std::optional<doctor::Severity>> parse_fail_on(const std::string& text) {
  for (const auto severity : {doctor::Severity::kNote, doctor::Severity::kWarning, doctor::Severity::kError}) {
    if (text == doctor::to_string(severity)) return std::optional(severity);
  }
  if (text.empty()) return std::optional<doctor::Severity>();
  return fail(ErrorCode::kUsage, fmt::format("--fail-on {}: expected note, warning or error", in_quotes(text)));
}

Result<std::optional<DoctorOptions>> parse(int argc, char** argv) {
  DoctorOptions options;
  CLI::App app("Finds what is wrong with a Mixture-of-Experts job, what it costs, and what to type.", "moetax doctor");
  app.add_option("files", options.files,
                 "model configs, launch scripts, DeepSpeed/YAML/TOML configs, topologies, logs, expert loads, bills; "
                 "- for standard input");
  app.add_flag("--here", options.here, "look at this machine too: environment, topology, limits");
  app.add_option("--explain", options.explain, "tell what a rule is about, by its id; 'list' names them all");
  app.add_option("--symptom", options.symptom, "from what you see to its causes, e.g. \"timeout in dispatch\"");
  app.add_option("--json", options.json, "write moetax.findings/1 here (- for standard output, without the text)");
  app.add_option("--fail-on", options.fail_on, "exit 1 when there is a finding of this severity or worse");
  app.add_option("--ignore", options.ignore, "ID=reason: accept what this rule finds")->allow_extra_args(false);
  app.add_option("--baseline", options.baseline, "accept the findings in this moetax.findings/1 file");
  app.add_flag("--draw", options.draw, "draw each machine whose topology is among the files");
  app.add_flag("--redact", options.redact, "stand-ins for file, host and path names, for sharing");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return std::optional<DoctorOptions>();
  } catch (const CLI::ParseError& error) {
    return fail(ErrorCode::kUsage, fmt::format("doctor: {} (moetax doctor --help lists the options)", error.what()));
  }
  if (options.files.empty() && !options.here && options.explain.empty() && options.symptom.empty()) {
    return fail(ErrorCode::kUsage, "doctor: no files; give some, or --here, --symptom TEXT, --explain ID");
  }
  return std::optional(std::move(options));
}

Result<int> explain(const std::string& id) {
  if (id == "list") {
    std::string text;
    for (const auto& rule : doctor::rule_texts()) {
      text += fmt::format("{:<26} {:<8} {}\n", rule.id, doctor::to_string(rule.severity), rule.title);
    }
    MOETAX_TRY(write_text("-", text));
    return 0;
  }
  const auto search = doctor::find_rule_text(id);
  if (search.found.empty()) {
    return fail(ErrorCode::kUsage, fmt::format("--explain: there is no rule {}; nearest: {} (--explain list names all)",
                                               in_quotes(id), fmt::join(search.nearest, ", ")));
  }
  MOETAX_TRY(write_text("-", to_text(search.found.front())));
  return 0;
}

Result<int> show_symptom(const std::string& text) {
  const auto found = doctor::find_symptoms(text);
  if (found.empty()) {
    std::string known;
    for (const auto& symptom : doctor::symptoms()) known += fmt::format("\n  {}", symptom.name);
    return fail(ErrorCode::kUsage, fmt::format("--symptom {}: no known one; these are:{}", in_quotes(text), known));
  }
  std::string out;
  for (const doctor::Symptom* symptom : found) out += (out.empty() ? "" : "\n") + to_text(*symptom);
  MOETAX_TRY(write_text("-", out));
  return 0;
}

Result<void> accept(const DoctorOptions& options, doctor::Examination& examination) {
  for (const std::string& text : options.ignore) {
    MOETAX_ASSIGN(const auto pair, parse_ignore(text));
    doctor::ignore(examination, pair.first, pair.second);
  }
  if (options.baseline.empty()) return {};
  MOETAX_ASSIGN(const std::string text, read_text_file(options.baseline, std::size_t{64} << 20));
  MOETAX_ASSIGN(const auto accepted, parse_baseline(text, options.baseline));
  auto& findings = examination.findings;
  const auto kept = std::stable_partition(findings.begin(), findings.end(), [&](const doctor::Finding& finding) {
    return accepted.count(fingerprint(finding)) == 0;
  });
  for (auto it = kept; it != findings.end(); ++it) {
    examination.ignored.push_back({std::move(*it), "in the baseline " + options.baseline});
  }
  findings.erase(kept, findings.end());
  return {};
}

// The machines of all topologies, each below its file's name.
std::string drawings(const DoctorInputs& inputs, bool redact) {
  std::string text;
  for (const doctor::Input& input : inputs.read) {
    const auto machines = parse_topologies(input.text, input.name);
    if (!machines) continue;
    for (const Topology& machine : *machines) {
      text += redact ? "\n" : fmt::format("\n{}:{}\n", input.name, machine.line());
      text += to_text(machine);
    }
  }
  return text;
}

Result<int> run(const DoctorOptions& options) {
  MOETAX_ASSIGN(const auto fail_on, parse_fail_on(options.fail_on));
  MOETAX_TRY(check_writable(options.json));
  const DoctorInputs inputs = read_inputs(options.files, options.here);
  doctor::Examination examination = doctor::examine(inputs.read);
  for (const doctor::Skipped& skipped : inputs.unreadable) doctor::skip(examination, skipped.file, skipped.why);
  MOETAX_TRY(accept(options, examination));
  const auto bad = [&](const doctor::Finding& finding) { return fail_on && finding.severity >= *fail_on; };
  const bool crossed = std::any_of(examination.findings.begin(), examination.findings.end(), bad);
  if (options.redact) doctor::redact(examination);
  if (options.json != "-") {
    MOETAX_TRY(write_text("-", to_text(examination) + (options.draw ? drawings(inputs, options.redact) : "")));
  }
  if (!options.json.empty()) MOETAX_TRY(write_text(options.json, to_json(examination)));
  if (crossed) return kThresholdCrossed;
  return examination.checked.empty() ? exit_code(ErrorCode::kBadInput) : 0;
}

}  // namespace

int cmd_doctor(int argc, char** argv) {
  const auto options = parse(argc, argv);
  if (!options) return report_error(options.error());
  if (!*options) return 0;
  const Result<int> status = !(*options)->explain.empty()   ? explain((*options)->explain)
                             : !(*options)->symptom.empty() ? show_symptom((*options)->symptom)
                                                            : run(**options);
  return status ? *status : report_error(status.error());
}

}  // namespace moetax::cli
