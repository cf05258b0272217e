#include "exchange/stream_carrier.h"

#include <algorithm>
#include <utility>

#include "moetax/base/clock.h"

namespace moetax {
namespace {

// Below 64 KiB, from where on MPI over TCP asks the receiver before it sends: on a busy machine the answers take longer
// than the rows. Measured on 1 Gbit/s: 92 % of the link in chunks of 60 KiB, 83 % in chunks of 128 or 256 KiB.
constexpr std::size_t kChunkBytes = std::size_t{60} << 10;

}  // namespace

Result<void> StreamCarrier::reserve(std::size_t window) {
  const std::size_t bytes = setup_.max_header_bytes + kChunkBytes + setup_.max_row_bytes;
  for (std::size_t i = 0; i < 2 * window; ++i) {
    MOETAX_ASSIGN(PageBuffer buffer, PageBuffer::reserve(bytes));
    (i < window ? free_out_ : free_in_).push_back(buffer.data());
    buffers_.push_back(std::move(buffer));
  }
  flows_.reserve(setup_.nodes->far().size());
  open_.reserve(2 * window);
  awaited_.reserve(2 * window);
  awaited_idx_.reserve(2 * window);
  awaited_from_.resize(static_cast<std::size_t>(size()));
  return {};
}

std::int64_t StreamCarrier::rows_per_chunk() const {
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(kChunkBytes / row_bytes_));
}

bool StreamCarrier::chunk_of(const BundleSize& size, Rank peer, std::int64_t idx, Chunk& chunk) const {
  const std::int64_t first = idx * rows_per_chunk();
  if (idx > 0 ? first >= size.rows : size.empty()) return false;
  chunk = {peer, first, std::min(rows_per_chunk(), size.rows - first), idx > 0 ? 0 : size.header_bytes};
  return true;
}

void StreamCarrier::append_chunks(const BundleSize& size, Rank peer, std::vector<Chunk>& chunks) const {
  Chunk chunk;
  for (std::int64_t idx = 0; chunk_of(size, peer, idx, chunk); ++idx) chunks.push_back(chunk);
}

Result<Carried> StreamCarrier::carry(Load& load, Operation operation, double deadline_s,
                                     FunctionRef<void()> meanwhile) {
  row_bytes_ = load.row_bytes();
  sends_.clear();
  receives_.clear();
  order_sends(load, sends_);
  order_receives(load, receives_);
  flows_.clear();
  Carried carried;
  auto next_send = sends_.begin(), next_receive = receives_.begin();
  for (bool first = true;; first = false) {
    for (; next_receive != receives_.end() && !free_in_.empty(); ++next_receive) receive(*next_receive);
    for (; next_send != sends_.end() && !free_out_.empty(); ++next_send) send(load, *next_send);
    if (first) meanwhile();
    if (open_.empty()) {
      carried.flows = flows_;
      return carried;
    }
    MOETAX_ASSIGN(const std::size_t idx, finish_one(operation, Deadline::in_seconds(deadline_s)));
    const Open done = open_[idx];
    open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(idx));
    const Chunk& chunk = done.chunk;
    if (!done.incoming) {
      free_out_.push_back(done.buffer);
      carried.sent_rows += chunk.rows;
      continue;
    }
    note_flow(chunk);
    if (chunk.header_bytes > 0) load.unpack_header(chunk.peer, done.buffer);
    if (chunk.rows > 0) load.unpack_rows(chunk.peer, chunk.first, chunk.rows, done.buffer + chunk.header_bytes);
    free_in_.push_back(done.buffer);
    carried.received_rows += chunk.rows;
  }
}

void StreamCarrier::note_flow(const Chunk& chunk) {
  const std::int64_t now = now_ns();
  const auto is_it = [&](const FlowRecord& flow) { return flow.peer == chunk.peer; };
  const auto flow = std::find_if(flows_.begin(), flows_.end(), is_it);
  if (flow == flows_.end()) {
    flows_.push_back({chunk.peer, 0, now, now});
    return;
  }
  flow->bytes += static_cast<std::int64_t>(bytes_of(chunk));
  flow->end_ns = now;
}

void StreamCarrier::send(const Load& load, const Chunk& chunk) {
  std::byte* buffer = free_out_.back();
  free_out_.pop_back();
  if (chunk.header_bytes > 0) load.pack_header(chunk.peer, buffer);
  if (chunk.rows > 0) load.pack_rows(chunk.peer, chunk.first, chunk.rows, buffer + chunk.header_bytes);
  open_.push_back({chunk, false, setup_.comm->send(chunk.peer, {buffer, bytes_of(chunk)}), buffer});
}

void StreamCarrier::receive(const Chunk& chunk) {
  std::byte* buffer = free_in_.back();
  free_in_.pop_back();
  open_.push_back({chunk, true, setup_.comm->receive(chunk.peer, {buffer, bytes_of(chunk)}), buffer});
}

// The index in open_ of a message that is done: any send, or the oldest receive from a peer, so that the chunks of a
// bundle are unpacked in their order.
Result<std::size_t> StreamCarrier::finish_one(Operation operation, Deadline deadline) {
  awaited_.clear();
  awaited_idx_.clear();
  ++turn_;
  for (std::size_t i = 0; i < open_.size(); ++i) {
    if (open_[i].incoming &&
        std::exchange(awaited_from_[static_cast<std::size_t>(open_[i].chunk.peer)], turn_) == turn_)
      continue;
    awaited_.push_back(open_[i].message);
    awaited_idx_.push_back(i);
  }
  MOETAX_ASSIGN(const std::size_t found, setup_.comm->finish_one(awaited_, operation, deadline));
  return awaited_idx_[found];
}

}  // namespace moetax
