// How a model's code of the Hugging Face library holds its experts.
#pragma once

#include <optional>
#include <string_view>

#include "doctor/facts.h"

namespace moetax::doctor {

// The class of the block around a model's experts where each expert is a module of its own; nothing for models that
// keep all experts of a layer in one tensor, and for unknown ones.
std::optional<std::string_view> block_of_expert_modules(const ModelFacts& model);

}  // namespace moetax::doctor
