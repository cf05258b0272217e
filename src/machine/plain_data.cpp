#include "machine/plain_data.h"

#include <cmath>

#include "moetax/base/text.h"

namespace moetax {

PlainData::Id PlainData::add(Node node) {
  if (full()) return kNull;
  nodes_.push_back(node);
  return static_cast<Id>(nodes_.size() - 1);
}

PlainData::Id PlainData::add_text(std::string_view text) {
  if (full()) return kNull;
  texts_.emplace_back(text);
  return add({PlainKind::kText, static_cast<std::int64_t>(texts_.size() - 1), 0});
}

PlainData::Id PlainData::add_container(PlainKind kind) {
  if (full()) return kNull;
  items_.emplace_back();
  return add({kind, static_cast<std::int64_t>(items_.size() - 1), 0});
}

void PlainData::append(Id container, Id value) {
  if (kind(container) == PlainKind::kList) items_[static_cast<std::size_t>(nodes_[container].whole)].push_back(value);
}

void PlainData::set(Id container, Id key, Id value) {
  if (kind(container) != PlainKind::kMap) return;
  auto& items = items_[static_cast<std::size_t>(nodes_[container].whole)];
  items.push_back(key);
  items.push_back(value);
}

PlainValue PlainData::operator[](Id id) const {
  return {*this, id};
}

const std::vector<PlainData::Id>& PlainValue::items() const {
  static const std::vector<PlainData::Id> kNone;
  const bool held = kind() == PlainKind::kList || kind() == PlainKind::kMap;
  return held ? data_->items_[static_cast<std::size_t>(node().whole)] : kNone;
}

std::string_view PlainValue::text() const {
  if (kind() != PlainKind::kText) return {};
  return data_->texts_[static_cast<std::size_t>(node().whole)];
}

std::optional<double> PlainValue::number() const {
  if (kind() == PlainKind::kWhole) return static_cast<double>(node().whole);
  const auto value = kind() == PlainKind::kText     ? parse_number<double>(text())
                     : kind() == PlainKind::kNumber ? std::optional(node().number)
                                                    : std::nullopt;
  return value && std::isfinite(*value) ? value : std::nullopt;
}

std::optional<std::int64_t> PlainValue::whole() const {
  if (kind() == PlainKind::kWhole) return node().whole;
  if (kind() == PlainKind::kText) return parse_number<std::int64_t>(text());
  const auto value = number();
  if (!value || *value != std::floor(*value) || std::abs(*value) > 9e15) return std::nullopt;
  return static_cast<std::int64_t>(*value);
}

std::size_t PlainValue::size() const {
  return kind() == PlainKind::kMap ? items().size() / 2 : items().size();
}

PlainValue PlainValue::operator[](std::size_t i) const {
  return {*data_, kind() == PlainKind::kList && i < items().size() ? items()[i] : PlainData::kNull};
}

PlainValue PlainValue::operator[](std::string_view name) const {
  for (std::size_t i = kind() == PlainKind::kMap ? size() : 0; i-- > 0;) {
    if (key(i) == name) return value(i);
  }
  return {*data_, PlainData::kNull};
}

std::string_view PlainValue::key(std::size_t i) const {
  return kind() == PlainKind::kMap && i < size() ? PlainValue(*data_, items()[2 * i]).text() : std::string_view();
}

PlainValue PlainValue::value(std::size_t i) const {
  return {*data_, kind() == PlainKind::kMap && i < size() ? items()[2 * i + 1] : PlainData::kNull};
}

}  // namespace moetax
