// The FarLink of ranks that an MPI launcher started: everything travels on one communicator of its own.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "transport/far_link.h"
#include "transport/mpi_requests.h"
#include "transport/node_mates.h"
#include "transport/places.h"
#include "transport/roster.h"
#include "transport/segment.h"

namespace moetax {

inline constexpr int kSetupTag = 0, kPacketTag = 1, kFirstMessageTag = 2;

// A flag, an offer, or news: what one rank tells another in a few bytes.
struct Packet {
  enum class Kind : std::uint32_t { kFlag, kOffer, kEnd, kLeft, kReported };
  static constexpr std::size_t kBodyBytes = 1040;

  Kind kind = Kind::kFlag;
  std::uint32_t context = 0;
  std::uint32_t line = 0;
  Rank about = kNoRank;  // kEnd, kLeft
  std::uint64_t value = 0;
  Note note;
  std::int64_t posted_ns = 0;
  std::uint64_t operation_number = 0;  // what the sender was at
  std::array<std::uint64_t, 3> operation_name{};
  std::uint64_t body_bytes = 0;
  std::array<std::byte, kBodyBytes> body;  // Offer, or Ending and End
};

class MpiLink final : public FarLink, private MpiRequests::Owner {
 public:
  struct Setup {
    MPI_Comm comm = MPI_COMM_NULL;  // the link's own
    Rank self = 0;
    int ranks = 0;
    std::shared_ptr<Segment> segment;  // holds the roster
    std::shared_ptr<const Places> places;
    std::vector<std::int64_t> offset_ns;  // by node: add to its clock to get this one's
    NodeMates mates;
  };
  explicit MpiLink(Setup setup);
  ~MpiLink() override;
  MpiLink(const MpiLink&) = delete;
  MpiLink& operator=(const MpiLink&) = delete;

  void open(std::uint32_t context, FarListener& listener) override;
  void close(std::uint32_t context) override;
  std::uint32_t unused_context() const override { return unused_context_; }
  void use_contexts_up_to(std::uint32_t context) override { unused_context_ = context + 1; }
  void post(Rank world_to, const FarFlag& flag) override;
  void offer(Rank world_to, std::uint32_t context, std::uint64_t round, const Offer& offer) override;
  std::unique_ptr<Messages> messages(std::uint32_t context, std::span<const Rank> members) override;
  void tell_end(Rank world_rank) override;
  bool heard_out(Rank world_rank) const override;
  std::uint32_t num_heard_out() const override { return num_heard_out_; }
  void progress() override;
  std::int64_t clock_offset_ns(Rank world_rank) const override {
    return setup_.offset_ns[static_cast<std::size_t>(setup_.places->node_of(world_rank))];
  }
  bool any_thread() const override;

  // What a rank says last: its body returned `exit_status`; and, on rank 0, that the user has been told.
  void tell_left(int exit_status);
  void tell_reported();
  // Until everything it has said is on its way, at most that long.
  void flush(std::int64_t at_most_ns);

 private:
  static constexpr std::uint32_t kReceives = 16;
  static constexpr std::uint32_t kSendBit = std::uint32_t{1} << 31;  // in a request's id
  struct Slot {
    Packet packet;
    int source = 0;
    bool arrived = false;
  };

  void send_end(Rank world_rank);
  void completed(std::uint32_t id, int source, std::size_t bytes, bool truncated) override;
  void receive_into(std::uint32_t idx);
  void take_arrived();
  void take(Rank from, const Packet& packet);
  void deliver(Rank from, const Packet& packet, FarListener& listener);
  Packet& new_packet(Packet::Kind kind);
  void send(Rank world_to, Packet& packet);
  void send_to_all(const Packet& packet);
  void broken(const std::string& why);

  Setup setup_;
  Roster roster_;
  MpiRequests requests_;
  std::vector<Rank> far_;
  std::array<Slot, kReceives> slots_;
  std::uint32_t next_ = 0;      // the slot that the next packet comes into
  std::deque<Packet> packets_;  // to send; addresses stay
  std::vector<std::uint32_t> free_packets_;
  std::vector<std::pair<std::uint32_t, FarListener*>> open_;
  std::vector<std::uint32_t> closed_;
  std::vector<std::pair<Rank, Packet>> early_;  // for contexts not opened yet
  std::vector<bool> heard_out_;                 // by rank of the world: it told its end itself, after all else
  std::uint32_t num_heard_out_ = 0;
  std::uint32_t unused_context_ = 1;
  std::int64_t look_ns_ = 0;  // when the mates were looked at last
};

}  // namespace moetax
