// What a kernel does, from its name: compute, memory or communication, of which family and for which phase.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "moetax/base/result.h"

namespace moetax {

enum class KernelRole : std::uint8_t { kCompute, kMemory, kCommunication };

struct KernelClass {
  KernelRole role = KernelRole::kCompute;
  std::string family;     // "NCCL", "DeepEP", ...; empty for compute
  std::string operation;  // "all-to-all", "all-reduce", "notify", ...
  std::string phase;      // "dispatch", "combine", "notify", "tensor-parallel", ...; "unknown" where the name is silent
  bool sync_only = false;        // moves no tokens: tells counts or waits
  bool looks_like_comm = false;  // by no rule, but its name has a word of communication: to be listed, not guessed
};

// A kernel's own name: without template arguments, parameters and return type. "void a::ep::combine<8>(int*)" is
// "a::ep::combine".
std::string function_name(std::string_view kernel);

// Rules are tried in order on the function's name; the first whose pattern is found in it decides. In patterns letters
// match both cases and * anything.
class KernelRules {
 public:
  KernelRules();  // those built in
  // Rules that come before: lines "role family operation phase pattern", where role is compute, memory, communication
  // or sync (communication that moves no tokens), - leaves a word empty and # begins a comment. kBadInput names origin
  // and line.
  Result<void> add(std::string_view text, const std::string& origin);
  KernelClass classify(std::string_view kernel) const;

 private:
  struct Rule {
    std::string pattern;  // in lower case
    KernelClass what;
  };
  std::vector<Rule> rules_;
};

}  // namespace moetax
