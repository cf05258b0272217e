#include "doctor/settings.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "moetax/base/text.h"

namespace moetax::doctor {
namespace {

char lower_char(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

std::string_view last_part(std::string_view key) {
  const std::size_t dot = key.rfind('.');
  return dot == std::string_view::npos ? key : key.substr(dot + 1);
}

bool is_name(std::string_view key, std::string_view name) {
  return key.ends_with(name) && (key.size() == name.size() || key[key.size() - name.size() - 1] == '.');
}

// "8 train.py" is 8: a positional argument may follow the value.
std::string_view first_word(std::string_view text) {
  text = trim(text);
  return text.substr(0, text.find_first_of(" \t"));
}

}  // namespace

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), lower_char);
  return out;
}

bool contains(std::string_view text, std::string_view part) {
  const auto it = std::search(text.begin(), text.end(), part.begin(), part.end(),
                              [](char a, char b) { return lower_char(a) == lower_char(b); });
  return it != text.end();
}

std::string flag_key(std::string_view flag) {
  flag.remove_prefix(std::min(flag.find_first_not_of('-'), flag.size()));
  std::string key(flag);
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

void Settings::set(Setting setting) {
  by_last_part_[std::string(last_part(setting.key))].push_back(all_.size());
  all_.push_back(std::move(setting));
}

void Settings::add(const Settings& others) {
  for (const Setting& setting : others.all_) set(setting);
}

const Setting* Settings::find(Names names) const {
  const Setting* found = nullptr;
  for (const std::string_view name : names) {
    const auto it = by_last_part_.find(std::string(last_part(name)));
    if (it == by_last_part_.end()) continue;
    for (auto index = it->second.rbegin(); index != it->second.rend(); ++index) {
      const Setting& candidate = all_[*index];
      if (!is_name(candidate.key, name)) continue;
      if (!found || &candidate > found) found = &candidate;
      break;
    }
  }
  return found;
}

Evidence Settings::where(Names names) const {
  const Setting* setting = find(names);
  return setting ? setting->at : Evidence{};
}

std::optional<std::string> Settings::resolved(const Setting& setting) const {
  const std::size_t begin = setting.value.find("${");
  if (begin == std::string::npos) return setting.value;
  const std::size_t end = setting.value.find('}', begin);
  if (end == std::string::npos) return std::nullopt;
  const std::string name = setting.value.substr(begin + 2, end - begin - 2);
  const auto it = by_last_part_.find(name);
  if (it == by_last_part_.end()) return std::nullopt;
  const std::string& value = all_[it->second.back()].value;
  if (value.find("${") != std::string::npos) return std::nullopt;
  return setting.value.substr(0, begin) + value + setting.value.substr(end + 1);
}

std::optional<std::string> Settings::word(Names names) const {
  const Setting* setting = find(names);
  const auto value = setting ? resolved(*setting) : std::nullopt;
  if (!value) return std::nullopt;
  return lower(trim(*value));
}

std::optional<long long> Settings::whole(Names names) const {
  const auto value = word(names);
  constexpr long long kMost = 1'000'000'000'000'000;  // sums and small products of two stay in range
  const auto number = value ? parse_number<long long>(first_word(*value)) : std::nullopt;
  return number && *number <= kMost && *number >= -kMost ? number : std::nullopt;
}

std::optional<double> Settings::number(Names names) const {
  const auto value = word(names);
  return value ? parse_number<double>(first_word(*value)) : std::nullopt;
}

std::optional<bool> Settings::flag(Names names) const {
  constexpr std::array<std::string_view, 8> kOff = {"false", "0", "no", "off", "none", "null", "disabled", ""};
  const auto value = word(names);
  if (!value) return std::nullopt;
  return std::find(kOff.begin(), kOff.end(), *value) == kOff.end();
}

}  // namespace moetax::doctor
