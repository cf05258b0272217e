#include "moetax/transport/collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "moetax/base/function_ref.h"
#include "transport/collective_call.h"
#include "transport/rank_text.h"
#include "transport/scratch.h"

namespace moetax {
namespace {

Unexpected disagree(const Communicator& comm, std::string_view what, FunctionRef<std::string(Rank)> text_of) {
  std::vector<Rank> ranks;
  std::vector<std::string> texts;
  for (const Rank peer : comm.everyone()) {
    ranks.push_back(comm.world_rank(peer));
    texts.push_back(text_of(peer));
  }
  return Unexpected(disagreement(what, ranks, texts));
}

}  // namespace

Note Collectives::Call::note() const {
  return {{static_cast<std::uint64_t>(kind) << 56 | size, std::hash<std::string_view>()(name)}};
}

std::string Collectives::Call::text(const Note& of) const {
  constexpr const char* kNames[] = {"barrier", "all_gather", "agree", "gather_bytes", "all_reduce_sum"};
  const auto idx = std::min<std::size_t>(of.word[0] >> 56, std::size(kNames) - 1);
  const std::uint64_t count = of.word[0] & ((std::uint64_t{1} << 56) - 1);
  const std::string what = of.word[1] == note().word[1] ? fmt::format("\"{}\"", name) : "another name";
  return fmt::format("{}({}) of {} {}", kNames[idx], what, count, idx == 4 ? "values" : "bytes");
}

Collectives::Collectives(Communicator& comm, Window scratch)
    : comm_(&comm), scratch_(std::move(scratch)), nodes_(comm) {
  if (nodes_.num_nodes() == 1) return;
  far_.resize(static_cast<std::size_t>(comm.size()) * kSlotBytes);
  room_.resize(kChunkFloats + static_cast<std::size_t>(nodes_.num_nodes()));  // pieces differ by one
  messages_.reserve(2 * static_cast<std::size_t>(comm.size()));
}

Result<Collectives> Collectives::create(Communicator& comm, Deadline deadline) {
  MOETAX_ASSIGN(Window scratch, comm.make_window("collectives", kScratchBytes, deadline));
  return Collectives(comm, std::move(scratch));
}

// Every collective begins here: all ranks have come, and all make the same call.
Result<Wait> Collectives::meet(const Call& call, Deadline deadline) {
  const std::uint64_t number = comm_->next_collective();
  const Note mine = call.note();
  for (const Rank peer : comm_->everyone()) comm_->post(Channel::kCollective, peer, number, mine);
  MOETAX_ASSIGN(const Wait wait,
                comm_->wait(Channel::kCollective, comm_->everyone(), number, {call.name, call.number}, deadline));
  const auto note_of = [&](Rank peer) {
    return peer == comm_->rank() ? mine : comm_->note(Channel::kCollective, peer, number);
  };
  const auto same = [&](Rank peer) { return note_of(peer) == mine; };
  if (std::all_of(comm_->everyone().begin(), comm_->everyone().end(), same)) return wait;
  return disagree(*comm_, "the collective call", [&](Rank peer) { return call.text(note_of(peer)); });
}

Result<void> Collectives::barrier(const char* name, Deadline deadline) {
  MOETAX_TRY(meet({Call::Kind::kBarrier, name, ++number_, 0}, deadline));
  return {};
}

Result<void> Collectives::all_gather(const char* name, std::span<const std::byte> mine, std::span<std::byte> all,
                                     Deadline deadline) {
  if (mine.size() > kSlotBytes || all.size() != mine.size() * static_cast<std::size_t>(comm_->size())) {
    return fail(ErrorCode::kUsage,
                fmt::format("all_gather of {}: {} bytes from each of {} ranks into {} bytes; at most "
                            "{} bytes a rank, and room for all of them",
                            name, mine.size(), comm_->size(), all.size(), kSlotBytes));
  }
  const std::uint64_t turn = ++number_;
  std::copy(mine.begin(), mine.end(), slot(scratch_, comm_->rank(), turn));
  MOETAX_TRY(meet({Call::Kind::kAllGather, name, turn, mine.size()}, deadline));
  MOETAX_TRY(swap(mine, name, turn, deadline));
  for (const Rank peer : comm_->everyone()) {
    const auto theirs = bytes_of(peer, mine.size(), turn);
    std::copy(theirs.begin(), theirs.end(),
              all.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(peer) * mine.size()));
  }
  return {};
}

Result<void> Collectives::agree(const char* what, std::string_view mine, Deadline deadline) {
  if (mine.size() >= kSlotBytes) {
    return fail(ErrorCode::kUsage,
                fmt::format("agree on {}: {} bytes, at most {} are possible", what, mine.size(), kSlotBytes - 1));
  }
  const std::uint64_t turn = ++number_;
  std::byte* text = slot(scratch_, comm_->rank(), turn);
  std::fill_n(text, kSlotBytes, std::byte{0});
  std::memcpy(text, mine.data(), mine.size());
  MOETAX_TRY(meet({Call::Kind::kAgree, what, turn, 0}, deadline));
  MOETAX_TRY(swap({text, kSlotBytes}, what, turn, deadline));
  const auto text_of = [&](Rank peer) {
    return std::string_view(reinterpret_cast<const char*>(bytes_of(peer, kSlotBytes, turn).data()));
  };
  const auto differs = [&](Rank peer) { return text_of(peer) != mine; };
  if (std::none_of(comm_->everyone().begin(), comm_->everyone().end(), differs)) return {};
  return disagree(*comm_, what, [&](Rank peer) { return std::string(text_of(peer)); });
}

// Brings the slots of ranks on other nodes here, and this rank's to them.
Result<void> Collectives::swap(std::span<const std::byte> mine, const char* name, std::uint64_t number,
                               Deadline deadline) {
  if (nodes_.num_nodes() == 1) return {};
  messages_.clear();
  for (const Rank peer : nodes_.far()) {
    messages_.push_back(
        comm_->receive(peer, std::span(far_).subspan(static_cast<std::size_t>(peer) * kSlotBytes, mine.size())));
    messages_.push_back(comm_->send(peer, mine));
  }
  MOETAX_TRY(comm_->finish(messages_, {name, number}, deadline));
  return {};
}

std::span<const std::byte> Collectives::bytes_of(Rank peer, std::size_t size, std::uint64_t turn) const {
  if (comm_->shares_memory(peer)) return {slot(scratch_, peer, turn), size};
  return {far_.data() + static_cast<std::size_t>(peer) * kSlotBytes, size};
}

Result<std::vector<std::vector<std::byte>>> Collectives::gather_bytes(std::span<const std::byte> mine,
                                                                      Deadline deadline) {
  std::vector<std::uint64_t> sizes(static_cast<std::size_t>(comm_->size()));
  const std::uint64_t size = mine.size();
  MOETAX_TRY(all_gather("gather sizes", std::as_bytes(std::span(&size, 1)), std::as_writable_bytes(std::span(sizes)),
                        deadline));
  MOETAX_ASSIGN(const Window window, comm_->make_window("gather", mine.size(), deadline));
  std::copy(mine.begin(), mine.end(), window.local());
  MOETAX_TRY(meet({Call::Kind::kGather, "gather", ++number_, 0}, deadline));
  std::vector<std::vector<std::byte>> all;
  if (comm_->rank() != 0) {
    if (comm_->shares_memory(0)) return all;
    const std::array message{comm_->send(0, mine)};
    MOETAX_TRY(comm_->finish(message, {"gather", number_}, deadline));
    return all;
  }
  std::vector<Message> messages;
  for (const Rank peer : comm_->everyone()) {
    if (comm_->shares_memory(peer)) {
      all.emplace_back(window.at(peer), window.at(peer) + window.bytes(peer));
    } else {
      all.emplace_back(sizes[static_cast<std::size_t>(peer)]);
      messages.push_back(comm_->receive(peer, all.back()));
    }
  }
  if (!messages.empty()) MOETAX_TRY(comm_->finish(messages, {"gather", number_}, deadline));
  return all;
}

}  // namespace moetax
