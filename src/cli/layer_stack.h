// The layers that one rank of a bench runs, with the tokens that go through them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cli/bench_options.h"
#include "cli/routing_source.h"
#include "moetax/base/memory.h"
#include "moetax/base/observer.h"
#include "moetax/base/result.h"
#include "moetax/layer/moe_layer.h"

namespace moetax::cli {

// Says what is being done, on a terminal.
using Say = std::function<void(const std::string&)>;

// `options` and `routes` outlive it, and `parallel` too.
class LayerStack {
 public:
  // Collective. `observer` hears of what is not in the layers.
  static Result<LayerStack> create(const BenchOptions& options, const RoutingSource& routes, ExpertParallel& parallel,
                                   Observer* observer, const Say& say);

  // One after the other: x[l+1] = norm(x[l] + layer_l(x[l])); the last layer's output stands alone.
  Result<void> forward() { return forward(0, tokens()); }
  // The same of some of the rank's tokens only, from `first` on; output() then begins with theirs.
  Result<void> forward(std::int64_t first, std::int64_t count);
  // After forward(), with gradients that look like tokens.
  Result<void> backward();
  // What the last forward() kept for a backward(): without it the exchange may be told to go other ways.
  void let_go_of_layouts();

  const std::vector<MoeLayer>& layers() const { return layers_; }
  std::vector<const RoutingTable*> routings() const;  // of the last forward()
  ConstRows input() const { return rows_at(inputs_[0]); }
  Rows output() { return rows_at(output_); }

 private:
  LayerStack(const BenchOptions& options, const RoutingSource& routes, Rank rank, Observer* observer)
      : options_(&options), routes_(&routes), rank_(rank), observer_(observer) {}
  Result<void> make_layers(ExpertParallel& parallel, const Say& say);
  Result<void> make_tokens();
  void give_routes(std::int64_t first, std::int64_t count);
  std::int64_t tokens() const { return options_->tokens[static_cast<std::size_t>(rank_)]; }
  Rows rows_at(const PageBuffer& buffer) const { return rows_at(buffer, 0, tokens()); }
  Rows rows_at(const PageBuffer& buffer, std::int64_t first, std::int64_t count) const {
    const Rows rows{buffer.data(), options_->dtype, tokens(), options_->model.hidden};
    return {rows.data + static_cast<std::size_t>(first) * rows.row_bytes(), rows.dtype, count, rows.cols};
  }

  const BenchOptions* options_;
  const RoutingSource* routes_;
  Rank rank_;
  Observer* observer_;
  std::vector<MoeLayer> layers_;
  std::vector<PageBuffer> inputs_;         // hidden of every layer
  std::vector<std::vector<float>> scale_;  // [layers][T] of the norm behind each layer
  PageBuffer output_;
  std::vector<RoutingTable> given_;                 // of every layer, where routes do not come from its router
  std::int64_t given_first_ = 0, given_count_ = 0;  // the tokens they are of
  std::vector<LayerSaved> saved_;
  std::vector<LayerGradients> gradients_;
  PageBuffer d_out_, d_stream_, d_hidden_;
};

}  // namespace moetax::cli
