// The two-dimensional mesh: nodes lie in a grid; bundles go along their row to the column of their node, then along the
// column. Two hops at most, and each node speaks with its row and its column only.
#include "exchange/relay_carrier.h"
#include "moetax/base/node_ways.h"

namespace moetax {
namespace {

class Mesh2d final : public RelayCarrier {
 public:
  explicit Mesh2d(const CarrierSetup& setup) : RelayCarrier(setup), columns_(mesh_columns(setup.nodes->num_nodes())) {
    find_phases();
  }

 private:
  int row(Rank rank) const { return nodes().node_of(rank) / columns_; }
  int column(Rank rank) const { return nodes().node_of(rank) % columns_; }
  int hops(Rank from, Rank to) const override { return row(from) != row(to) && column(from) != column(to) ? 2 : 1; }
  Rank holder(Rank from, Rank to, int hop) const override {
    if (hop == 0) return from;
    if (hop == hops(from, to)) return to;
    return nodes().counterpart(from, row(from) * columns_ + column(to));
  }

  int columns_;
};

}  // namespace

std::unique_ptr<Carrier> make_mesh2d(const CarrierSetup& setup) {
  return std::make_unique<Mesh2d>(setup);
}

}  // namespace moetax
