// From what somebody sees ("hangs in dispatch") to causes, the most likely first, and how to tell them apart.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace moetax::doctor {

struct Cause {
  std::string_view what;
  std::string_view tell_apart;  // what is different when it is this one
  std::string_view rule;        // that finds it, empty: none
};

struct Symptom {
  std::string_view name;
  std::string_view words;                // that describe it, separated by blanks
  std::span<const Cause> causes;         // the most likely first
  std::span<const char* const> collect;  // what to put before the doctor
};

std::span<const Symptom> symptoms();

// The symptoms that share words with `text`, best first; none when no word fits.
std::vector<const Symptom*> find_symptoms(std::string_view text);

}  // namespace moetax::doctor
