// Who shares a node, and the node's memory.
#include <fmt/format.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <cstring>
#include <fstream>
#include <optional>

#include "transport/local_communicator.h"
#include "transport/mpi_setup.h"
#include "transport/node_door.h"

namespace moetax {
namespace {

using Cpus = std::array<std::uint64_t, CPU_SETSIZE / 64>;

// What makes two ranks candidates for one node. Equal identities prove nothing.
struct Identity {
  std::array<char, 64> host{}, boot{};
  std::uint64_t network = 0;  // namespace
  std::uint32_t user = 0;
  std::int32_t block = 0;  // of ranks_per_node
  friend bool operator==(const Identity&, const Identity&) = default;
};

struct Card {
  Identity identity;
  std::uint64_t process_ids = 0;  // namespace
  std::int32_t process = 0;
  Cpus cpus{};
};

struct Settled {
  Rank leader = kNoRank;        // of the node
  std::array<char, 200> why{};  // if it came to nothing
};

std::uint64_t namespace_id(const char* path) {
  struct stat status {};
  return stat(path, &status) == 0 ? status.st_ino : 0;
}

template <std::size_t N>
void copy_text(const std::string& text, std::array<char, N>& to) {
  std::copy_n(text.begin(), std::min(text.size(), N - 1), to.begin());
}

Card make_card(Rank rank, int ranks_per_node) {
  Card card;
  gethostname(card.identity.host.data(), card.identity.host.size() - 1);
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  copy_text(boot, card.identity.boot);
  card.identity.network = namespace_id("/proc/self/ns/net");
  card.identity.user = geteuid();
  card.identity.block = ranks_per_node > 0 ? rank / ranks_per_node : 0;
  card.process_ids = namespace_id("/proc/self/ns/pid");
  card.process = getpid();
  cpu_set_t cpus;
  if (sched_getaffinity(0, sizeof cpus, &cpus) == 0) std::memcpy(card.cpus.data(), &cpus, sizeof card.cpus);
  return card;
}

// The node's memory: made by the first of the candidates, handed to those that hear its door. Who does not, for
// whatever reason, is a node of its own.
class Meeting {
 public:
  Meeting(MpiTalk& talk, std::span<const Card> cards, Deadline deadline)
      : talk_(talk), deadline_(deadline), first_bytes_(LocalJob::first_bytes(talk.size(), false)) {
    const Identity& mine = cards[static_cast<std::size_t>(talk.rank())].identity;
    for (Rank rank = 0; rank < talk.size(); ++rank) {
      if (cards[static_cast<std::size_t>(rank)].identity == mine) candidates_.push_back(rank);
    }
  }

  Result<std::vector<Settled>> meet() {
    const bool leads = talk_.rank() == candidates_.front();
    std::optional<NodeDoor> door;
    std::array<char, 64> name{};
    if (leads) make_memory();
    if (leads && segment && candidates_.size() > 1) {
      if (auto opened = NodeDoor::open()) {
        copy_text(opened->name(), name);
        door.emplace(std::move(*opened));
      }
    }
    MOETAX_ASSIGN(const auto names, talk_.gather(name));
    const std::string there = names[static_cast<std::size_t>(candidates_.front())].data();
    std::optional<NodeKnock> knock;
    if (!leads && !there.empty()) knock.emplace(there);
    MOETAX_ASSIGN(const auto heard, talk_.gather(static_cast<std::uint8_t>(knock && knock->heard() ? 1 : 0)));
    if (door) {
      int visitors = 0;
      for (const Rank rank : candidates_) visitors += heard[static_cast<std::size_t>(rank)];
      door->hand_out(segment->file(), visitors, deadline_);
    }
    if (knock && knock->heard()) take_memory(knock->take(deadline_));
    if (!leads && !segment) make_memory();
    return talk_.gather(settled_);
  }

  std::shared_ptr<Segment> segment;

 private:
  void make_memory() {
    settled_.leader = talk_.rank();
    auto made = Segment::create(first_bytes_);
    if (made) {
      segment = std::move(*made);
    } else {
      copy_text(made.error().message, settled_.why);
    }
  }
  void take_memory(int file) {
    if (file < 0) return;
    auto attached = Segment::attach(file, first_bytes_);
    if (!attached) return;
    segment = std::move(*attached);
    settled_.leader = candidates_.front();
  }

  MpiTalk& talk_;
  Deadline deadline_;
  std::size_t first_bytes_;
  std::vector<Rank> candidates_;
  Settled settled_;
};

Places places_of(std::span<const Settled> settled, std::span<const Card> cards) {
  std::vector<Node> node_of(settled.size());
  std::vector<std::string> hosts;
  for (std::size_t rank = 0; rank < settled.size(); ++rank) {
    const auto leader = static_cast<std::size_t>(settled[rank].leader);
    if (leader == rank) {  // the first of its node
      node_of[rank] = static_cast<Node>(hosts.size());
      hosts.emplace_back(cards[rank].identity.host.data());
    } else {
      node_of[rank] = node_of[leader];
    }
  }
  return Places(std::move(node_of), std::move(hosts));
}

// The best of several round trips between rank 0 and a rank of each other node, one after the other. Add the result to
// this rank's clock to get rank 0's.
Result<std::int64_t> measure_offset(MpiTalk& talk, std::span<const Settled> settled) {
  constexpr int kRounds = 24;
  std::int64_t best_trip = INT64_MAX, offset = 0, theirs = 0;
  for (Rank rank = 1; rank < talk.size(); ++rank) {
    if (settled[static_cast<std::size_t>(rank)].leader != rank || settled[0].leader == rank) continue;
    for (int round = 0; round < kRounds; ++round) {
      const auto bytes = std::as_writable_bytes(std::span(&theirs, 1));
      if (talk.rank() == 0) {
        MOETAX_TRY(talk.receive(rank, bytes));
        theirs = now_ns();
        MOETAX_TRY(talk.send(rank, bytes));
      } else if (talk.rank() == rank) {
        const std::int64_t start = now_ns();
        MOETAX_TRY(talk.send(0, bytes));
        MOETAX_TRY(talk.receive(0, bytes));
        const std::int64_t trip = now_ns() - start;
        if (trip >= best_trip) continue;
        best_trip = trip;
        offset = theirs - (start + trip / 2);
      }
    }
  }
  return offset;
}

}  // namespace

Result<MpiNode> find_node(MpiTalk& talk, const MpiOptions& options, Deadline deadline) {
  const Card mine = make_card(talk.rank(), options.ranks_per_node);
  MOETAX_ASSIGN(const auto cards, talk.gather(mine));
  Meeting meeting(talk, cards, deadline);
  MOETAX_ASSIGN(const auto settled, meeting.meet());
  for (Rank rank = 0; rank < talk.size(); ++rank) {
    const Settled& one = settled[static_cast<std::size_t>(rank)];
    if (one.why[0] == '\0') continue;
    return fail(ErrorCode::kUnavailable, fmt::format("rank {}: {}", rank, one.why.data()), rank);
  }
  MpiNode node;
  node.segment = meeting.segment;
  node.places = std::make_shared<const Places>(places_of(settled, cards));
  MOETAX_ASSIGN(const std::int64_t offset, measure_offset(talk, settled));
  MOETAX_ASSIGN(const auto offsets, talk.gather(offset));

  const auto self = static_cast<std::size_t>(talk.rank());
  const Rank my_leader = settled[self].leader;
  std::bitset<CPU_SETSIZE> cpus;
  node.ranks_here = 0;
  for (std::size_t rank = 0; rank < settled.size(); ++rank) {
    const Rank leader = settled[rank].leader;
    if (leader == static_cast<Rank>(rank)) {
      node.offset_ns.push_back(offsets[rank] - offsets[static_cast<std::size_t>(my_leader)]);
    }
    if (leader != my_leader) continue;
    ++node.ranks_here;
    for (std::size_t word = 0; word < mine.cpus.size(); ++word) {
      cpus |= std::bitset<CPU_SETSIZE>(cards[rank].cpus[word]) << (64 * word);
    }
    // A number of another namespace is another process here.
    if (rank != self && cards[rank].process_ids == mine.process_ids) {
      node.mates.watch(static_cast<Rank>(rank), cards[rank].process);
    }
  }
  node.cores_here = std::max<int>(1, static_cast<int>(cpus.count()));
  if (options.watch_parent) node.mates.watch_parent();
  return node;
}

}  // namespace moetax
