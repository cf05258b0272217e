// Names and values as a job's files give them, each with the place where it is written.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "moetax/doctor/finding.h"

namespace moetax::doctor {

// Flags lose their dashes, and '-' becomes '_' in them: "--expert-parallel-size" is "expert_parallel_size". Nested keys
// are joined by dots. Environment variables keep their capitals.
struct Setting {
  std::string key;
  std::string value;  // "true" for a flag without one; "${NAME}" where a variable is unknown
  Evidence at;
};

class Settings {
 public:
  using Names = std::initializer_list<std::string_view>;

  void set(Setting setting);
  void add(const Settings& others);  // theirs come later
  const std::vector<Setting>& all() const { return all_; }
  bool empty() const { return all_.empty(); }

  // The last one whose key is one of the names, or ends with it after a dot. Variables in values are replaced by
  // environment variables of the same set.
  const Setting* find(Names names) const;
  std::optional<std::string> word(Names names) const;  // lower case
  std::optional<long long> whole(Names names) const;
  std::optional<double> number(Names names) const;
  Evidence where(Names names) const;  // of find(); empty when there is none
  // Said to be on or off; nothing when it is not said or not known.
  std::optional<bool> flag(Names names) const;
  bool on(Names names) const { return flag(names).value_or(false); }
  bool off(Names names) const { return !flag(names).value_or(true); }
  // What the value says where a variable may stand in it; nothing when that is unknown.
  std::optional<std::string> resolved(const Setting& setting) const;

 private:
  std::vector<Setting> all_;
  std::unordered_map<std::string, std::vector<std::size_t>> by_last_part_;
};

// "--expert-parallel-size" -> "expert_parallel_size".
std::string flag_key(std::string_view flag);

std::string lower(std::string_view text);
// Whether `text` holds `part`, letters of either case.
bool contains(std::string_view text, std::string_view part);

}  // namespace moetax::doctor
