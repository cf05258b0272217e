// The direct carrier: all peers at once, a few chunks each, and the network sorts it out.
#include "exchange/stream_carrier.h"

namespace moetax {
namespace {

constexpr std::size_t kWindowPerPeer = 4;

class Direct final : public StreamCarrier {
 public:
  static Result<std::unique_ptr<Carrier>> create(const CarrierSetup& setup) {
    std::unique_ptr<Direct> made(new Direct(setup));
    MOETAX_TRY(made->reserve(kWindowPerPeer * setup.nodes->far().size()));
    return std::unique_ptr<Carrier>(std::move(made));
  }

 private:
  explicit Direct(const CarrierSetup& setup) : StreamCarrier(setup) {}

  void order_sends(const Load& load, std::vector<Chunk>& chunks) const override {
    in_turns([&](Rank peer) { return load.size(self(), peer); }, chunks);
  }
  void order_receives(const Load& load, std::vector<Chunk>& chunks) const override {
    in_turns([&](Rank peer) { return load.size(peer, self()); }, chunks);
  }

  // The first chunk of every bundle, then the second of every one, and so on. Each rank begins with its neighbour.
  template <class SizeOf>
  void in_turns(SizeOf size_of, std::vector<Chunk>& chunks) const {
    const auto far = setup().nodes->far();
    std::size_t before = chunks.size();
    for (std::int64_t idx = 0;; ++idx, before = chunks.size()) {
      for (std::size_t i = 0; i < far.size(); ++i) {
        const Rank peer = far[(i + static_cast<std::size_t>(self())) % far.size()];
        Chunk chunk;
        if (chunk_of(size_of(peer), peer, idx, chunk)) chunks.push_back(chunk);
      }
      if (chunks.size() == before) return;
    }
  }
};

}  // namespace

Result<std::unique_ptr<Carrier>> make_direct(const CarrierSetup& setup) {
  return Direct::create(setup);
}

}  // namespace moetax
