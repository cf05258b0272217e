// The doctor's report for people.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "moetax/report/findings.h"
#include "report/format.h"

namespace moetax {
namespace {

using doctor::Examination;
using doctor::Finding;
using doctor::Severity;
using report::wrap;

std::string headline(const Examination& examination) {
  const auto count = [&](Severity severity) {
    return static_cast<std::size_t>(
        std::count_if(examination.findings.begin(), examination.findings.end(),
                      [&](const Finding& finding) { return finding.severity == severity; }));
  };
  if (examination.checked.empty()) return "Nothing could be checked.\n";
  if (examination.findings.empty()) return "Nothing wrong found; these were checked.\n";
  std::vector<std::string> parts;
  const auto add = [&](Severity severity, std::string_view noun) {
    if (count(severity) > 0) parts.push_back(report::plural(count(severity), noun));
  };
  add(Severity::kError, "error");
  add(Severity::kWarning, "warning");
  add(Severity::kNote, "note");
  return report::join(parts) + ", worst first.\n";
}

std::string place(const doctor::Evidence& evidence) {
  if (evidence.file.empty()) return "";
  return evidence.line > 0 ? fmt::format("{}:{}: ", evidence.file, evidence.line) : fmt::format("{}: ", evidence.file);
}

std::string finding_text(const Finding& finding, std::size_t number) {
  std::string text =
      wrap(fmt::format("{}. {} [{}]: {}", number, doctor::to_string(finding.severity), finding.id, finding.title), 3);
  const auto line = [&](std::string_view name, const std::string& what) {
    if (!what.empty()) text += wrap(fmt::format("   {:<9}{}", name, what), 12);
  };
  line("why", finding.cause);
  for (const doctor::Evidence& evidence : finding.evidence) line("seen", place(evidence) + evidence.text);
  line("costs", finding.cost.text);
  line("fix", finding.fix);
  line("sure", doctor::to_string(finding.confidence));
  return text + "\n";
}

}  // namespace

std::string to_text(const Examination& examination) {
  std::string text = headline(examination) + "\n";
  std::size_t number = 0;
  for (const Finding& finding : examination.findings) text += finding_text(finding, ++number);
  for (const std::string& line : examination.understood) text += wrap("understood  " + line, 12);
  // Hundreds of ranks write a file each; kinds are told with a few names.
  std::map<std::string, std::vector<std::string>> by_kind;
  for (const doctor::Checked& checked : examination.checked) by_kind[checked.kind].push_back(checked.file);
  for (auto& [kind, files] : by_kind) {
    constexpr std::size_t kShown = 6;
    const std::size_t more = files.size() > kShown ? files.size() - kShown : 0;
    files.resize(files.size() - more);
    text += wrap(fmt::format("checked     {}: {}{}", kind, report::join(files),
                             more > 0 ? fmt::format(" and {} more", more) : ""),
                 12);
  }
  for (const doctor::Skipped& skipped : examination.skipped) {
    text += wrap(fmt::format("skipped     {}: {}", skipped.file, skipped.why), 12);
  }
  for (const doctor::Ignored& ignored : examination.ignored) {
    text += wrap(fmt::format("ignored     {}: {} ({})", ignored.finding.id, ignored.finding.title, ignored.reason), 12);
  }
  if (!examination.findings.empty()) text += "\nmoetax doctor --explain ID tells more of a finding.\n";
  return text;
}

std::string to_text(const doctor::RuleText& rule) {
  return wrap(fmt::format("{} ({}): {}", rule.id, doctor::to_string(rule.severity), rule.title), 2) + "\n" +
         wrap(rule.explanation, 0) + "\n" + wrap(fmt::format("known from: {}", rule.source), 2);
}

std::string to_text(const doctor::Symptom& symptom) {
  std::string text = fmt::format("{}\n\n", symptom.name);
  std::size_t number = 0;
  for (const doctor::Cause& cause : symptom.causes) {
    text += wrap(fmt::format("{}. {}", ++number, cause.what), 3);
    text += wrap(fmt::format("   it is this one if: {}", cause.tell_apart), 6);
    if (!cause.rule.empty()) text += wrap(fmt::format("   moetax doctor finds it as {}", cause.rule), 6);
  }
  text += "\nwhat to put before the doctor\n";
  for (const char* item : symptom.collect) text += wrap(fmt::format("  - {}", item), 4);
  return text;
}

}  // namespace moetax
