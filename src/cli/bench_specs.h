// Options of `moetax bench` that are small languages of their own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/request_queue.h"
#include "moetax/base/result.h"

namespace moetax::cli {

// All errors are kUsage: the option, what was expected.

// --tokens: one number for all ranks, or one per rank separated by commas. Returns one per rank, 0 to 2^24.
Result<std::vector<std::int64_t>> parse_tokens(std::string_view text, int ranks);

// --delay RANK:MS, several of them; a later one for the same rank counts. Returns milliseconds per rank, 0: none.
Result<std::vector<double>> parse_delays(const std::vector<std::string>& texts, int ranks);

// --concurrency: requests at a time, 1 to 65536 each, separated by commas. --rate: per second, above 0 to 1e6.
Result<std::vector<int>> parse_concurrency(std::string_view text);
Result<std::vector<double>> parse_rates(std::string_view text);
// --request: PROMPT+OUTPUT, 0 to 2^24 each and not both 0, separated by commas.
Result<std::vector<RequestShape>> parse_requests(std::string_view text);

// --routing: where the routes come from.
struct RoutingSpec {
  enum class Kind : std::uint8_t { kRouter, kUniform, kZipf, kCounts, kTokens };
  Kind kind = Kind::kRouter;
  double exponent = 0;            // kZipf, 0 to 10
  std::string path = {};          // kCounts, kTokens
  std::optional<int> layer = {};  // kCounts, where one was named
};
// router | uniform | zipf:S | counts:FILE[:LAYER] | tokens:FILE. A last part of FILE that is no layer belongs to its
// name.
Result<RoutingSpec> parse_routing_spec(std::string_view text);

}  // namespace moetax::cli
