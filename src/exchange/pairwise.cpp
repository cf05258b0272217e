// The staggered pairwise carrier: in each round every rank sends to one peer and receives from another, so that no
// receiver is fed by two senders at once. Node by node: in the rounds of one distance every node sends to one node.
#include "exchange/stream_carrier.h"

namespace moetax {
namespace {

// Chunks under way in each direction: enough that the link has work while a rank packs or is off its core.
constexpr std::size_t kWindow = 8;

class Pairwise final : public StreamCarrier {
 public:
  static Result<std::unique_ptr<Carrier>> create(const CarrierSetup& setup) {
    std::unique_ptr<Pairwise> made(new Pairwise(setup));
    MOETAX_TRY(made->reserve(kWindow));
    return std::unique_ptr<Carrier>(std::move(made));
  }

 private:
  explicit Pairwise(const CarrierSetup& setup) : StreamCarrier(setup) {
    const NodeMap& nodes = *setup.nodes;
    for (int node = 0; node < nodes.num_nodes(); ++node) {
      even_ = even_ && nodes.ranks_of(node).size() == nodes.ranks_of(0).size();
    }
  }

  void order_sends(const Load& load, std::vector<Chunk>& chunks) const override {
    for (int round = 1; round < size(); ++round) add(load, self(), target(self(), round, 1), chunks);
  }
  void order_receives(const Load& load, std::vector<Chunk>& chunks) const override {
    for (int round = 1; round < size(); ++round) add(load, target(self(), round, -1), self(), chunks);
  }

  void add(const Load& load, Rank from, Rank to, std::vector<Chunk>& chunks) const {
    const Rank peer = from == self() ? to : from;
    if (peer != self() && !setup().comm->shares_memory(peer)) append_chunks(load.size(from, to), peer, chunks);
  }

  // Whom `rank` sends to in a round (direction 1), or hears (direction -1): a permutation of the ranks in each round.
  // Rounds begin with those inside the node, in which nothing is carried.
  Rank target(Rank rank, int round, int direction) const {
    if (!even_) return (rank + direction * round + size()) % size();
    const NodeMap& nodes = *setup().nodes;
    const int per_node = nodes.num_rails(), num_nodes = nodes.num_nodes();
    const int node = (nodes.node_of(rank) + direction * (round / per_node) + num_nodes) % num_nodes;
    const int place = (nodes.place_of(rank) + direction * (round % per_node) + per_node) % per_node;
    return nodes.ranks_of(node)[static_cast<std::size_t>(place)];
  }

  bool even_ = true;  // all nodes have as many ranks
};

}  // namespace

Result<std::unique_ptr<Carrier>> make_pairwise(const CarrierSetup& setup) {
  return Pairwise::create(setup);
}

}  // namespace moetax
