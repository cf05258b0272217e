#include "transport/mpi_link.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cstring>

#include "moetax/base/clock.h"
#include "transport/mpi_messages.h"

namespace moetax {
namespace {

constexpr std::int64_t kLookNs = 20'000'000;  // between two looks at the other processes of the node
constexpr std::size_t kHeaderBytes = offsetof(Packet, body);

struct EndNews {
  Ending ending;
  End end;
};
static_assert(sizeof(Offer) <= Packet::kBodyBytes && sizeof(EndNews) <= Packet::kBodyBytes);
static_assert(sizeof(Packet) < 4096, "small messages leave at once whatever the network");

template <class T>
void put(const T& value, Packet& packet) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::memcpy(packet.body.data(), &value, sizeof value);
  packet.body_bytes = sizeof value;
}

template <class T>
T get(const Packet& packet) {
  T value;
  std::memcpy(&value, packet.body.data(), sizeof value);
  return value;
}

}  // namespace

MpiLink::MpiLink(Setup setup)
    : setup_(std::move(setup)),
      roster_(setup_.segment->first(), setup_.ranks, *setup_.places),
      requests_([this](const std::string& why) { broken(why); }),
      heard_out_(static_cast<std::size_t>(setup_.ranks)) {
  for (Rank rank = 0; rank < setup_.ranks; ++rank) {
    if (setup_.places->node_of(rank) != setup_.places->node_of(setup_.self)) far_.push_back(rank);
  }
  if (far_.empty()) return;
  for (std::uint32_t i = 0; i < kReceives; ++i) receive_into(i);
}

MpiLink::~MpiLink() {
  flush(100'000'000);
  requests_.drop(*this);
  bool healthy = true;
  for (Rank rank = 0; rank < setup_.ranks; ++rank) {
    healthy = healthy && roster_.state(rank).ending.load() == Ending::kFinished;
  }
  // A collective call by the standard: only where everybody comes to it. Otherwise the process ends soon.
  if (healthy) MPI_Comm_free(&setup_.comm);
}

// ---- Contexts -----------------------------------------------------------------------------------------------------

void MpiLink::open(std::uint32_t context, FarListener& listener) {
  open_.emplace_back(context, &listener);
  const auto is_for_it = [&](const auto& early) { return early.second.context == context; };
  for (const auto& [from, packet] : early_) {
    if (packet.context == context) deliver(from, packet, listener);
  }
  std::erase_if(early_, is_for_it);
}

void MpiLink::close(std::uint32_t context) {
  std::erase_if(open_, [&](const auto& entry) { return entry.first == context; });
  closed_.push_back(context);
}

std::unique_ptr<Messages> MpiLink::messages(std::uint32_t context, std::span<const Rank> members) {
  return std::make_unique<MpiMessages>(setup_.comm, kFirstMessageTag + static_cast<int>(context),
                                       std::vector<Rank>(members.begin(), members.end()), requests_);
}

// ---- Out ----------------------------------------------------------------------------------------------------------

Packet& MpiLink::new_packet(Packet::Kind kind) {
  if (free_packets_.empty()) {
    free_packets_.push_back(static_cast<std::uint32_t>(packets_.size()));
    packets_.emplace_back();
  }
  Packet& packet = packets_[free_packets_.back()];
  const RankState& self = roster_.state(setup_.self);
  packet.kind = kind;
  packet.body_bytes = 0;
  packet.posted_ns = now_ns();
  packet.operation_number = self.operation_number.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < packet.operation_name.size(); ++i) {
    packet.operation_name[i] = self.operation_name[i].load(std::memory_order_relaxed);
  }
  return packet;
}

// `packet` is the one new_packet() returned last.
void MpiLink::send(Rank world_to, Packet& packet) {
  const std::uint32_t idx = free_packets_.back();
  free_packets_.pop_back();
  MPI_Request request = MPI_REQUEST_NULL;
  const int code = MPI_Isend(&packet, static_cast<int>(kHeaderBytes + packet.body_bytes), MPI_BYTE, world_to,
                             kPacketTag, setup_.comm, &request);
  if (requests_.check(code, "MPI_Isend")) requests_.add(request, *this, kSendBit | idx, false);
}

void MpiLink::post(Rank world_to, const FarFlag& flag) {
  Packet& packet = new_packet(Packet::Kind::kFlag);
  packet.context = flag.context;
  packet.line = flag.line;
  packet.value = flag.value;
  packet.note = flag.note;
  send(world_to, packet);
}

void MpiLink::offer(Rank world_to, std::uint32_t context, std::uint64_t round, const Offer& offer) {
  Packet& packet = new_packet(Packet::Kind::kOffer);
  packet.context = context;
  packet.value = round;
  put(offer, packet);
  send(world_to, packet);
}

void MpiLink::send_to_all(const Packet& packet) {
  for (const Rank peer : far_) {
    // MPI may try for long to reach a process that is gone.
    if (roster_.state(peer).ending.load() == Ending::kKilled) continue;
    Packet& copy = new_packet(packet.kind);
    copy.about = packet.about;
    copy.value = packet.value;
    copy.body_bytes = packet.body_bytes;
    std::copy_n(packet.body.begin(), packet.body_bytes, copy.body.begin());
    send(peer, copy);
  }
}

// The cause goes before its consequence: ranks of other nodes may hear of this rank's end before they hear of the one
// that failed, and would name this one.
void MpiLink::tell_end(Rank world_rank) {
  for (Rank rank = 0; world_rank == setup_.self && rank < setup_.ranks; ++rank) {
    if (rank == setup_.self || !roster_.is_cause(rank)) continue;
    send_end(rank);
    break;
  }
  send_end(world_rank);
}

void MpiLink::send_end(Rank world_rank) {
  const RankState& state = roster_.state(world_rank);
  Packet packet;
  packet.kind = Packet::Kind::kEnd;
  packet.about = world_rank;
  put(EndNews{state.ending.load(std::memory_order_acquire), state.end}, packet);
  send_to_all(packet);
}

void MpiLink::tell_left(int exit_status) {
  roster_.leave(setup_.self, exit_status);
  Packet packet;
  packet.kind = Packet::Kind::kLeft;
  packet.about = setup_.self;
  packet.value = static_cast<std::uint64_t>(exit_status & 0xff);
  send_to_all(packet);
}

void MpiLink::tell_reported() {
  roster_.set_reported();
  Packet packet;
  packet.kind = Packet::Kind::kReported;
  send_to_all(packet);
}

void MpiLink::flush(std::int64_t at_most_ns) {
  if (far_.empty()) return;
  const std::int64_t until = now_ns() + at_most_ns;
  // A send may count as complete when MPI has a copy of it; some more looks get that onto the wire.
  for (int more = 200; more > 0 && now_ns() < until; --more) {
    progress();
    if (free_packets_.size() < packets_.size()) more = 200;
    if (more % 20 == 0) {
      const timespec nap{0, 100'000};
      nanosleep(&nap, nullptr);
    }
  }
}

// ---- In -----------------------------------------------------------------------------------------------------------

void MpiLink::receive_into(std::uint32_t idx) {
  slots_[idx].arrived = false;
  MPI_Request request = MPI_REQUEST_NULL;
  const int code = MPI_Irecv(&slots_[idx].packet, static_cast<int>(sizeof(Packet)), MPI_BYTE, MPI_ANY_SOURCE,
                             kPacketTag, setup_.comm, &request);
  if (requests_.check(code, "MPI_Irecv")) requests_.add(request, *this, idx, true);
}

void MpiLink::completed(std::uint32_t id, int source, std::size_t, bool) {
  if (id & kSendBit) {
    free_packets_.push_back(id & ~kSendBit);
    return;
  }
  slots_[id].source = source;
  slots_[id].arrived = true;
}

bool MpiLink::heard_out(Rank world_rank) const {
  // Of a rank that was killed nothing more will come; what is on its way may be lost as well.
  return heard_out_[static_cast<std::size_t>(world_rank)] || roster_.state(world_rank).ending.load() == Ending::kKilled;
}

bool MpiLink::any_thread() const {
  int provided = MPI_THREAD_SINGLE;
  MPI_Query_thread(&provided);
  return provided >= MPI_THREAD_SERIALIZED;
}

void MpiLink::progress() {
  if (!far_.empty()) {
    requests_.progress();
    take_arrived();
  }
  const std::int64_t now = now_ns();
  if (now - look_ns_ < kLookNs) return;
  look_ns_ = now;
  setup_.mates.look([this](Rank rank) {
    if (roster_.has_ended(rank)) return;
    roster_.kill(rank, 0);
    tell_end(rank);
  });
  if (const pid_t parent = setup_.mates.lost_parent(); parent != 0 && !roster_.has_ended(setup_.self)) {
    roster_.stop(setup_.self, {ErrorCode::kPeerFailed, fmt::format("its launcher (process {}) is gone", parent)});
    tell_end(setup_.self);
  }
}

// MPI fills the slots in the order their receives were posted, which is that of the slots, round and round.
void MpiLink::take_arrived() {
  while (slots_[next_].arrived) {
    take(slots_[next_].source, slots_[next_].packet);
    receive_into(next_);
    next_ = (next_ + 1) % kReceives;
  }
}

void MpiLink::take(Rank from, const Packet& packet) {
  RankState& sender = roster_.state(from);
  sender.operation_number.store(packet.operation_number, std::memory_order_relaxed);
  for (std::size_t i = 0; i < packet.operation_name.size(); ++i) {
    sender.operation_name[i].store(packet.operation_name[i], std::memory_order_relaxed);
  }
  switch (packet.kind) {
    case Packet::Kind::kEnd: {
      const auto news = get<EndNews>(packet);
      if (packet.about == from && !heard_out_[static_cast<std::size_t>(from)]) {
        heard_out_[static_cast<std::size_t>(from)] = true;
        ++num_heard_out_;
      }
      return roster_.enter_end(packet.about, news.ending, news.end);
    }
    case Packet::Kind::kLeft:
      return roster_.leave(packet.about, static_cast<int>(packet.value));
    case Packet::Kind::kReported:
      return roster_.set_reported();
    case Packet::Kind::kFlag:
    case Packet::Kind::kOffer:
      break;
  }
  const auto found =
      std::find_if(open_.begin(), open_.end(), [&](const auto& entry) { return entry.first == packet.context; });
  if (found != open_.end()) return deliver(from, packet, *found->second);
  if (std::find(closed_.begin(), closed_.end(), packet.context) == closed_.end()) early_.emplace_back(from, packet);
}

void MpiLink::deliver(Rank from, const Packet& packet, FarListener& listener) {
  // No later than now, which the estimate of the other clock does not know.
  const std::int64_t posted_ns = std::min(packet.posted_ns + clock_offset_ns(from), now_ns());
  if (packet.kind == Packet::Kind::kOffer) {
    listener.take_offer(from, packet.value, get<Offer>(packet), posted_ns);
  } else {
    listener.take_flag(from, {packet.context, packet.line, packet.value, packet.note}, posted_ns);
  }
}

void MpiLink::broken(const std::string& why) {
  roster_.stop(setup_.self, {ErrorCode::kPeerFailed, why});
}

}  // namespace moetax
