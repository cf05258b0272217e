// What the doctor found, as text and as JSON.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "moetax/base/result.h"
#include "moetax/doctor/doctor.h"
#include "moetax/doctor/symptom.h"

namespace moetax {

// For people, at most 100 columns: findings, worst first, then what was checked, what was not, and why.
std::string to_text(const doctor::Examination& examination);
// moetax.findings/1, see schema/findings.schema.json; text that is not UTF-8 is repaired.
std::string to_json(const doctor::Examination& examination);

std::string to_text(const doctor::RuleText& rule);
std::string to_text(const doctor::Symptom& symptom);

// What makes a finding the same one in a later report: rule, file and evidence, without line numbers.
std::string fingerprint(const doctor::Finding& finding);
// The fingerprints of a moetax.findings/1 file, to accept what it holds. kBadInput naming `name`.
Result<std::set<std::string>> parse_baseline(std::string_view text, const std::string& name);

}  // namespace moetax
