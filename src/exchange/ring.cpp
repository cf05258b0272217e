// The ring carrier: nodes pass bundles to their neighbours, whichever way round is shorter, at most half the ring.
#include <algorithm>

#include "exchange/relay_carrier.h"

namespace moetax {
namespace {

class Ring final : public RelayCarrier {
 public:
  explicit Ring(const CarrierSetup& setup) : RelayCarrier(setup) { find_phases(); }

 private:
  // Nodes forward, or backward if negative. Exactly half the ring is half and half, by the sender's node.
  int distance(Rank from, Rank to) const {
    const int num = nodes().num_nodes(), start = nodes().node_of(from);
    const int forward = (nodes().node_of(to) - start + num) % num;
    const bool ahead = 2 * forward < num || (2 * forward == num && start % 2 == 0);
    return ahead ? forward : forward - num;
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
