// Carriers that pass bundles on through other ranks, in as many phases as the longest way has hops.
#pragma once

#include <vector>

#include "exchange/carrier.h"

namespace moetax {

// In each phase a rank sends one message to each rank that is the next hop of bundles it holds, and keeps what it
// receives for others until the next phase. Which bundles meet in which message, and where, all ranks work out alike.
class RelayCarrier : public Carrier {
 public:
  Result<Carried> carry(Load& load, Operation operation, double deadline_s, FunctionRef<void()> meanwhile) override;

 protected:
  explicit RelayCarrier(const CarrierSetup& setup);

  // The way of a bundle between ranks of different nodes: hops, and who holds it after `hop` of them (0: from, hops:
  // to). Two ranks that follow each other on a way are never on one node.
  virtual int hops(Rank from, Rank to) const = 0;
  virtual Rank holder(Rank from, Rank to, int hop) const = 0;
  const NodeMap& nodes() const { return *setup_.nodes; }
  // To be called by the derived class when hops() works.
  void find_phases();

 private:
  // One bundle on a hop, and where it lies in the message of that hop.
  struct Part {
    Rank from, to, peer;
    BundleSize size;
    std::size_t offset, bytes;
  };
  void find_parts(const Load& load, int phase);
  void pack(const Load& load, const Part& part);
  void unpack(Load& load, const Part& part);
  void start_swap();

  CarrierSetup setup_;
  int phases_ = 0;
  std::vector<Part> out_, in_, held_;              // of this phase, and what the last one brought for others
  std::vector<std::size_t> out_bytes_, in_bytes_;  // [R]
  std::vector<std::vector<std::byte>> out_buffer_, in_buffer_, held_buffer_;  // [R], they only grow
  std::vector<Message> messages_;
};

}  // namespace moetax
