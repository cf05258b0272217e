#include "cli/bench_specs.h"

#include <fmt/format.h>

#include <algorithm>

#include "moetax/base/text.h"

namespace moetax::cli {
namespace {

constexpr std::int64_t kMaxTokens = 1 << 24;
constexpr double kMaxDelayMs = 600e3;
constexpr int kMaxLayer = 1 << 20;

struct Delay {
  int rank = 0;
  double ms = 0;
};

std::optional<Delay> parse_delay(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const auto rank = parse_number<int>(text.substr(0, colon));
  const auto ms = parse_number<double>(text.substr(colon + 1));
  if (!rank || !ms || !(*ms >= 0 && *ms <= kMaxDelayMs)) return std::nullopt;
  return Delay{*rank, *ms};
}

RoutingSpec counts_spec(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  const auto layer = colon == std::string_view::npos ? std::nullopt : parse_number<int>(text.substr(colon + 1));
  const bool named = layer && colon > 0 && *layer >= 0 && *layer <= kMaxLayer;
  RoutingSpec spec{.kind = RoutingSpec::Kind::kCounts, .path = std::string(text)};
  if (!named) return spec;
  spec.path.resize(colon);
  spec.layer = layer;
  return spec;
}

}  // namespace

Result<std::vector<std::int64_t>> parse_tokens(std::string_view text, int ranks) {
  std::vector<std::int64_t> tokens;
  Splitter fields(text, ',');
  while (const auto field = fields.next()) {
    const auto count = parse_number<std::int64_t>(*field);
    if (!count || *count < 0 || *count > kMaxTokens) {
      return fail(ErrorCode::kUsage, fmt::format("--tokens {}: expected numbers from 0 to {}, separated by commas",
                                                 in_quotes(text), kMaxTokens));
    }
    tokens.push_back(*count);
  }
  if (tokens.size() == 1) tokens.resize(static_cast<std::size_t>(ranks), tokens[0]);
  if (static_cast<int>(tokens.size()) == ranks) return tokens;
  return fail(ErrorCode::kUsage, fmt::format("--tokens gives {} numbers for {} ranks: expected one, or one per rank",
                                             tokens.size(), ranks));
}

Result<std::vector<double>> parse_delays(const std::vector<std::string>& texts, int ranks) {
  std::vector<double> delay_ms(static_cast<std::size_t>(ranks), 0.0);
  for (const std::string& text : texts) {
    const auto delay = parse_delay(text);
    if (!delay) {
      return fail(ErrorCode::kUsage, fmt::format("--delay {}: expected RANK:MS with up to {} ms, for example 1:5",
                                                 in_quotes(text), kMaxDelayMs));
    }
    if (delay->rank < 0 || delay->rank >= ranks) {
      return fail(ErrorCode::kUsage,
                  fmt::format("--delay {}: there is no rank {} of {}", in_quotes(text), delay->rank, ranks));
    }
    delay_ms[static_cast<std::size_t>(delay->rank)] = delay->ms;
  }
  return delay_ms;
}

Result<std::vector<int>> parse_concurrency(std::string_view text) {
  constexpr int kMost = 65536;
  std::vector<int> levels;
  Splitter fields(text, ',');
  while (const auto field = fields.next()) {
    const auto level = parse_number<int>(*field);
    if (!level || *level < 1 || *level > kMost) {
      return fail(ErrorCode::kUsage, fmt::format("--concurrency {}: expected numbers from 1 to {}, separated by commas",
                                                 in_quotes(text), kMost));
    }
    levels.push_back(*level);
  }
  return levels;
}

Result<std::vector<double>> parse_rates(std::string_view text) {
  constexpr double kMost = 1e6;
  std::vector<double> rates;
  Splitter fields(text, ',');
  while (const auto field = fields.next()) {
    const auto rate = parse_number<double>(*field);
    if (!rate || !(*rate > 0 && *rate <= kMost)) {
      return fail(ErrorCode::kUsage,
                  fmt::format("--rate {}: expected requests per second, above 0 and up to {}, separated by commas",
                              in_quotes(text), kMost));
    }
    rates.push_back(*rate);
  }
  return rates;
}

Result<std::vector<RequestShape>> parse_requests(std::string_view text) {
  std::vector<RequestShape> shapes;
  Splitter fields(text, ',');
  while (const auto field = fields.next()) {
    const std::size_t plus = std::min(field->find('+'), field->size());
    const auto prompt = parse_number<std::int64_t>(field->substr(0, plus));
    const auto output = parse_number<std::int64_t>(field->substr(std::min(plus + 1, field->size())));
    const auto fits = [](std::int64_t count) { return count >= 0 && count <= kMaxTokens; };
    if (!prompt || !output || !fits(*prompt) || !fits(*output) || *prompt + *output == 0) {
      return fail(ErrorCode::kUsage,
                  fmt::format("--request {}: expected PROMPT+OUTPUT tokens, for example 512+0 or 0+32, separated by "
                              "commas",
                              in_quotes(text)));
    }
    shapes.push_back({*prompt, *output});
  }
  return shapes;
}

Result<RoutingSpec> parse_routing_spec(std::string_view text) {
  using Kind = RoutingSpec::Kind;
  const std::size_t colon = text.find(':');
  const std::string_view kind = text.substr(0, colon);
  const std::string_view rest = colon == std::string_view::npos ? "" : text.substr(colon + 1);
  if (text == "router") return RoutingSpec{};
  if (text == "uniform") return RoutingSpec{.kind = Kind::kUniform};
  if (kind == "counts" && !rest.empty()) return counts_spec(rest);
  if (kind == "tokens" && !rest.empty()) return RoutingSpec{.kind = Kind::kTokens, .path = std::string(rest)};
  if (kind == "zipf" && colon != std::string_view::npos) {
    const auto exponent = parse_number<double>(rest);
    if (exponent && *exponent >= 0 && *exponent <= 10) return RoutingSpec{.kind = Kind::kZipf, .exponent = *exponent};
    return fail(ErrorCode::kUsage, fmt::format("--routing {}: expected an exponent from 0 to 10", in_quotes(text)));
  }
  return fail(ErrorCode::kUsage,
              fmt::format("--routing {}: expected router, uniform, zipf:S, counts:FILE[:LAYER] or tokens:FILE",
                          in_quotes(text)));
}

}  // namespace moetax::cli
