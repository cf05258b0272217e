// The messages of one communicator as MPI messages.
#pragma once

#include <mpi.h>

#include <vector>

#include "transport/messages.h"
#include "transport/mpi_requests.h"

namespace moetax {

class MpiMessages final : public Messages, private MpiRequests::Owner {
 public:
  // `requests` outlives it. members[rank] is the peer's rank in `comm`.
  MpiMessages(MPI_Comm comm, int tag, std::vector<Rank> members, MpiRequests& requests)
      : comm_(comm), tag_(tag), members_(std::move(members)), requests_(requests) {}
  ~MpiMessages() override { requests_.drop(*this); }

  Message send(Rank to, std::span<const std::byte> bytes) override;
  Message receive(Rank from, std::span<std::byte> bytes) override;
  void progress() override {
    if (open_ > 0) requests_.progress();
  }
  bool idle() const override { return open_ == 0; }
  bool is_done(Message message) const override { return transfers_[message].done; }
  Rank peer_of(Message message) const override { return transfers_[message].peer; }
  std::size_t size_of(Message message) const override { return transfers_[message].size; }
  std::size_t take(Message message) override;

 private:
  struct Transfer {
    Rank peer = kNoRank;
    bool done = false;
    bool is_receive = false;
    std::size_t size = 0, came = 0;
  };
  Message open(Rank peer, std::size_t size, bool is_receive);
  void completed(std::uint32_t id, int source, std::size_t bytes, bool truncated) override;

  MPI_Comm comm_;
  int tag_;
  std::vector<Rank> members_;
  MpiRequests& requests_;
  std::vector<Transfer> transfers_;
  std::vector<Message> free_;
  std::size_t open_ = 0;
};

}  // namespace moetax
