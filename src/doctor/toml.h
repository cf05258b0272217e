// toml++ without its assertions. It asserts, and with Clang assumes, things about keys that a damaged file breaks,
// right before code that handles them as the errors they are.
#pragma once

#pragma push_macro("NDEBUG")
#undef NDEBUG
#define TOML_ASSERT(expression) static_cast<void>(0)
#include <toml++/toml.h>  // IWYU pragma: export
#pragma pop_macro("NDEBUG")
