// What may be typed for --tokens, --delay and --routing gives values in range, or an error of one line.

#include <algorithm>

#include "cli/bench_specs.h"
#include "fuzz.h"

namespace moetax::fuzz {
namespace {

constexpr int kRanks = 3;

template <class T>
bool refused(const Result<T>& result, std::string_view option) {
  if (result) return false;
  require(result.error().code == ErrorCode::kUsage);
  require_good_message(result.error(), option);
  return true;
}

void fuzz_tokens(std::string_view text) {
  const auto tokens = cli::parse_tokens(text, kRanks);
  if (refused(tokens, "--tokens ")) return;
  require(tokens->size() == kRanks);
  for (const std::int64_t count : *tokens) require(count >= 0 && count <= 1 << 24);
}

void fuzz_delays(std::string_view text) {
  const auto delays = cli::parse_delays({std::string(text)}, kRanks);
  if (refused(delays, "--delay ")) return;
  require(delays->size() == kRanks);
  require(std::all_of(delays->begin(), delays->end(), [](double ms) { return ms >= 0 && ms <= 600e3; }));
  require(std::count(delays->begin(), delays->end(), 0.0) >= kRanks - 1);
}

void fuzz_routing(std::string_view text) {
  using Kind = cli::RoutingSpec::Kind;
  const auto spec = cli::parse_routing_spec(text);
  if (refused(spec, "--routing ")) return;
  require(spec->exponent >= 0 && spec->exponent <= 10);
  require(spec->path.empty() == (spec->kind != Kind::kCounts && spec->kind != Kind::kTokens));
  require(!spec->layer || (spec->kind == Kind::kCounts && *spec->layer >= 0));
}

}  // namespace
}  // namespace moetax::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = moetax::fuzz::as_text(data, size);
  moetax::fuzz::fuzz_tokens(text);
  moetax::fuzz::fuzz_delays(text);
  moetax::fuzz::fuzz_routing(text);
  return 0;
}
