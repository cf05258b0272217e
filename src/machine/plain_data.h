// Data as programs dump them: numbers, texts, lists and dictionaries, and nothing else.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moetax {

enum class PlainKind : std::uint8_t { kNull, kBool, kWhole, kNumber, kText, kList, kMap };

class PlainValue;

// Values by number. One value may stand in several places; a list may hold itself, so walk it by what is expected of
// it.
class PlainData {
 public:
  using Id = std::uint32_t;
  static constexpr Id kNull = 0;
  static constexpr std::size_t kMostValues = std::size_t{1} << 22;

  PlainData() : nodes_(1) {}
  bool full() const { return nodes_.size() >= kMostValues; }
  Id add_bool(bool value) { return add({PlainKind::kBool, value ? 1 : 0, 0}); }
  Id add_whole(std::int64_t value) { return add({PlainKind::kWhole, value, 0}); }
  Id add_number(double value) { return add({PlainKind::kNumber, 0, value}); }
  Id add_text(std::string_view text);
  Id add_container(PlainKind kind);          // kList or kMap, empty
  void append(Id container, Id value);       // to a list
  void set(Id container, Id key, Id value);  // in a map
  PlainKind kind(Id id) const { return nodes_[id].kind; }
  PlainValue operator[](Id id) const;

 private:
  friend class PlainValue;
  struct Node {
    PlainKind kind = PlainKind::kNull;
    std::int64_t whole = 0;  // or an index of texts_ or items_
    double number = 0;
  };
  Id add(Node node);

  std::vector<Node> nodes_;
  std::deque<std::string> texts_;
  std::deque<std::vector<Id>> items_;  // of a map: key, value, key, value, ...
};

// A value in its place. What is not there is null, and everything may be asked of everything.
class PlainValue {
 public:
  PlainValue(const PlainData& data, PlainData::Id id) : data_(&data), id_(id) {}

  PlainKind kind() const { return node().kind; }
  std::string_view text() const;              // empty when it is none
  std::optional<double> number() const;       // finite
  std::optional<std::int64_t> whole() const;  // a number without a fraction in range, or a text that is one
  bool is_true() const { return kind() == PlainKind::kBool && node().whole != 0; }
  std::size_t size() const;                           // of a list or a map
  PlainValue operator[](std::size_t i) const;         // of a list
  PlainValue operator[](std::string_view key) const;  // of a map: the last with that name
  std::string_view key(std::size_t i) const;          // of a map
  PlainValue value(std::size_t i) const;

 private:
  const PlainData::Node& node() const { return data_->nodes_[id_]; }
  const std::vector<PlainData::Id>& items() const;
  const PlainData* data_;
  PlainData::Id id_;
};

struct PlainRead {
  PlainData data;
  std::vector<PlainData::Id> values;  // one after another in the file
  std::string trouble;                // "byte 120: ...", empty: all of it was read
};

// JSON values one after another, and what Python prints of such data: tuples, None, True, single quotes. Bare words are
// texts. Text between values is left out. A value that breaks off is what was there of it.
PlainRead read_plain_text(std::string_view text);

// A pickle of plain data, of any protocol. Nothing in it is run: what stands for an object becomes null, but for the
// typed lists that torch.jit writes. A pickle that breaks off is what was there of it.
PlainRead read_pickle(std::string_view bytes);
bool looks_like_pickle(std::string_view bytes);

}  // namespace moetax
