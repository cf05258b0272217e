// What a rank says of a collective when it joins: it travels as the note of its flag.
#pragma once

#include <cstdint>
#include <string>

#include "moetax/transport/collectives.h"

namespace moetax {

struct Collectives::Call {
  enum class Kind : std::uint8_t { kBarrier, kAllGather, kAgree, kGather, kReduce };
  Kind kind;
  const char* name;
  std::uint64_t number;
  std::uint64_t size;  // bytes a rank brings, or values (kReduce)

  Note note() const;
  std::string text(const Note& of) const;  // another rank's call as an error shows it
};

}  // namespace moetax
