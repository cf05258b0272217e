// The ring carrier: nodes pass bundles to their neighbours, whichever way round is shorter, at most half the ring.
#include <cstdlib>

#include "exchange/relay_carrier.h"
#include "moetax/base/node_ways.h"

namespace moetax {
namespace {

class Ring final : public RelayCarrier {
 public:
  explicit Ring(const CarrierSetup& setup) : RelayCarrier(setup) { find_phases(); }

 private:
  int distance(Rank from, Rank to) const {
    return ring_distance(nodes().node_of(from), nodes().node_of(to), nodes().num_nodes());
  }
  int hops(Rank from, Rank to) const override { return std::abs(distance(from, to)); }
  Rank holder(Rank from, Rank to, int hop) const override {
    if (hop == 0) return from;
    if (hop == hops(from, to)) return to;
    const int num = nodes().num_nodes(), step = distance(from, to) > 0 ? hop : -hop;
    return nodes().counterpart(from, (nodes().node_of(from) + step + num) % num);
  }
};

}  // namespace

std::unique_ptr<Carrier> make_ring(const CarrierSetup& setup) {
  return std::make_unique<Ring>(setup);
}

}  // namespace moetax
