#include "moetax/analyze/kernel_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "moetax/base/text.h"

namespace moetax {
namespace {

// role family operation phase pattern. What has a word of communication in its name and is none comes first.
constexpr std::string_view kBuiltIn = R"(
compute       -                  -               -                cub::
compute       -                  -               -                at::native
compute       -                  -               -                splitkv*combine
compute       -                  -               -                flash*combine
compute       -                  -               -                groupnorm*dispatch
compute       -                  -               -                moe::*routing
compute       -                  -               -                moe::*finalize
memory        MTIA               event           -                event_wait
memory        MTIA               event           -                event_record
memory        MTIA               copy            -                dma_request

communication DeepEP             layout          dispatch         ep::*get_dispatch_layout
sync          DeepEP             notify          notify           ep::*notify_dispatch
sync          DeepEP             notify          notify           ep::*cached_notify
sync          DeepEP             barrier         notify           ep::*barrier
sync          DeepEP             notify          notify           ep::*clean_low_latency_buffer
communication DeepEP             dispatch        dispatch         ep::*node*::dispatch
communication DeepEP             combine         combine          ep::*node*::combine
sync          HybridEP           notify          notify           hybrid_ep::*preprocess
communication HybridEP           dispatch        dispatch         hybrid_ep::*dispatch
communication HybridEP           combine         combine          hybrid_ep::*combine
communication pplx               dispatch        dispatch         pplx*dispatch
communication pplx               combine         combine          pplx*combine
communication UCCL-EP            dispatch        dispatch         uccl*dispatch
communication UCCL-EP            combine         combine          uccl*combine
communication MORI               dispatch        dispatch         epdispatch*node
communication MORI               combine         combine          epcombine*node
sync          TensorRT-LLM       notify          notify           moe*a2a*prepare
communication TensorRT-LLM       dispatch        dispatch         moe*a2a*dispatch
communication TensorRT-LLM       combine         combine          moe*a2a*combine
communication TensorRT-LLM       all-to-all      unknown          moe*alltoall
communication TensorRT-LLM       all-to-all      unknown          moe_comm::
communication Ascend             dispatch        dispatch         moedistributedispatch
communication Ascend             combine         combine          moedistributecombine
communication HCCL               all-to-all      unknown          hcom_alltoall
communication HCCL               all-reduce      unknown          hcom_allreduce
communication HCCL               all-gather      unknown          hcom_allgather
communication HCCL               reduce-scatter  unknown          hcom_reducescatter
communication HCCL               other           unknown          hcom_

communication symmetric-memory   all-reduce      tensor-parallel  multimem*all_reduce
communication symmetric-memory   all-gather      tensor-parallel  multimem*all_gather
communication symmetric-memory   reduce-scatter  tensor-parallel  multimem*reduce_scatter
communication symmetric-memory   all-reduce      tensor-parallel  one_shot_all_reduce
communication symmetric-memory   all-reduce      tensor-parallel  two_shot_all_reduce
communication custom-all-reduce  all-reduce      tensor-parallel  cross_device_reduce
communication custom-all-reduce  all-reduce      tensor-parallel  quickreduce
communication custom-all-reduce  all-reduce      tensor-parallel  allreduce_fusion
communication TensorRT-LLM       all-reduce      tensor-parallel  oneshotallreduce
communication TensorRT-LLM       all-reduce      tensor-parallel  twoshotallreduce
communication TensorRT-LLM       all-reduce      tensor-parallel  moeallreduce

sync          NVSHMEM            barrier         notify           nvshmem*barrier
communication NVSHMEM            all-to-all      unknown          nvshmem*alltoall
communication NVSHMEM            other           unknown          nvshmem

communication NCCL               all-to-all      unknown          nccl*kernel*sendrecv
communication NCCL               all-reduce      unknown          nccl*kernel*allreduce
communication NCCL               all-gather      unknown          nccl*kernel*allgather
communication NCCL               reduce-scatter  unknown          nccl*kernel*reducescatter
communication NCCL               broadcast       unknown          nccl*kernel*broadcast
communication NCCL               reduce          unknown          nccl*kernel*reduce
communication RCCL               any             unknown          nccl*kernel*generic
communication NCCL               other           unknown          nccl*kernel
communication oneCCL             other           unknown          oneccl
)";

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

// Whether the pieces between the pattern's stars occur one after the other.
bool matches(std::string_view pattern, std::string_view name) {
  Splitter pieces(pattern, '*');
  for (auto piece = pieces.next(); piece; piece = pieces.next()) {
    const std::size_t at = name.find(*piece);
    if (at == std::string_view::npos) return false;
    name.remove_prefix(at + piece->size());
  }
  return true;
}

// Words that no kernel without communication should have, and the last word of the function where it alone tells.
bool has_word_of_communication(std::string_view name) {
  for (const char* word : {"nccl", "rccl", "allreduce", "all_reduce", "alltoall", "all_to_all", "all2all", "a2a",
                           "allgather", "all_gather", "reducescatter", "reduce_scatter", "sendrecv", "send_recv",
                           "nvshmem", "rocshmem", "symm_mem", "multimem"}) {
    if (name.find(word) != std::string_view::npos) return true;
  }
  const std::size_t colons = name.rfind("::");
  const std::string_view last = colons == std::string_view::npos ? name : name.substr(colons + 2);
  return last == "dispatch" || last == "combine" || last == "dispatch_kernel" || last == "combine_kernel";
}

std::string word_or_empty(std::string_view word) {
  return word == "-" ? std::string() : std::string(word);
}

// The next word of `rest`; empty at its end.
std::string_view take_word(std::string_view& rest) {
  rest = trim(rest);
  const std::string_view word = rest.substr(0, rest.find_first_of(" \t"));
  rest.remove_prefix(word.size());
  return word;
}

}  // namespace

std::string function_name(std::string_view kernel) {
  constexpr std::string_view kAnonymous = "(anonymous namespace)";
  std::string name;
  int depth = 0;
  for (std::size_t i = 0; i < kernel.size(); ++i) {
    const char c = kernel[i];
    if (kernel.substr(i).starts_with(kAnonymous)) {
      i += kAnonymous.size() - 1;
      continue;
    }
    if (c == '<') ++depth;
    if (depth == 0 && c == '(') break;
    if (depth == 0) name += c;
    if (c == '>' && depth > 0) --depth;
  }
  const std::string_view whole = trim(name);
  const std::size_t blank = whole.rfind(' ');
  return std::string(blank == std::string_view::npos ? whole : whole.substr(blank + 1));
}

KernelRules::KernelRules() {
  const Result<void> built_in = add(kBuiltIn, "built in");
  static_cast<void>(built_in.has_value());
}

Result<void> KernelRules::add(std::string_view text, const std::string& origin) {
  std::vector<Rule> rules;
  Splitter lines(text, '\n');
  int number = 0;
  for (auto line = lines.next(); line; line = lines.next()) {
    ++number;
    std::string_view rest = line->substr(0, line->find('#'));
    const std::string_view role = take_word(rest);
    if (role.empty()) continue;
    Rule rule;
    constexpr std::array<std::string_view, 4> kRoles{"compute", "memory", "communication", "sync"};
    const auto at = static_cast<std::size_t>(std::find(kRoles.begin(), kRoles.end(), role) - kRoles.begin());
    rule.what.family = word_or_empty(take_word(rest));
    rule.what.operation = word_or_empty(take_word(rest));
    rule.what.phase = word_or_empty(take_word(rest));
    rule.pattern = lower(trim(rest));
    if (at == kRoles.size() || rule.pattern.empty()) {
      return fail(ErrorCode::kBadInput,
                  fmt::format("{}:{}: expected 'role family operation phase pattern', role one of compute, memory, "
                              "communication, sync; got {}",
                              origin, number, in_quotes(trim(*line))));
    }
    rule.what.role = static_cast<KernelRole>(std::min<std::size_t>(at, 2));
    rule.what.sync_only = role == "sync";
    rules.push_back(std::move(rule));
  }
  rules_.insert(rules_.begin(), std::make_move_iterator(rules.begin()), std::make_move_iterator(rules.end()));
  return {};
}

KernelClass KernelRules::classify(std::string_view kernel) const {
  const std::string name = lower(function_name(kernel));
  for (const Rule& rule : rules_) {
    if (matches(rule.pattern, name)) return rule.what;
  }
  KernelClass unknown;
  unknown.looks_like_comm = has_word_of_communication(name);
  return unknown;
}

}  // namespace moetax
