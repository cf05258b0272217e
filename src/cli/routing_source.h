// Where the routes of a bench come from: the layer's own router, a load, or a recording.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "moetax/base/result.h"
#include "moetax/route/load_file.h"
#include "moetax/route/routing_table.h"

namespace moetax::cli {

class RoutingSource {
 public:
  // `text` as --routing takes it, see parse_routing_spec(); reads the file it names.
  static Result<RoutingSource> open(const std::string& text, int experts, int topk, std::uint64_t seed);

  bool from_router() const { return counts_.empty() && !trace_; }
  // Routes of global tokens [first, first + count) for one layer of the chain. Not for from_router().
  void fill(int layer_idx, std::int64_t first, std::int64_t count, RoutingTable& out) const;

 private:
  int topk_ = 1;
  std::uint64_t seed_ = 0;
  std::vector<double> counts_;
  std::optional<RoutingTrace> trace_;
};

}  // namespace moetax::cli
