// The doctor: any mix of launch scripts, configurations, logs, topologies, loads and bills in; findings out.
//
//   const auto examination = moetax::doctor::examine({{"run.sh", text}, {"config.json", model}});
//   for (const auto& finding : examination.findings) ...
//
// Every input is recognised by what it holds, not by its name. What is known of a job, from all of them, goes through a
// table of rules. A rule speaks only of facts that are there: what is unknown finds nothing.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "moetax/doctor/finding.h"

namespace moetax::doctor {

struct Input {
  std::string name;  // as the user knows it; stands in messages and evidence
  std::string text;
  std::string left_out = {};  // what of it `text` does not hold, in words; empty: nothing
};

struct Checked {
  std::string file;
  std::string kind;  // "Hugging Face model configuration", "launch script", ...
};

struct Skipped {
  std::string file;
  std::string why;
};

struct Ignored {
  Finding finding;
  std::string reason;
};

struct Examination {
  std::vector<Checked> checked;
  std::vector<Skipped> skipped;         // files, or parts of them
  std::vector<std::string> understood;  // one line for each job, model, load, ... that was put together
  std::vector<Finding> findings;        // worst first
  std::vector<Ignored> ignored;
};

// Never fails: what cannot be used is in `skipped`.
Examination examine(const std::vector<Input>& inputs);

// A file that could not be opened, and so on: joins `skipped`.
void skip(Examination& examination, std::string file, std::string why);

// Moves findings of the rule `id` to `ignored`.
void ignore(Examination& examination, const std::string& id, const std::string& reason);

// Names, paths, addresses and host names in files and evidence become stable stand-ins (file-1, host-2, ...), so that
// a report can be shown to others. Flags and numbers stay.
void redact(Examination& examination);

// What --explain prints of a rule.
struct RuleText {
  std::string_view id;
  Severity severity;  // the usual one
  std::string_view title;
  std::string_view explanation;  // what happens and why
  std::string_view source;       // where this is known from
};
std::vector<RuleText> rule_texts();
// The rule's text, or the ids nearest to what was asked for.
struct RuleSearch {
  std::vector<RuleText> found;  // one, or none
  std::vector<std::string_view> nearest;
};
RuleSearch find_rule_text(std::string_view id);

}  // namespace moetax::doctor
