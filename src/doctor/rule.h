// A rule looks at the facts of one job and adds what it finds. One file each in rules/, one table in registry.cpp.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "doctor/facts.h"
#include "moetax/doctor/finding.h"

namespace moetax::doctor {

struct Rule;

// Where rules put what they find.
class Findings {
 public:
  // With the rule's id and usual severity.
  Finding& add(const Rule& rule, std::string title);
  std::vector<Finding> take() { return std::move(found_); }

 private:
  std::vector<Finding> found_;
};

struct Rule {
  std::string_view id;
  Severity severity;
  std::string_view title;        // what is wrong, in general
  std::string_view explanation;  // what happens and why, for --explain
  std::string_view source;       // where this is known from
  // Adds findings, or nothing: a fact that is not known never makes one.
  void (*check)(const Facts& facts, const Rule& rule, Findings& out);
};

std::span<const Rule* const> rules();

}  // namespace moetax::doctor
