// Times of traces, in nanoseconds without losing any.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace moetax {

// Microseconds as JSON writes them ("12", "1.7e3", "4203669604595.407", in quotes or not) in nanoseconds, rounded to
// the nearest. An integer beyond 9.2e15 can only be nanoseconds. Nothing for what is no finite number or out of range.
std::optional<std::int64_t> microseconds_as_ns(std::string_view text);

}  // namespace moetax
