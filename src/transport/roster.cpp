#include "transport/roster.h"

#include <fmt/format.h>
#include <string.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "transport/futex.h"
#include "transport/rank_text.h"

namespace moetax {
namespace {

constexpr std::size_t kNameBytes = sizeof(RankState::operation_name);

std::string how_killed(int signal) {
  if (signal == 0) return "ended without a word";
  const char* name = sigabbrev_np(signal);
  return fmt::format("was killed by signal {}{}", signal, name ? fmt::format(" (SIG{})", name) : "");
}

std::string format_operation(Operation operation) {
  return fmt::format("{} #{}", operation.name, operation.number);
}

}  // namespace

// Which ending to name when there are several: the cause before its consequences.
enum class Roster::Urgency {
  kMissingKilled,
  kKilled,
  kFailed,
  kMissingFinished,
  kFailedThroughAnother,
  kNone,
};

void Roster::enter(Rank rank, Operation operation) const {
  RankState& own = state(rank);
  std::array<std::uint64_t, kNameBytes / sizeof(std::uint64_t)> name{};
  std::memcpy(name.data(), operation.name, strnlen(operation.name, kNameBytes));
  for (std::size_t i = 0; i < name.size(); ++i) own.operation_name[i].store(name[i], std::memory_order_relaxed);
  own.operation_number.store(operation.number, std::memory_order_relaxed);
}

void Roster::finish(Rank rank, int exit_status) const {
  if (!claim(rank, Ending::kNone)) return;
  state(rank).end.detail = exit_status;
  publish(rank, Ending::kFinished);
}

void Roster::stop(Rank rank, const Error& error) const {
  if (!claim(rank, Ending::kNone)) return;
  End& own = state(rank).end;
  own.culprit = error.rank == kNoRank ? rank : error.rank;
  own.code = error.code;
  const std::size_t length = std::min(error.message.size(), own.message.size() - 1);
  std::memcpy(own.message.data(), error.message.data(), length);
  own.message[length] = '\0';
  publish(rank, Ending::kFailed);
}

void Roster::kill(Rank rank, int signal) const {
  // A rank that died in the middle of stop() left its state half written; nobody else writes it any more.
  if (!claim(rank, Ending::kNone) && !claim(rank, Ending::kWriting)) return;
  state(rank).end.detail = signal;
  publish(rank, Ending::kKilled);
}

void Roster::bury(Rank rank, int exit_status) const {
  if (!claim(rank, Ending::kNone) && !claim(rank, Ending::kWriting)) return;
  state(rank).end.detail = exit_status;
  publish(rank, Ending::kFinished);
}

void Roster::enter_end(Rank rank, Ending ending, const End& end) const {
  if (!claim(rank, Ending::kNone)) return;
  state(rank).end = end;
  publish(rank, ending);
}

std::optional<Error> Roster::said(Rank rank) const {
  const RankState& ended = state(rank);
  if (ended.ending.load(std::memory_order_acquire) != Ending::kFailed) return std::nullopt;
  return Error{ended.end.code, ended.end.message.data(), ended.end.culprit};
}

bool Roster::claim(Rank rank, Ending expected) const {
  return state(rank).ending.compare_exchange_strong(expected, Ending::kWriting);
}

void Roster::publish(Rank rank, Ending ending) const {
  state(rank).ending.store(ending, std::memory_order_release);
  // First the count, then the bells: a rank about to sleep either sees the count or finds its bell rung.
  memory_->endings.fetch_add(1);
  for (Rank peer = 0; peer < ranks_; ++peer) {
    state(peer).doorbell.fetch_add(1);
    futex_wake_all(state(peer).doorbell);
  }
}

Roster::Urgency Roster::urgency(Rank rank, FunctionRef<bool(Rank)> is_missing) const {
  const RankState& peer = state(rank);
  switch (peer.ending.load(std::memory_order_acquire)) {
    case Ending::kKilled:
      return is_missing(rank) ? Urgency::kMissingKilled : Urgency::kKilled;
    case Ending::kFailed:
      return peer.end.culprit == rank ? Urgency::kFailed : Urgency::kFailedThroughAnother;
    case Ending::kFinished:
      return is_missing(rank) ? Urgency::kMissingFinished : Urgency::kNone;
    case Ending::kNone:
    case Ending::kWriting:
      break;
  }
  return Urgency::kNone;
}

std::optional<Error> Roster::explain(Rank self, FunctionRef<bool(Rank)> is_missing, Operation operation) const {
  Rank rank = kNoRank;
  Urgency worst = Urgency::kNone;
  for (Rank peer = 0; peer < ranks_; ++peer) {
    const Urgency found = urgency(peer, is_missing);
    if (found < worst) {
      worst = found;
      rank = peer;
    }
  }
  if (worst == Urgency::kNone) return std::nullopt;
  const End& ended = state(rank).end;
  const std::string where = format_operation(operation);
  Error error{ErrorCode::kPeerFailed, places_->text(rank) + " ", rank};
  switch (worst) {
    case Urgency::kMissingKilled:
      error.message += fmt::format("{} before it arrived at {}{}", how_killed(ended.detail), where, last_seen(rank));
      break;
    case Urgency::kKilled:
      error.message += fmt::format("{}{}; {} was waiting at {}", how_killed(ended.detail), last_seen(rank),
                                   places_->text(self), where);
      break;
    case Urgency::kMissingFinished:
      error.message +=
          fmt::format("finished with exit status {} before it arrived at {}{}", ended.detail, where, last_seen(rank));
      break;
    default:
      error.message += fmt::format("stopped: {}", ended.message.data());
      error.rank = ended.culprit;
  }
  return error;
}

Error Roster::late(std::span<const Rank> missing, std::span<const Rank> present, Operation operation,
                   double seconds) const {
  const std::string last = missing.size() == 1 ? last_seen(missing.front()) : "";
  return {ErrorCode::kPeerFailed,
          fmt::format("{} did not arrive at {} within {:g} s{}; {} did", places_->text(missing),
                      format_operation(operation), seconds, last, format_ranks(present)),
          missing.front()};
}

std::string Roster::last_seen(Rank rank) const {
  const RankState& peer = state(rank);
  std::array<char, kNameBytes + 1> name{};
  for (std::size_t i = 0; i < peer.operation_name.size(); ++i) {
    const std::uint64_t part = peer.operation_name[i].load(std::memory_order_relaxed);
    std::memcpy(name.data() + i * sizeof part, &part, sizeof part);
  }
  if (name[0] == '\0') return "";
  const Operation operation{name.data(), peer.operation_number.load(std::memory_order_relaxed)};
  return fmt::format(" (it was last at {})", format_operation(operation));
}

}  // namespace moetax
