#include "cli/bench_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <tuple>

#include "cli/bench_specs.h"

namespace moetax::cli {
namespace {

// The options as typed, before they are checked against each other.
struct Typed {
  std::string preset, config;
  std::optional<std::int64_t> hidden, inter;
  std::optional<int> experts, topk, shared, groups, topk_groups;
  std::optional<std::string> score;
  std::optional<bool> renormalize;
  std::optional<float> route_scale;
  std::string tokens = "2048";
  std::string dtype = "bf16";
  std::optional<std::string> exchange;
  std::optional<double> latency_limit_ms, tax_limit_percent;
  bool recompute = false;
  std::string requests_of, baseline;
  std::optional<std::string> concurrency, rate;
  std::optional<int> ranks, threads;
  std::vector<std::string> delays;
};

constexpr const char* kAuto = "auto";

// In the order of the values.
std::vector<std::string> exchange_names() {
  std::vector<std::string> names;
  names.reserve(kNumExchangeAlgorithms);
  for (int i = 0; i < kNumExchangeAlgorithms; ++i) names.emplace_back(to_string(static_cast<ExchangeAlgorithm>(i)));
  names.emplace_back(kAuto);
  return names;
}

void declare_model(CLI::App& app, Typed& typed) {
  app.add_option("--preset", typed.preset, fmt::format("a published model: {}", fmt::join(preset_names(), ", ")))
      ->group("Model");
  app.add_option("--config", typed.config, "a Hugging Face config.json (or DeepSeek's native one)")->group("Model");
  app.add_option("--hidden", typed.hidden, "H, width of a token")->group("Model");
  app.add_option("--inter", typed.inter, "I, inner width of a routed expert")->group("Model");
  app.add_option("--experts", typed.experts, "E, routed experts")->group("Model");
  app.add_option("--topk", typed.topk, "K, experts per token")->group("Model");
  app.add_option("--shared", typed.shared, "shared experts, each as wide as a routed one")->group("Model");
  app.add_option("--score", typed.score, "softmax or sigmoid")
      ->check(CLI::IsMember({"softmax", "sigmoid"}))
      ->group("Model");
  app.add_option("--renormalize", typed.renormalize, "divide the chosen weights by their sum (true or false)")
      ->group("Model");
  app.add_option("--route-scale", typed.route_scale, "factor on the weights")->group("Model");
  app.add_option("--groups", typed.groups, "groups of experts for group-limited routing")->group("Model");
  app.add_option("--topk-groups", typed.topk_groups, "groups a token may use")->group("Model");
}

void declare_run(CLI::App& app, BenchOptions& options, Typed& typed) {
  app.add_option("--ranks", typed.ranks,
                 "expert-parallel ranks, one process each (default 2; under mpirun its number)");
  app.add_option("--nodes", options.nodes_by_decree,
                 "treat the ranks as if they were on so many nodes, which share no memory (default: as they are)");
  app.add_option("--exchange", typed.exchange,
                 "how rows travel between nodes: flat, direct, ring, mesh2d, two-level, or auto, which chooses by "
                 "measured costs (default: auto with --machine, else flat)")
      ->check(CLI::IsMember(exchange_names()));
  app.add_flag("--fp32-sums", options.fp32_sums,
               "two-level: sums of a node come back in fp32 instead of rounded to the rows' type");
  app.add_option("--overlap", options.overlap,
                 "parts to cut each batch into: the exchange of one runs beside the experts of another")
      ->capture_default_str();
  app.add_option("--machine", options.costs_path,
                 "measured costs that moetax calibrate wrote: for predictions, roofs and --exchange auto");
  app.add_option("--latency-limit", typed.latency_limit_ms,
                 "ms of a dispatch and its combine beyond which auto chooses again at once");
  app.add_option("--tax-limit", typed.tax_limit_percent, "percent of a step, the same");
  app.add_flag("--decompose", options.decompose,
               "afterwards try every exchange on the same routing: predicted terms beside the measured time");
  app.add_option("--ep-size", options.ep_size, "ranks per replica of the experts (default: all ranks, one replica)");
  app.add_option("--tokens", typed.tokens, "tokens per rank: one number, or one per rank (--tokens 512,64)")
      ->capture_default_str();
  app.add_option("--dtype", typed.dtype, "bf16 or fp32")->check(CLI::IsMember({"bf16", "fp32"}))->capture_default_str();
  app.add_flag("--backward", options.backward, "run the backward pass too");
  app.add_flag("--recompute", typed.recompute, "recompute activations in the backward instead of keeping them");
  app.add_option("--layers", options.layers, "layers in a chain, each with its own weights, a norm between them")
      ->capture_default_str();
  app.add_option("--steps", options.steps, "measured steps")->capture_default_str();
  app.add_option("--warmup", options.warmup, "steps before measuring")->capture_default_str();
  app.add_option("--seed", options.seed, "of tokens, weights and sampled routes")->capture_default_str();
  app.add_option("--threads", typed.threads, "threads per rank (default: cores / ranks, at least 1)");
  app.add_option("--routing", options.routing,
                 "router, uniform, zipf:S, counts:FILE[:LAYER] (expert loads) or tokens:FILE (a recorded route)")
      ->capture_default_str();
  app.add_option("--record-routing", options.record_routing_path, "write the route of every token, to replay");
  app.add_option("--delay", typed.delays, "RANK:MS makes a rank sleep in every step; may be repeated")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--deadline", options.deadline_s, "seconds until a silent rank is given up")->capture_default_str();
}

void declare_load(CLI::App& app, BenchOptions& options, Typed& typed) {
  app.add_option("--concurrency", typed.concurrency,
                 "afterwards serve so many requests at a time, each followed by the next (1,2,4,8,16): latencies")
      ->group("Load");
  app.add_option("--rate", typed.rate, "afterwards serve requests that come by chance, so many per second (5,50)")
      ->group("Load");
  app.add_option("--request", typed.requests_of,
                 "tokens of a request: PROMPT+OUTPUT, several by commas (default: 0+32 and half of --tokens+0)")
      ->group("Load");
  app.add_option("--requests", options.stress.requests,
                 "of each level (default: 8 times the concurrency, at least 32; 64 of a rate)")
      ->group("Load");
  app.add_option("--baseline", typed.baseline,
                 "replicas: the same load again on as many ranks that hold all experts and exchange nothing")
      ->check(CLI::IsMember({"replicas"}))
      ->group("Load");
}

void declare_output(CLI::App& app, BenchOptions& options) {
  app.add_option("--json", options.json_path, "write the bill as JSON (- for standard output)")->group("Output");
  app.add_option("--trace", options.trace_path, "write a Perfetto trace, one track per rank (- for standard output)")
      ->group("Output");
  app.add_option("--fail-on", options.fail_on, "exit 1 when crossed, for example tax>25%")->group("Output");
}

Result<ModelShape> base_model(const Typed& typed) {
  if (!typed.preset.empty() && !typed.config.empty()) {
    return fail(ErrorCode::kUsage, "give --preset or --config, not both");
  }
  if (!typed.preset.empty()) return preset(typed.preset);
  if (!typed.config.empty()) return read_model_config(typed.config);
  if (typed.hidden && typed.inter && typed.experts && typed.topk) return ModelShape{};
  return fail(ErrorCode::kUsage,
              "which model? give --preset NAME, --config FILE, or all of --hidden --inter --experts --topk");
}

constexpr std::int64_t kMaxWidth = 1 << 20;

// What was typed beside a preset or a config changes that model.
Result<ModelShape> resolve_model(const Typed& typed) {
  MOETAX_ASSIGN(ModelShape model, base_model(typed));
  RouterConfig& router = model.router;
  if (typed.hidden) model.hidden = *typed.hidden;
  if (typed.inter && *typed.inter > 0) {
    // Shared experts keep their width in units of a routed one's.
    if (model.inter > 0) model.shared_inter = model.shared_inter * std::min(*typed.inter, kMaxWidth) / model.inter;
    model.inter = *typed.inter;
  } else if (typed.inter) {
    return fail(ErrorCode::kUsage, fmt::format("--inter {}: expected a positive width", *typed.inter));
  }
  if (typed.experts) router.experts = *typed.experts;
  if (typed.topk) router.topk = *typed.topk;
  if (typed.score) router.score = *typed.score == "sigmoid" ? Score::kSigmoid : Score::kSoftmax;
  if (typed.renormalize) router.renormalize = *typed.renormalize;
  if (typed.route_scale) router.scale = *typed.route_scale;
  if (typed.groups) router.groups = *typed.groups;
  if (typed.topk_groups) router.topk_groups = *typed.topk_groups;
  if (typed.shared && (*typed.shared < 0 || *typed.shared > 1024)) {
    return fail(ErrorCode::kUsage, fmt::format("--shared {}: expected 0 to 1024", *typed.shared));
  }
  if (typed.shared && model.inter <= kMaxWidth) model.shared_inter = *typed.shared * model.inter;
  if (model.hidden < 1 || model.inter < 1 || model.shared_inter < 0) {
    return fail(ErrorCode::kUsage, fmt::format("--hidden {}, --inter {} and the shared width {} must be positive",
                                               model.hidden, model.inter, model.shared_inter));
  }
  if (model.hidden > kMaxWidth || model.inter > kMaxWidth || model.shared_inter > kMaxWidth) {
    return fail(ErrorCode::kUsage, fmt::format("widths beyond {} are not a model: --hidden {} --inter {} shared {}",
                                               kMaxWidth, model.hidden, model.inter, model.shared_inter));
  }
  MOETAX_TRY(validate(router));
  return model;
}

Result<void> check_counts(const BenchOptions& options, int least_threads) {
  constexpr int kMaxRanks = 256;
  const auto in_range = [](const char* name, std::int64_t value, std::int64_t low, std::int64_t high) -> Result<void> {
    if (value >= low && value <= high) return {};
    return fail(ErrorCode::kUsage, fmt::format("{} {}: expected {} to {}", name, value, low, high));
  };
  MOETAX_TRY(in_range("--ranks", options.ranks, 1, kMaxRanks));
  MOETAX_TRY(in_range("--nodes", options.nodes, 1, options.ranks));
  if ((options.ranks - 1) / options.ranks_per_node() + 1 != options.nodes) {
    return fail(ErrorCode::kUsage, fmt::format("--nodes {}: {} ranks, {} to a node, do not fill so many", options.nodes,
                                               options.ranks, options.ranks_per_node()));
  }
  MOETAX_TRY(in_range("--ep-size", options.ep_size, 0, options.ranks));
  MOETAX_TRY(in_range("--layers", options.layers, 1, 1024));
  MOETAX_TRY(in_range("--steps", options.steps, 1, 1000000));
  MOETAX_TRY(in_range("--warmup", options.warmup, 0, 1000000));
  MOETAX_TRY(in_range("--overlap", options.overlap, 1, 64));
  MOETAX_TRY(in_range("--threads", options.threads, least_threads, 1024));
  if (options.ep_size > 0 && options.ranks % options.ep_size != 0) {
    return fail(ErrorCode::kUsage,
                fmt::format("--ep-size {} does not divide --ranks {}", options.ep_size, options.ranks));
  }
  if (options.overlap > 1 && options.backward) {
    return fail(ErrorCode::kUsage, "--overlap is of forward passes: leave --backward out");
  }
  if (options.overlap > 1 && !options.costs_path.empty()) {
    return fail(ErrorCode::kUsage, "--machine predicts the exchange of whole batches: leave it or --overlap out");
  }
  if (!(options.deadline_s > 0 && options.deadline_s <= 86400)) {
    return fail(ErrorCode::kUsage, fmt::format("--deadline {}: expected more than 0 seconds", options.deadline_s));
  }
  if (options.activations == Activations::kRecompute && !options.backward) {
    return fail(ErrorCode::kUsage, "--recompute is about the backward pass: add --backward");
  }
  if (!options.json_path.empty() && options.json_path == options.trace_path) {
    return fail(ErrorCode::kUsage, fmt::format("--json and --trace both go to {}", options.json_path));
  }
  if (options.record_routing_path == "-") {
    return fail(ErrorCode::kUsage, "--record-routing needs a file, not standard output");
  }
  if (!options.record_routing_path.empty() && options.layers > 1) {
    return fail(ErrorCode::kUsage, "--record-routing records one layer: use it with --layers 1");
  }
  return {};
}

Result<void> resolve_exchange(const Typed& typed, BenchOptions& options) {
  const std::string name = typed.exchange.value_or(options.costs_path.empty() ? "flat" : kAuto);
  options.auto_exchange = name == kAuto;
  if (!options.auto_exchange) {
    const std::vector<std::string> names = exchange_names();
    options.exchange = static_cast<ExchangeAlgorithm>(std::find(names.begin(), names.end(), name) - names.begin());
  }
  if (options.decompose && options.costs_path.empty()) {
    return fail(ErrorCode::kUsage,
                "--decompose needs measured costs: run moetax calibrate with the same ranks and "
                "nodes, and give its file as --machine");
  }
  for (const auto& [limit, flag, factor, to] :
       {std::tuple{typed.latency_limit_ms, "--latency-limit", 1e3, &options.policy.latency_us},
        std::tuple{typed.tax_limit_percent, "--tax-limit", 0.01, &options.policy.tax_share}}) {
    if (!limit) continue;
    if (!options.auto_exchange) {
      return fail(ErrorCode::kUsage, fmt::format("{} is a limit at which --exchange auto chooses again", flag));
    }
    if (!(*limit > 0 && *limit < 1e9))
      return fail(ErrorCode::kUsage, fmt::format("{} {}: expected more than 0", flag, *limit));
    *to = *limit * factor;
  }
  return {};
}

// Without a level of its own the baseline is full batches: each rank serves one request of all its tokens after
// another.
Result<void> resolve_load(const Typed& typed, BenchOptions& options) {
  StressOptions& stress = options.stress;
  const std::int64_t least = *std::min_element(options.tokens.begin(), options.tokens.end());
  stress.replicas = !typed.baseline.empty();
  if (typed.concurrency) {
    MOETAX_ASSIGN(stress.concurrency, parse_concurrency(*typed.concurrency));
  }
  if (typed.rate) {
    MOETAX_ASSIGN(stress.rate, parse_rates(*typed.rate));
  }
  const bool full_batches = stress.replicas && !stress.wanted();
  if (full_batches) stress.concurrency = {options.ranks};
  if (!stress.wanted()) {
    if (typed.requests_of.empty() && !stress.requests) return {};
    return fail(ErrorCode::kUsage, "--request and --requests are about load: add --concurrency or --rate");
  }
  if (!typed.requests_of.empty()) {
    MOETAX_ASSIGN(stress.shapes, parse_requests(typed.requests_of));
  } else if (full_batches) {
    stress.shapes = {{least, 0}};
  } else {
    stress.shapes = {{0, 32}, {std::max<std::int64_t>(1, least / 2), 0}};
  }
  for (const RequestShape& shape : stress.shapes) {
    if (std::max<std::int64_t>(1, shape.prompt) <= least) continue;
    return fail(ErrorCode::kUsage,
                fmt::format("a request of {} tokens at once does not fit into a batch of --tokens {}",
                            std::max<std::int64_t>(1, shape.prompt), least));
  }
  if (stress.requests && !(*stress.requests >= 1 && *stress.requests <= 1000000)) {
    return fail(ErrorCode::kUsage, fmt::format("--requests {}: expected 1 to 1000000", *stress.requests));
  }
  if (options.backward) return fail(ErrorCode::kUsage, "requests have no backward pass: leave --backward out");
  return {};
}

}  // namespace

std::int64_t BenchOptions::first_token(Rank rank) const {
  return std::accumulate(tokens.begin(), tokens.begin() + rank, std::int64_t{0});
}

std::int64_t BenchOptions::total_tokens() const {
  return first_token(ranks);
}

int BenchOptions::exchanges_per_step() const {
  // Two per forward; per backward two mirrors, a redispatch and up to eight reductions.
  return layers * (2 * overlap + (backward ? 11 : 0));
}

int BenchOptions::recorded_steps() const {
  constexpr int kMaxExchanges = 400000;  // kept by a ledger
  return std::min(steps, std::max(1, kMaxExchanges / exchanges_per_step()));
}

ExpertParallelOptions BenchOptions::parallel_options(Rank rank, Observer* observer, int replica_ranks) const {
  return {.max_tokens = tokens[static_cast<std::size_t>(rank)],
          .hidden = model.hidden,
          .experts = model.router.experts,
          .topk = model.router.topk,
          .dtype = dtype,
          .ep_size = replica_ranks,
          .overlap = overlap,
          .in_flight = activations == Activations::kRecompute ? 2 : 1,
          .threads = threads,
          .algorithm = exchange,
          .fp32_sums = fp32_sums,
          .deadline_s = deadline_s,
          .observer = observer};
}

LayerConfig BenchOptions::layer_config() const {
  return {.hidden = model.hidden,
          .inter = model.inter,
          .shared_inter = model.shared_inter,
          .router = model.router,
          .router_bias = model.router_bias,
          .activation = model.activation,
          .clamp_limit = model.clamp_limit,
          .expert_bias = model.expert_bias,
          .dtype = dtype};
}

Result<std::optional<BenchOptions>> parse_bench_options(int argc, char** argv, int cores,
                                                        const std::optional<LaunchedRank>& launched) {
  BenchOptions options;
  Typed typed;
  CLI::App app("Runs a Mixture-of-Experts layer under expert parallelism on this machine and prints its bill.",
               "moetax bench");
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  declare_model(app, typed);
  declare_run(app, options, typed);
  declare_load(app, options, typed);
  declare_output(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    if (!launched || launched->rank == 0) std::fputs(app.help().c_str(), stdout);
    return std::optional<BenchOptions>();
  } catch (const CLI::ParseError& error) {
    return fail(ErrorCode::kUsage, fmt::format("bench: {} (moetax bench --help lists the options)", error.what()));
  }
  MOETAX_ASSIGN(options.model, resolve_model(typed));
  MOETAX_ASSIGN(options.ranks, resolve_ranks(typed.ranks, launched));
  options.nodes = options.nodes_by_decree.value_or(1);
  options.threads = typed.threads.value_or(launched ? 0 : std::max(1, cores / std::max(1, options.ranks)));
  options.activations = typed.recompute ? Activations::kRecompute : Activations::kKeep;
  MOETAX_TRY(check_counts(options, launched && !typed.threads ? 0 : 1));
  options.here.resize(static_cast<std::size_t>(options.ranks));
  std::iota(options.here.begin(), options.here.end(), 0);
  MOETAX_ASSIGN(options.tokens, parse_tokens(typed.tokens, options.ranks));
  MOETAX_ASSIGN(options.delay_ms, parse_delays(typed.delays, options.ranks));
  MOETAX_TRY(resolve_exchange(typed, options));
  MOETAX_TRY(resolve_load(typed, options));
  options.dtype = typed.dtype == "fp32" ? DType::kFp32 : DType::kBf16;
  return std::optional(std::move(options));
}

}  // namespace moetax::cli
