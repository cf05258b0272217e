#include "cli/layer_stack.h"

#include <fmt/format.h>

#include <utility>

#include "cli/bench_tokens.h"
#include "moetax/base/random.h"

namespace moetax::cli {
namespace {

constexpr std::uint64_t kTokenStream = 1, kGradientStream = 2, kBiasStream = 1000;

// Stands in for a trained router's: small against the scores, so that it moves some choices and starves nobody.
std::vector<float> selection_bias(const BenchOptions& options, int layer_idx) {
  const RandomStream random(options.seed, kBiasStream + static_cast<std::uint64_t>(layer_idx));
  std::vector<float> bias(static_cast<std::size_t>(options.model.router.experts));
  for (std::size_t e = 0; e < bias.size(); ++e) bias[e] = 0.01f * random.normal(e);
  return bias;
}

}  // namespace

Result<LayerStack> LayerStack::create(const BenchOptions& options, const RoutingSource& routes,
                                      ExpertParallel& parallel, Observer* observer, const Say& say) {
  LayerStack stack(options, routes, parallel.world().rank(), observer);
  MOETAX_TRY(stack.make_layers(parallel, say));
  MOETAX_TRY(stack.make_tokens());
  return stack;
}

Result<void> LayerStack::make_layers(ExpertParallel& parallel, const Say& say) {
  const BenchOptions& options = *options_;
  for (int l = 0; l < options.layers; ++l) {
    say(fmt::format("making the weights of layer {}/{}", l + 1, options.layers));
    MOETAX_ASSIGN(MoeLayer layer, MoeLayer::create(parallel, options.layer_config(), options.activations));
    MOETAX_TRY(layer.init_weights(options.seed, l));
    if (options.model.selection_bias) layer.set_selection_bias(selection_bias(options, l));
    layers_.push_back(std::move(layer));
  }
  return {};
}

Result<void> LayerStack::make_tokens() {
  const BenchOptions& options = *options_;
  const std::size_t bytes = static_cast<std::size_t>(tokens() * options.model.hidden) * size_of(options.dtype);
  const std::int64_t first = options.first_token(rank_);
  for (int l = 0; l < options.layers; ++l) {
    MOETAX_ASSIGN(PageBuffer input, PageBuffer::reserve(bytes));
    inputs_.push_back(std::move(input));
    scale_.emplace_back(static_cast<std::size_t>(tokens()));
  }
  give_routes(0, tokens());
  MOETAX_ASSIGN(output_, PageBuffer::reserve(bytes));
  fill_tokens(options.seed, kTokenStream, first, options.threads, rows_at(inputs_[0]));
  if (!options.backward) return {};
  saved_.resize(layers_.size());
  gradients_.resize(layers_.size());
  MOETAX_ASSIGN(d_out_, PageBuffer::reserve(bytes));
  MOETAX_ASSIGN(d_stream_, PageBuffer::reserve(bytes));
  MOETAX_ASSIGN(d_hidden_, PageBuffer::reserve(static_cast<std::size_t>(tokens() * options.model.hidden) * 4));
  fill_tokens(options.seed, kGradientStream, first, options.threads, rows_at(d_out_));
  return {};
}

Result<void> LayerStack::forward(std::int64_t first, std::int64_t count) {
  const std::int64_t first_token = options_->first_token(rank_) + first;
  give_routes(first, count);
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    LayerSaved* saved = options_->backward ? &saved_[l] : nullptr;
    const RoutingTable* given = given_.empty() ? nullptr : &given_[l];
    const Rows in = rows_at(inputs_[l], l == 0 ? first : 0, count), out = rows_at(output_, 0, count);
    MOETAX_TRY(layers_[l].forward(in, out, saved, given, first_token));
    if (l + 1 == layers_.size()) break;
    const Span span(observer_, Part::kOther, "residual");
    add_and_normalise(in, out, options_->threads, rows_at(inputs_[l + 1], 0, count), scale_[l]);
  }
  return {};
}

// Those of the last call stay where it was of the same tokens.
void LayerStack::give_routes(std::int64_t first, std::int64_t count) {
  if (routes_->from_router() || (!given_.empty() && first == given_first_ && count == given_count_)) return;
  given_.resize(layers_.size());
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    routes_->fill(static_cast<int>(l), options_->first_token(rank_) + first, count, given_[l]);
  }
  given_first_ = first;
  given_count_ = count;
}

Result<void> LayerStack::backward() {
  const MatrixView<float> d_hidden(d_hidden_.as<float>(), tokens(), options_->model.hidden);
  ConstRows d_out = rows_at(d_out_);
  for (std::size_t l = layers_.size(); l-- > 0;) {
    MOETAX_TRY(layers_[l].backward(rows_at(inputs_[l]), saved_[l], d_out, d_hidden, gradients_[l], false));
    if (l == 0) break;
    const Span span(observer_, Part::kOther, "residual");
    const bool last = l + 1 == layers_.size();
    add_and_normalise_backward(rows_at(inputs_[l]), scale_[l - 1], d_hidden, last ? ConstRows{} : d_out,
                               options_->threads, rows_at(d_stream_));
    d_out = rows_at(d_stream_);
  }
  return {};
}

void LayerStack::let_go_of_layouts() {
  for (LayerSaved& saved : saved_) saved.layout = {};
}

std::vector<const RoutingTable*> LayerStack::routings() const {
  std::vector<const RoutingTable*> routings;
  for (const MoeLayer& layer : layers_) routings.push_back(&layer.routing());
  return routings;
}

}  // namespace moetax::cli
