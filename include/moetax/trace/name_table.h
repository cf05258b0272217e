// Strings kept once and named by a number. Traces repeat a few thousand names millions of times.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace moetax {

class NameTable {
 public:
  using Id = std::uint32_t;

  // The number of `text`, which is copied when it is new. Numbers count from 0 in the order of arrival.
  Id intern(std::string_view text);
  // As JSON wrote it, without the quotes: "a\u0041" and "aA" have two numbers and one text.
  Id intern_json(std::string_view escaped);
  std::string_view operator[](Id id) const { return texts_[id]; }
  std::size_t size() const { return texts_.size(); }

 private:
  struct Slot {
    std::uint64_t hash = 0;
    Id id = kFree;
  };
  static constexpr Id kFree = UINT32_MAX;
  Slot& find(std::string_view key, std::uint64_t hash);
  void grow();

  std::deque<std::string> keys_;   // what is looked up
  std::deque<std::string> texts_;  // what it means
  std::vector<Slot> slots_;        // open addressing, a power of two of them
};

}  // namespace moetax
