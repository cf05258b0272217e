// Result<T>: a value, or an Error that says what went wrong, where, and at which rank.
//
// The library reports everything that can fail at run time (a bad file, a dead peer, a missed deadline) as a Result;
// programmer errors are asserts. No exception leaves the library. Member names follow std::expected.
#pragma once

#include <cassert>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "moetax/base/ids.h"

namespace moetax {

// Each code maps to one exit code of the command line (in brackets).
enum class ErrorCode {
  kUsage,        // [2] the caller's options contradict each other or are out of range
  kBadInput,     // [3] a file or a value does not hold what it should
  kUnavailable,  // [4] this machine or build cannot do it (memory, cores, a missing library)
  kPeerFailed,   // [5] another rank died, is late beyond the deadline, or disagrees
  kInternal,     // [4] the operating system or a library refused; the message says what
};

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;     // one line: the place, what was expected, what to do
  Rank rank = kNoRank;     // the rank at fault, when one is
  std::string where = {};  // file:line, option or exchange, when the message does not already say
};

// Construct a failed Result: `return Unexpected(Error{...});`.
class Unexpected {
 public:
  explicit Unexpected(Error error) : error_(std::move(error)) {}
  Error& error() { return error_; }

 private:
  Error error_;
};

// Short form of the above: `return fail(ErrorCode::kBadInput, fmt::format(...));`.
inline Unexpected fail(ErrorCode code, std::string message, Rank rank = kNoRank) {
  return Unexpected(Error{code, std::move(message), rank});
}

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Unexpected failure) : state_(std::in_place_index<1>, std::move(failure.error())) {}

  bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }
  T& value() & {
    assert(has_value());
    return *std::get_if<0>(&state_);
  }
  const T& value() const& {
    assert(has_value());
    return *std::get_if<0>(&state_);
  }
  T&& value() && {
    assert(has_value());
    return std::move(*std::get_if<0>(&state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  Error& error() {
    assert(!has_value());
    return *std::get_if<1>(&state_);
  }
  const Error& error() const {
    assert(!has_value());
    return *std::get_if<1>(&state_);
  }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Unexpected failure) : error_(std::move(failure.error())) {}

  bool has_value() const { return !error_.has_value(); }
  explicit operator bool() const { return has_value(); }
  void value() const { assert(has_value()); }
  Error& error() {
    assert(error_);
    return *error_;
  }
  const Error& error() const {
    assert(error_);
    return *error_;
  }

 private:
  std::optional<Error> error_;
};

}  // namespace moetax

// NOLINTBEGIN(bugprone-macro-parentheses): declarations cannot stand in parentheses
#define MOETAX_CONCAT_INNER(a, b) a##b
#define MOETAX_CONCAT(a, b) MOETAX_CONCAT_INNER(a, b)

// Leaves the enclosing function with the error of `expression`, a Result, if it failed.
#define MOETAX_TRY(expression) \
  if (auto moetax_result = (expression); !moetax_result) return ::moetax::Unexpected(std::move(moetax_result.error()))

// The same, and binds the value otherwise: `MOETAX_ASSIGN(auto window, comm.make_window(...));`.
#define MOETAX_ASSIGN(declaration, expression) \
  MOETAX_ASSIGN_IMPL(MOETAX_CONCAT(moetax_result_, __LINE__), declaration, expression)
#define MOETAX_ASSIGN_IMPL(result, declaration, expression)            \
  auto result = (expression);                                          \
  if (!result) return ::moetax::Unexpected(std::move(result.error())); \
  declaration = std::move(result).value()
// NOLINTEND(bugprone-macro-parentheses)
