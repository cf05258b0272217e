#include "exchange/relay_carrier.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace moetax {

RelayCarrier::RelayCarrier(const CarrierSetup& setup) : setup_(setup) {
  const auto ranks = static_cast<std::size_t>(setup.comm->size());
  for (auto* buffers : {&out_buffer_, &in_buffer_, &held_buffer_}) buffers->resize(ranks);
  messages_.reserve(2 * ranks);
}

void RelayCarrier::find_phases() {
  for (const Rank from : setup_.comm->everyone()) {
    for (const Rank to : setup_.comm->everyone()) {
      if (nodes().node_of(from) != nodes().node_of(to)) phases_ = std::max(phases_, hops(from, to));
    }
  }
}

Result<Carried> RelayCarrier::carry(Load& load, Operation operation, double deadline_s, FunctionRef<void()> meanwhile) {
  Carried carried;
  held_.clear();
  for (int phase = 1; phase <= phases_; ++phase) {
    find_parts(load, phase);
    for (const Part& part : out_) {
      pack(load, part);
      carried.sent_rows += part.size.rows;
    }
    start_swap();
    if (phase == 1) meanwhile();
    if (!messages_.empty()) {
      MOETAX_TRY(setup_.comm->finish(messages_, operation, Deadline::in_seconds(deadline_s)));
    }
    held_.clear();
    for (const Part& part : in_) {
      carried.received_rows += part.size.rows;
      if (part.to == setup_.comm->rank()) {
        unpack(load, part);
      } else {
        held_.push_back(part);
      }
    }
    held_buffer_.swap(in_buffer_);
  }
  return carried;
}

// Bundles in the order of (from, to), in every message.
void RelayCarrier::find_parts(const Load& load, int phase) {
  const Rank self = setup_.comm->rank();
  const auto ranks = static_cast<std::size_t>(setup_.comm->size());
  out_.clear();
  in_.clear();
  out_bytes_.assign(ranks, 0);
  in_bytes_.assign(ranks, 0);
  const auto add = [](std::vector<Part>& parts, std::vector<std::size_t>& bytes, Part part) {
    std::size_t& end = bytes[static_cast<std::size_t>(part.peer)];
    part.offset = std::exchange(end, end + part.bytes);
    parts.push_back(part);
  };
  for (const Rank from : setup_.comm->everyone()) {
    for (const Rank to : setup_.comm->everyone()) {
      if (nodes().node_of(from) == nodes().node_of(to) || hops(from, to) < phase) continue;
      const Rank before = holder(from, to, phase - 1), after = holder(from, to, phase);
      if (before != self && after != self) continue;
      const BundleSize size = load.size(from, to);
      if (size.empty()) continue;
      const std::size_t bytes =
          static_cast<std::size_t>(size.header_bytes) + static_cast<std::size_t>(size.rows) * load.row_bytes();
      if (before == self) add(out_, out_bytes_, {from, to, after, size, 0, bytes});
      if (after == self) add(in_, in_bytes_, {from, to, before, size, 0, bytes});
    }
  }
  for (std::size_t r = 0; r < ranks; ++r) {
    if (out_buffer_[r].size() < out_bytes_[r]) out_buffer_[r].resize(out_bytes_[r]);
    if (in_buffer_[r].size() < in_bytes_[r]) in_buffer_[r].resize(in_bytes_[r]);
  }
}

void RelayCarrier::pack(const Load& load, const Part& part) {
  std::byte* out = out_buffer_[static_cast<std::size_t>(part.peer)].data() + part.offset;
  if (part.from == setup_.comm->rank()) {
    if (part.size.header_bytes > 0) load.pack_header(part.to, out);
    if (part.size.rows > 0) load.pack_rows(part.to, 0, part.size.rows, out + part.size.header_bytes);
    return;
  }
  const auto same = [&](const Part& held) { return held.from == part.from && held.to == part.to; };
  const auto held = std::find_if(held_.begin(), held_.end(), same);
  std::memcpy(out, held_buffer_[static_cast<std::size_t>(held->peer)].data() + held->offset, part.bytes);
}

void RelayCarrier::unpack(Load& load, const Part& part) {
  const std::byte* in = in_buffer_[static_cast<std::size_t>(part.peer)].data() + part.offset;
  if (part.size.header_bytes > 0) load.unpack_header(part.from, in);
  if (part.size.rows > 0) load.unpack_rows(part.from, 0, part.size.rows, in + part.size.header_bytes);
}

void RelayCarrier::start_swap() {
  messages_.clear();
  for (const Rank peer : nodes().far()) {
    const auto idx = static_cast<std::size_t>(peer);
    if (in_bytes_[idx] > 0) {
      messages_.push_back(setup_.comm->receive(peer, std::span(in_buffer_[idx]).first(in_bytes_[idx])));
    }
    if (out_bytes_[idx] > 0) {
      messages_.push_back(setup_.comm->send(peer, std::span(out_buffer_[idx]).first(out_bytes_[idx])));
    }
  }
}

}  // namespace moetax
