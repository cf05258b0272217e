#include "layer/oracle.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <numeric>

#include "moetax/base/random.h"
#include "moetax/transport/local.h"

namespace moetax::testing {
namespace {

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

std::vector<double> parameter(const LayerConfig& config, std::uint64_t seed, int layer_idx, Parameter which, int expert,
                              std::int64_t rows, std::int64_t cols, bool rounded) {
  std::vector<double> values;
  std::vector<float> row(static_cast<std::size_t>(cols));
  for (std::int64_t i = 0; i < rows; ++i) {
    initial_row(config, seed, layer_idx, which, expert, i, row);
    for (const float v : row) values.push_back(rounded && config.dtype == DType::kBf16 ? to_float(to_bf16(v)) : v);
  }
  return values;
}

// y = x W^T (+ b), W [n, k]
std::vector<double> product(const double* x, const std::vector<double>& w, std::size_t k,
                            const std::vector<double>& bias) {
  std::vector<double> y(w.size() / k);
  for (std::size_t j = 0; j < y.size(); ++j) {
    y[j] = bias.empty() ? 0.0 : bias[j];
    for (std::size_t i = 0; i < k; ++i) y[j] += x[i] * w[j * k + i];
  }
  return y;
}

std::vector<double> expert_output(const LayerConfig& config, const double* x, const std::vector<double>& w13,
                                  const std::vector<double>& w2, const std::vector<double>& b13,
                                  const std::vector<double>& b2) {
  const auto h = static_cast<std::size_t>(config.hidden);
  const std::vector<double> gu = product(x, w13, h, b13);
  const std::size_t inter = gu.size() / 2;
  std::vector<double> a(inter);
  for (std::size_t i = 0; i < inter; ++i) {
    double g = gu[i], u = gu[inter + i];
    if (config.activation == Activation::kClampedSwiGlu) {
      const double limit = config.clamp_limit;
      g = std::min(g, limit);
      u = std::clamp(u, -limit, limit);
      a[i] = (u + 1.0) * g * sigmoid(1.702 * g);
    } else {
      a[i] = g * sigmoid(g) * u;
    }
  }
  return product(a.data(), w2, inter, b2);
}

std::vector<double> logits_of(const PlainLayer& layer, const double* x) {
  return product(x, layer.router, static_cast<std::size_t>(layer.config.hidden), layer.router_bias);
}

// The weights of the chosen experts of one token.
std::vector<double> gate_weights(const RouterConfig& config, const std::vector<double>& logits,
                                 std::span<const std::int32_t> chosen) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double l : logits) sum += std::exp(l - top);
  std::vector<double> weights;
  for (const std::int32_t e : chosen) {
    const double l = logits[static_cast<std::size_t>(e)];
    weights.push_back(config.score == Score::kSigmoid ? sigmoid(l) : std::exp(l - top) / sum);
  }
  const double chosen_sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& w : weights) w = w / (config.renormalize ? chosen_sum : 1.0) * config.scale;
  return weights;
}

LayerConfig small_layer(DType dtype) {
  LayerConfig config{.hidden = 48, .inter = 40, .shared_inter = 0, .router = {}, .dtype = dtype};
  config.router.experts = 16;
  config.router.topk = 4;
  return config;
}

std::vector<float> to_floats(ConstRows rows) {
  std::vector<float> values;
  for (std::int64_t t = 0; t < rows.rows; ++t) {
    for (std::int64_t j = 0; j < rows.cols; ++j) values.push_back(element(rows, t, j));
  }
  return values;
}

// What one rank owns during a run.
struct RankData {
  std::vector<std::byte> hidden, out, d_out;
  std::vector<float> d_hidden;
  RoutingTable given;
};

void fill(const LayerRun& run, std::int64_t first, std::uint64_t stream, Rows rows) {
  const RandomStream random(run.seed, stream);
  for (std::int64_t t = 0; t < rows.rows; ++t) {
    for (std::int64_t j = 0; j < rows.cols; ++j) {
      set_element(rows, t, j, random.normal(static_cast<std::uint64_t>((first + t) * rows.cols + j)));
    }
  }
}

RoutingTable slice(const RoutingTable& all, std::int64_t first, std::int64_t count) {
  RoutingTable part;
  part.resize(count, all.topk());
  for (std::int64_t t = 0; t < count; ++t) {
    std::ranges::copy(all.expert().row_span(first + t), part.expert().row(t));
    std::ranges::copy(all.weight().row_span(first + t), part.weight().row(t));
  }
  return part;
}

class RankRun {
 public:
  RankRun(const LayerRun& run, Communicator& world) : run_(run), world_(world) {
    tokens_ = run.tokens_per_rank[static_cast<std::size_t>(world.rank())];
    first_ = std::accumulate(run.tokens_per_rank.begin(), run.tokens_per_rank.begin() + world.rank(), std::int64_t{0});
  }

  Result<void> execute() {
    const std::size_t bytes = static_cast<std::size_t>(tokens_ * run_.config.hidden) * size_of(run_.config.dtype);
    for (auto* buffer : {&data_.hidden, &data_.out, &data_.d_out}) buffer->resize(bytes);
    data_.d_hidden.resize(static_cast<std::size_t>(tokens_ * run_.config.hidden));
    fill(run_, first_, 1, rows(data_.hidden));
    fill(run_, first_, 2, rows(data_.d_out));
    if (run_.edit_tokens) run_.edit_tokens(rows(data_.hidden), first_);
    MOETAX_ASSIGN(ExpertParallel parallel,
                  ExpertParallel::create(world_, {.max_tokens = tokens_,
                                                  .hidden = run_.config.hidden,
                                                  .experts = run_.config.router.experts,
                                                  .topk = run_.config.router.topk,
                                                  .dtype = run_.config.dtype,
                                                  .ep_size = run_.ep_size,
                                                  .overlap = run_.overlap,
                                                  .in_flight = run_.activations == Activations::kRecompute ? 2 : 1,
                                                  .algorithm = run_.algorithm}));
    MOETAX_ASSIGN(MoeLayer layer, MoeLayer::create(parallel, run_.config, run_.activations));
    MOETAX_TRY(layer.init_weights(run_.seed, 0));
    layer.set_selection_bias(run_.selection_bias);
    if (run_.given) data_.given = slice(*run_.given, first_, tokens_);
    for (int step = 0; step < run_.steps; ++step) MOETAX_TRY(one_step(layer, step > 0));
    routing = layer.routing();
    return {};
  }

  void collect(LayerResult& result) {
    append(result.hidden, to_floats(rows(data_.hidden)));
    append(result.out, to_floats(rows(data_.out)));
    append(result.d_out, to_floats(rows(data_.d_out)));
    append(result.d_hidden, data_.d_hidden);
  }

  LayerGradients gradients;
  RoutingTable routing;

 private:
  static void append(std::vector<float>& to, const std::vector<float>& from) {
    to.insert(to.end(), from.begin(), from.end());
  }
  Rows rows(std::vector<std::byte>& buffer) const {
    return {buffer.data(), run_.config.dtype, tokens_, run_.config.hidden};
  }
  Result<void> one_step(MoeLayer& layer, bool accumulate) {
    MOETAX_TRY(layer.forward(rows(data_.hidden), rows(data_.out), run_.backward ? &saved_ : nullptr,
                             run_.given ? &data_.given : nullptr, first_));
    if (!run_.backward) return {};
    return layer.backward(rows(data_.hidden), saved_, rows(data_.d_out),
                          {data_.d_hidden.data(), tokens_, run_.config.hidden}, gradients, accumulate);
  }

  const LayerRun& run_;
  Communicator& world_;
  std::int64_t tokens_ = 0, first_ = 0;
  RankData data_;
  LayerSaved saved_;
};

void join_routing(const std::vector<RoutingTable>& parts, RoutingTable& all) {
  std::int64_t tokens = 0;
  for (const RoutingTable& part : parts) tokens += part.tokens();
  all.resize(tokens, parts[0].topk());
  std::int64_t at = 0;
  for (const RoutingTable& part : parts) {
    for (std::int64_t t = 0; t < part.tokens(); ++t, ++at) {
      std::ranges::copy(part.expert().row_span(t), all.expert().row(at));
      std::ranges::copy(part.weight().row_span(t), all.weight().row(at));
    }
  }
}

}  // namespace

PlainLayer plain_layer(const LayerConfig& config, std::uint64_t seed, int layer_idx) {
  PlainLayer layer{.config = config};
  const std::int64_t h = config.hidden, i = config.inter, e = config.router.experts;
  const auto make = [&](Parameter which, int expert, std::int64_t rows, std::int64_t cols, bool rounded) {
    return parameter(config, seed, layer_idx, which, expert, rows, cols, rounded);
  };
  layer.router = make(Parameter::kRouter, 0, e, h, true);
  if (config.router_bias) layer.router_bias = make(Parameter::kRouterBias, 0, 1, e, false);
  for (int expert = 0; expert < e; ++expert) {
    layer.w13.push_back(make(Parameter::kW13, expert, 2 * i, h, true));
    layer.w2.push_back(make(Parameter::kW2, expert, h, i, true));
    layer.b13.push_back(config.expert_bias ? make(Parameter::kB13, expert, 1, 2 * i, false) : std::vector<double>());
    layer.b2.push_back(config.expert_bias ? make(Parameter::kB2, expert, 1, h, false) : std::vector<double>());
  }
  if (config.shared_inter > 0) {
    layer.shared_w13 = make(Parameter::kSharedW13, 0, 2 * config.shared_inter, h, true);
    layer.shared_w2 = make(Parameter::kSharedW2, 0, h, config.shared_inter, true);
  }
  return layer;
}

std::vector<double> oracle_forward(const PlainLayer& layer, const std::vector<double>& hidden,
                                   const RoutingTable& routing) {
  const auto h = static_cast<std::size_t>(layer.config.hidden);
  std::vector<double> out(hidden.size(), 0.0);
  for (std::int64_t t = 0; t < routing.tokens(); ++t) {
    const double* x = hidden.data() + static_cast<std::size_t>(t) * h;
    double* y = out.data() + static_cast<std::size_t>(t) * h;
    const auto chosen = routing.expert().row_span(t);
    const std::vector<double> weights = gate_weights(layer.config.router, logits_of(layer, x), chosen);
    for (std::size_t k = 0; k < chosen.size(); ++k) {
      const auto e = static_cast<std::size_t>(chosen[k]);
      const auto row = expert_output(layer.config, x, layer.w13[e], layer.w2[e], layer.b13[e], layer.b2[e]);
      for (std::size_t j = 0; j < h; ++j) y[j] += weights[k] * row[j];
    }
    if (layer.shared_w13.empty()) continue;
    const auto row = expert_output(layer.config, x, layer.shared_w13, layer.shared_w2, {}, {});
    for (std::size_t j = 0; j < h; ++j) y[j] += row[j];
  }
  return out;
}

RoutingTable oracle_routing(const PlainLayer& layer, const std::vector<double>& hidden) {
  const auto h = static_cast<std::size_t>(layer.config.hidden);
  const auto tokens = static_cast<std::int64_t>(hidden.size() / h);
  std::vector<float> logits;
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (const double l : logits_of(layer, hidden.data() + static_cast<std::size_t>(t) * h)) {
      logits.push_back(static_cast<float>(l));
    }
  }
  RoutingTable routing;
  const std::vector<float> bias(layer.selection_bias.begin(), layer.selection_bias.end());
  const auto routed =
      route_reference(layer.config.router, {logits.data(), tokens, layer.config.router.experts}, bias, routing);
  if (!routed) std::abort();
  return routing;
}

LayerResult run_layer(const LayerRun& run) {
  LayerResult result;
  std::mutex mutex;
  std::vector<std::unique_ptr<RankRun>> ranks(static_cast<std::size_t>(run.ranks));
  const auto outcomes =
      run_threads({.ranks = run.ranks, .ranks_per_node = run.ranks_per_node}, [&](Communicator& world) {
        auto rank = std::make_unique<RankRun>(run, world);
        const Result<void> done = rank->execute();
        const std::lock_guard lock(mutex);
        ranks[static_cast<std::size_t>(world.rank())] = std::move(rank);
        if (done) return 0;
        world.fail(done.error());
        result.errors.push_back(done.error());
        return 1;
      });
  if (!outcomes) result.errors.push_back(outcomes.error());
  if (!result.errors.empty()) return result;
  std::vector<RoutingTable> routes;
  for (const auto& rank : ranks) {
    rank->collect(result);
    routes.push_back(rank->routing);
    result.per_rank.push_back(rank->gradients);
  }
  join_routing(routes, result.routing);
  result.gradients = result.per_rank[0];
  const int ep_size = run.ep_size > 0 ? run.ep_size : run.ranks;
  for (int r = 1; r < ep_size; ++r) {
    const LayerGradients& part = result.per_rank[static_cast<std::size_t>(r)];
    const auto join = [](std::vector<float>& to, const std::vector<float>& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    join(result.gradients.w13, part.w13);
    join(result.gradients.w2, part.w2);
    join(result.gradients.b13, part.b13);
    join(result.gradients.b2, part.b2);
  }
  return result;
}

double relative_error(const std::vector<float>& a, const std::vector<double>& b) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(difference / std::max(norm, 1e-300));
}

double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  return relative_error(a, doubles(b));
}

std::vector<double> doubles(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

LayerConfig deepseek_v2_like(DType dtype) {
  LayerConfig config = small_layer(dtype);
  config.shared_inter = 24;
  config.router.groups = 4;
  config.router.topk_groups = 2;
  config.router.scale = 4.0f;
  return config;
}

LayerConfig deepseek_v3_like(DType dtype) {
  LayerConfig config = deepseek_v2_like(dtype);
  config.router.score = Score::kSigmoid;
  config.router.group_score = GroupScore::kTopTwoSum;
  config.router.renormalize = true;
  config.router.scale = 2.5f;
  return config;
}

LayerConfig mixtral_like(DType dtype) {
  LayerConfig config = small_layer(dtype);
  config.router.experts = 8;
  config.router.topk = 2;
  config.router.renormalize = true;
  return config;
}

LayerConfig gpt_oss_like(DType dtype) {
  LayerConfig config = small_layer(dtype);
  config.router.renormalize = true;
  config.router_bias = true;
  config.expert_bias = true;
  config.activation = Activation::kClampedSwiGlu;
  config.clamp_limit = 1.0f;  // low, so that clamping happens
  return config;
}

}  // namespace moetax::testing
