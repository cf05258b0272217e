// Carriers that send every bundle straight to its rank, in chunks, a few of which are under way at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "exchange/carrier.h"
#include "moetax/base/memory.h"

namespace moetax {

// Which bundles go first is the order in which chunks are started: that is all pairwise and direct differ in.
class StreamCarrier : public Carrier {
 public:
  Result<Carried> carry(Load& load, Operation operation, double deadline_s, FunctionRef<void()> meanwhile) override;

 protected:
  struct Chunk {
    Rank peer = kNoRank;
    std::int64_t first = 0, rows = 0;
    std::int64_t header_bytes = 0;  // not 0 only in a bundle's first chunk
  };

  explicit StreamCarrier(const CarrierSetup& setup) : setup_(setup) {}
  // Room for `window` chunks under way in each direction.
  Result<void> reserve(std::size_t window);

  // Fills `chunks` with those of the bundles to (or from) all peers, in the order they are to be started. Orders must
  // fit together: the chunk that comes first among all that are not done must be next at both its ranks.
  virtual void order_sends(const Load& load, std::vector<Chunk>& chunks) const = 0;
  virtual void order_receives(const Load& load, std::vector<Chunk>& chunks) const = 0;
  // The chunk `idx` of a bundle; false behind the last.
  bool chunk_of(const BundleSize& size, Rank peer, std::int64_t idx, Chunk& chunk) const;
  void append_chunks(const BundleSize& size, Rank peer, std::vector<Chunk>& chunks) const;

  Rank self() const { return setup_.comm->rank(); }
  int size() const { return setup_.comm->size(); }
  const CarrierSetup& setup() const { return setup_; }

 private:
  struct Open {
    Chunk chunk;
    bool incoming = false;
    Message message = 0;
    std::byte* buffer = nullptr;
  };
  std::int64_t rows_per_chunk() const;
  std::size_t bytes_of(const Chunk& chunk) const {
    return static_cast<std::size_t>(chunk.header_bytes) + static_cast<std::size_t>(chunk.rows) * row_bytes_;
  }
  void note_flow(const Chunk& chunk);
  void send(const Load& load, const Chunk& chunk);
  void receive(const Chunk& chunk);
  Result<std::size_t> finish_one(Operation operation, Deadline deadline);

  CarrierSetup setup_;
  std::size_t row_bytes_ = 1;  // of what is carried now
  std::vector<PageBuffer> buffers_;
  std::vector<std::byte*> free_out_, free_in_;
  std::vector<Chunk> sends_, receives_;
  std::vector<FlowRecord> flows_;
  std::vector<Open> open_;        // under way, in the order they were started
  std::vector<Message> awaited_;  // of them, those that may be finished next
  std::vector<std::size_t> awaited_idx_;
  std::vector<std::uint64_t> awaited_from_;  // [R] the last turn in which a receive from that rank was awaited
  std::uint64_t turn_ = 0;
};

}  // namespace moetax
