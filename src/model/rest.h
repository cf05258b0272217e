// What of a model lies beside its routed experts: shared experts, attention, dense layers, vocabulary.
#pragma once

#include <string>

#include "model/fields.h"
#include "moetax/model/shape.h"

namespace moetax {

inline constexpr std::int64_t kMaxWidth = std::int64_t{1} << 20;

// Fills in `model` all but its shape, and the shape's shared experts where the family's code has them and the file does
// not say. A key that makes no sense counts as not there.
void read_rest(Fields fields, const std::string& model_type, ModelShape& shape, ModelDescription& model);

}  // namespace moetax
