// What the doctor finds: what is wrong, where it is written, what it costs, what to type, and how sure that is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace moetax::doctor {

enum class Severity : std::uint8_t { kNote, kWarning, kError };
enum class Confidence : std::uint8_t { kPossible, kLikely, kCertain };
const char* to_string(Severity severity);      // "note", "warning", "error"
const char* to_string(Confidence confidence);  // "possible", "likely", "certain"

// Where it is written. Lines count from 1; 0: no line of its own (a binary file, a sum over the file).
struct Evidence {
  std::string file;
  int line = 0;
  std::string text;
};

// Computed from the input. The text is always there: where no number can be had it says what is missing.
struct Cost {
  std::string text;
  std::optional<double> us;     // of a step
  std::optional<double> bytes;  // of a step and rank
  std::optional<double> share;  // of a step
};

struct Finding {
  std::string id;  // of the rule
  Severity severity = Severity::kWarning;
  std::string title;  // one line
  std::string cause;  // why this is so
  std::vector<Evidence> evidence;
  Cost cost;
  std::string fix;  // something to type
  Confidence confidence = Confidence::kLikely;
};

}  // namespace moetax::doctor
