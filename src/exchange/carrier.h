// How bundles of rows travel between ranks that share no memory: one all-to-all whose sizes every rank knows.
//
// A bundle is a header and then rows of equal size, from one rank to another. Where a carrier passes bundles on through
// other ranks it needs the sizes of all bundles, not only of this rank's. There is one carrier per way of travelling,
// in a file of its own each; they differ in who sends when, never in what arrives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "moetax/base/function_ref.h"
#include "moetax/base/observer.h"
#include "moetax/base/result.h"
#include "moetax/exchange/exchange.h"
#include "moetax/transport/communicator.h"
#include "moetax/transport/node_map.h"

namespace moetax {

struct BundleSize {
  std::int64_t header_bytes = 0;
  std::int64_t rows = 0;
  bool empty() const { return header_bytes == 0 && rows == 0; }
};

// What one rank brings to an all-to-all and takes from it. The header of a bundle is unpacked before any of its rows,
// rows in ascending order.
class Load {
 public:
  virtual ~Load() = default;
  virtual BundleSize size(Rank from, Rank to) const = 0;  // the same on all ranks; only asked across nodes
  virtual std::size_t row_bytes() const = 0;              // at most CarrierSetup::max_row_bytes
  virtual void pack_header(Rank to, std::byte* out) const = 0;
  virtual void pack_rows(Rank to, std::int64_t first, std::int64_t count, std::byte* out) const = 0;
  virtual void unpack_header(Rank from, const std::byte* in) = 0;
  virtual void unpack_rows(Rank from, std::int64_t first, std::int64_t count, const std::byte* in) = 0;
};

// Rows that crossed between nodes, once per hop.
struct Carried {
  std::int64_t sent_rows = 0, received_rows = 0;
  std::span<const FlowRecord> flows = {};  // by peer of the carrier's communicator, valid until the next carry()
};

class Carrier {
 public:
  virtual ~Carrier() = default;
  // Collective over all ranks. `meanwhile` is called once, when the first messages are under way. Every wait inside has
  // `deadline_s`; kPeerFailed names who is missing. Allocates only when more is carried than ever before.
  virtual Result<Carried> carry(Load& load, Operation operation, double deadline_s, FunctionRef<void()> meanwhile) = 0;
};

// What carriers need to know of the exchange.
struct CarrierSetup {
  Communicator* comm;
  const NodeMap* nodes;
  std::size_t max_row_bytes;
  std::size_t max_header_bytes;  // of a bundle
};

Result<std::unique_ptr<Carrier>> make_pairwise(const CarrierSetup& setup);
Result<std::unique_ptr<Carrier>> make_direct(const CarrierSetup& setup);
std::unique_ptr<Carrier> make_ring(const CarrierSetup& setup);
std::unique_ptr<Carrier> make_mesh2d(const CarrierSetup& setup);

// The carrier of an exchange algorithm; two-level travels pairwise.
Result<std::unique_ptr<Carrier>> make_carrier(ExchangeAlgorithm algorithm, const CarrierSetup& setup);

}  // namespace moetax
