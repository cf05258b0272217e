// A model configuration from anywhere gives a shape the library can run, or an error of one line.

#include "fuzz.h"
#include "moetax/model/shape.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using moetax::fuzz::require;
  const auto shape = moetax::parse_model_config(moetax::fuzz::as_text(data, size), "config.json");
  if (!shape) {
    require(shape.error().code == moetax::ErrorCode::kBadInput ||
            shape.error().code == moetax::ErrorCode::kUnavailable);
    moetax::fuzz::require_good_message(shape.error(), "config.json: ");
    return 0;
  }
  require(shape->hidden > 0 && shape->inter > 0 && shape->shared_inter >= 0);
  require(shape->router.topk > 0 && shape->router.topk <= shape->router.experts);
  require(shape->layers >= 0 && shape->moe_layers >= 0 && shape->moe_layers <= shape->layers);
  require(moetax::validate(shape->router).has_value());
  require(moetax::layer_weight_bytes(*shape, 2) > 0);
  return 0;
}
