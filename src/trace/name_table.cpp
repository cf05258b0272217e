#include "moetax/trace/name_table.h"

#include <fmt/format.h>

#include <functional>
#include <nlohmann/json.hpp>

namespace moetax {
namespace {

// What cannot be unescaped keeps its backslashes.
std::string unescaped(std::string_view escaped) {
  if (escaped.find('\\') == std::string_view::npos) return std::string(escaped);
  const auto json = nlohmann::json::parse(fmt::format("\"{}\"", escaped), nullptr, false);
  return json.is_string() ? json.get<std::string>() : std::string(escaped);
}

}  // namespace

NameTable::Slot& NameTable::find(std::string_view key, std::uint64_t hash) {
  if ((keys_.size() + 1) * 2 > slots_.size()) grow();
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t i = hash & mask;; i = (i + 1) & mask) {
    Slot& slot = slots_[i];
    if (slot.id == kFree || (slot.hash == hash && keys_[slot.id] == key)) return slot;
  }
}

void NameTable::grow() {
  std::vector<Slot> old(std::max<std::size_t>(64, slots_.size() * 2));
  old.swap(slots_);
  const std::size_t mask = slots_.size() - 1;
  for (const Slot& slot : old) {
    if (slot.id == kFree) continue;
    std::size_t i = slot.hash & mask;
    while (slots_[i].id != kFree) i = (i + 1) & mask;
    slots_[i] = slot;
  }
}

NameTable::Id NameTable::intern_json(std::string_view escaped) {
  const std::uint64_t hash = std::hash<std::string_view>{}(escaped);
  Slot& slot = find(escaped, hash);
  if (slot.id == kFree) {
    slot = {hash, static_cast<Id>(keys_.size())};
    keys_.emplace_back(escaped);
    texts_.push_back(unescaped(escaped));
  }
  return slot.id;
}

NameTable::Id NameTable::intern(std::string_view text) {
  const std::uint64_t hash = std::hash<std::string_view>{}(text);
  Slot& slot = find(text, hash);
  if (slot.id == kFree) {
    slot = {hash, static_cast<Id>(keys_.size())};
    keys_.emplace_back(text);
    texts_.emplace_back(text);
  }
  return slot.id;
}

}  // namespace moetax
