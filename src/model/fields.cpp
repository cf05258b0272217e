#include "model/fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "moetax/base/text.h"

namespace moetax {
namespace {

using nlohmann::json;

// Numbers are shown as they are, everything else by its type: a value may be a megabyte long.
std::string show(const json& value) {
  if (value.is_number_unsigned()) return fmt::to_string(value.get<std::uint64_t>());
  if (value.is_number_integer()) return fmt::to_string(value.get<std::int64_t>());
  if (value.is_number_float()) return fmt::format("{:.6g}", value.get<double>());
  if (value.is_string()) return in_quotes(value.get_ref<const std::string&>());
  return fmt::format("of type {}", value.type_name());
}

// Whole numbers only: 8.0 and "8" are not how any writer spells a size. Unsigned values beyond int64 are not whole
// here.
std::optional<std::int64_t> as_whole(const json& value) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > std::uint64_t{INT64_MAX}) return std::nullopt;
  return value.get<std::int64_t>();
}

std::string range_text(std::int64_t min, std::int64_t max) {
  return fmt::format("a whole number from {} to {}", min, max);
}

}  // namespace

Fields::Fields(const json& object, std::string prefix) : object_(&object), prefix_(std::move(prefix)) {
  const auto ffn = object.find("ffn_config");
  if (ffn != object.end() && ffn->is_object()) ffn_ = &*ffn;
}

std::optional<Fields::Hit> Fields::find(Keys keys) const {
  for (const json* object : {object_, ffn_}) {
    if (!object) continue;
    for (const char* key : keys) {
      const auto it = object->find(key);
      if (it == object->end() || it->is_null()) continue;
      return Hit{fmt::format("{}{}{}", prefix_, object == ffn_ ? "ffn_config." : "", key), &*it};
    }
  }
  return std::nullopt;
}

std::string Fields::name_of(Keys keys) const {
  const auto hit = find(keys);
  return hit ? hit->key : *keys.begin();
}

void Fields::problem(std::string message) {
  if (!problem_) problem_ = std::move(message);
}

void Fields::expected(const Hit& hit, std::string_view what) {
  problem(fmt::format("{} is {}, expected {}", hit.key, show(*hit.value), what));
}

std::int64_t Fields::whole(Keys keys, std::int64_t min, std::int64_t max, std::optional<std::int64_t> fallback) {
  const auto hit = find(keys);
  if (!hit) {
    if (!fallback) problem(fmt::format("none of the keys {} is there", fmt::join(keys, ", ")));
    return fallback.value_or(min);
  }
  const auto value = as_whole(*hit->value);
  if (value && *value >= min && *value <= max) return *value;
  expected(*hit, range_text(min, max));
  return fallback.value_or(min);
}

double Fields::number(Keys keys, double min, double max, double fallback) {
  const auto hit = find(keys);
  if (!hit) return fallback;
  if (hit->value->is_number()) {
    const auto value = hit->value->get<double>();
    if (value >= min && value <= max) return value;
  }
  expected(*hit, fmt::format("a number from {:g} to {:g}", min, max));
  return fallback;
}

bool Fields::flag(Keys keys, bool fallback) {
  const auto hit = find(keys);
  if (!hit) return fallback;
  if (hit->value->is_boolean()) return hit->value->get<bool>();
  expected(*hit, "true or false");
  return fallback;
}

std::string Fields::word(Keys keys, std::string_view fallback) {
  const auto hit = find(keys);
  if (!hit) return std::string(fallback);
  if (hit->value->is_string()) return hit->value->get<std::string>();
  expected(*hit, "a string");
  return std::string(fallback);
}

std::vector<std::int64_t> Fields::whole_list(Keys keys, std::int64_t min, std::int64_t max) {
  std::vector<std::int64_t> values;
  const auto hit = find(keys);
  if (!hit) return values;
  if (!hit->value->is_array()) expected(*hit, "a list");
  if (!hit->value->is_array()) return values;
  for (const json& item : *hit->value) {
    const auto value = item.is_boolean() ? std::optional<std::int64_t>(item.get<bool>()) : as_whole(item);
    if (value && *value >= min && *value <= max) {
      values.push_back(*value);
      continue;
    }
    expected({fmt::format("{}[{}]", hit->key, values.size()), &item}, range_text(min, max));
    return {};
  }
  return values;
}

}  // namespace moetax
