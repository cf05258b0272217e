// Gradients against central differences of the double-precision oracle: loss = <d_out, out>.
#include <gtest/gtest.h>

#include <cmath>

#include "layer/oracle.h"
#include "moetax/base/random.h"

namespace moetax::testing {
namespace {

double loss(const PlainLayer& layer, const std::vector<double>& hidden, const LayerResult& real) {
  const std::vector<double> out = oracle_forward(layer, hidden, real.routing);
  double sum = 0;
  for (std::size_t i = 0; i < out.size(); ++i) sum += out[i] * real.d_out[i];
  return sum;
}

// Compares some elements of a gradient with differences of the loss in the same elements of `parameter`.
void check(const char* what, const PlainLayer& layer, const std::vector<double>& hidden, const LayerResult& real,
           std::vector<double>& parameter, std::span<const float> gradient) {
  ASSERT_EQ(parameter.size(), gradient.size()) << what;
  const RandomStream random(3, parameter.size());
  double difference = 0, norm = 0;
  const int samples = static_cast<int>(std::min<std::size_t>(12, parameter.size()));
  for (int s = 0; s < samples; ++s) {
    const std::size_t i = random.bits(static_cast<std::uint64_t>(s)) % parameter.size();
    const double kept = parameter[i], step = 1e-5;
    parameter[i] = kept + step;
    const double up = loss(layer, hidden, real);
    parameter[i] = kept - step;
    const double down = loss(layer, hidden, real);
    parameter[i] = kept;
    const double expected = (up - down) / (2 * step);
    difference += (gradient[i] - expected) * (gradient[i] - expected);
    norm += expected * expected;
  }
  EXPECT_LT(std::sqrt(difference), 1e-4 * std::sqrt(norm) + 1e-6) << what;
}

class LayerBackward : public ::testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(LayerBackward, MatchesFiniteDifferences) {
  const auto [form, ranks] = GetParam();
  LayerConfig (*const forms[])(DType) = {deepseek_v2_like, deepseek_v3_like, mixtral_like, gpt_oss_like};
  const LayerConfig config = forms[form](DType::kFp32);
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(ranks), 12 / ranks);
  const LayerResult real = run_layer({.ranks = ranks, .tokens_per_rank = tokens, .config = config, .backward = true});
  ASSERT_TRUE(real.errors.empty()) << real.errors[0].message;
  PlainLayer layer = plain_layer(config, 7, 0);
  std::vector<double> hidden = doubles(real.hidden);
  const LayerGradients& grads = real.gradients;
  check("tokens", layer, hidden, real, hidden, real.d_hidden);
  check("router", layer, hidden, real, layer.router, grads.router);
  if (config.router_bias) check("router bias", layer, hidden, real, layer.router_bias, grads.router_bias);
  if (config.shared_inter > 0) {
    check("shared w13", layer, hidden, real, layer.shared_w13, grads.shared_w13);
    check("shared w2", layer, hidden, real, layer.shared_w2, grads.shared_w2);
  }
  for (std::size_t e = 0; e < layer.w13.size(); e += 3) {
    const auto part = [e](const std::vector<float>& all, std::size_t each) {
      return std::span(all).subspan(e * each, each);
    };
    check("w13", layer, hidden, real, layer.w13[e], part(grads.w13, layer.w13[e].size()));
    check("w2", layer, hidden, real, layer.w2[e], part(grads.w2, layer.w2[e].size()));
    if (!config.expert_bias) continue;
    check("b13", layer, hidden, real, layer.b13[e], part(grads.b13, layer.b13[e].size()));
    check("b2", layer, hidden, real, layer.b2[e], part(grads.b2, layer.b2[e].size()));
  }
}

INSTANTIATE_TEST_SUITE_P(FormsAndRanks, LayerBackward,
                         ::testing::Combine(::testing::Range(0, 4), ::testing::Values(1, 2, 4)));

}  // namespace
}  // namespace moetax::testing
