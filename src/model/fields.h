// Typed access to the keys of a model configuration that many authors spelt differently.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "moetax/base/result.h"

namespace moetax {

// Looks keys up in the object that describes the MoE, then in that object's ffn_config. A key that is null counts as
// absent. Lookups return the fallback after a problem and keep the first one, so that a reader reads straight down and
// asks once at the end. Does not own the JSON.
class Fields {
 public:
  using Keys = std::initializer_list<const char*>;
  struct Hit {
    std::string key;  // with the objects it is in: "text_config.num_experts"
    const nlohmann::json* value;
  };

  Fields(const nlohmann::json& object, std::string prefix);

  std::optional<Hit> find(Keys keys) const;  // the first that is there
  bool has(Keys keys) const { return find(keys).has_value(); }

  // Of the first key that is there. Another type or a value outside [min, max] is a problem; so is absence when there
  // is no fallback.
  std::int64_t whole(Keys keys, std::int64_t min, std::int64_t max, std::optional<std::int64_t> fallback = {});
  double number(Keys keys, double min, double max, double fallback);
  bool flag(Keys keys, bool fallback);
  std::string word(Keys keys, std::string_view fallback);
  // A list of whole numbers in [min, max]; empty when absent. true and false count as 1 and 0.
  std::vector<std::int64_t> whole_list(Keys keys, std::int64_t min, std::int64_t max);

  // The name the file uses for the first key that is there, the first possible name otherwise. For messages.
  std::string name_of(Keys keys) const;

  void problem(std::string message);  // kept when it is the first
  const std::optional<std::string>& first_problem() const { return problem_; }

 private:
  void expected(const Hit& hit, std::string_view what);

  const nlohmann::json* object_;
  const nlohmann::json* ffn_ = nullptr;
  std::string prefix_;
  std::optional<std::string> problem_;
};

}  // namespace moetax
