#include "machine/nccl_communicators.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "moetax/base/text.h"

namespace moetax {
namespace {

constexpr std::size_t kMaxCommunicators = 4'096;
constexpr std::size_t kMaxMembers = 65'536;
constexpr int kMaxRanks = 1 << 24;

std::optional<int> number_after(std::string_view text, std::string_view key) {
  const auto value = parse_number<int>(value_after(text, key));
  return value && *value >= 0 && *value <= kMaxRanks ? value : std::nullopt;
}

// The one in the middle of "2/-1/-1->3->1".
std::optional<int> tree_rank(std::string_view text) {
  const std::size_t first = text.find("->");
  if (!text.starts_with("Trees ") || first == std::string_view::npos) return std::nullopt;
  const std::string_view rest = text.substr(first + 2);
  return parse_number<int>(rest.substr(0, std::min(rest.find("->"), rest.size())));
}

}  // namespace

void NcclCommunicators::take(const NcclMessage& message, std::int64_t line) {
  const std::string_view text = message.text;
  if (text.find("Destroy") != std::string_view::npos || text.find("Abort") != std::string_view::npos) return;
  auto ranks = number_after(text, "nranks");
  if (!ranks) ranks = number_after(text, "nRanks");
  auto rank = number_after(text, "rank");
  if (!rank) rank = tree_rank(text);
  if (!ranks || !rank || *rank < 0 || *rank >= *ranks) return;

  Fact fact{.ranks = *ranks, .nodes = number_after(text, "nNodes").value_or(0), .line = line};
  fact.member = {.rank = *rank,
                 .host = printable(message.host, 64),
                 .device = number_after(text, "cudaDev").value_or(-1),
                 .bus_id = printable(value_after(text, "busId"), 20),
                 .complete = text.find("Init COMPLETE") != std::string_view::npos};
  fact.address = fmt::format("{} {}", fact.member.host, printable(value_after(text, "comm"), 20));
  const std::string_view id = value_after(text, "commId");
  if (!id.empty()) {
    if (ids_.size() < kMaxMembers) ids_[fact.address] = printable(id, 40);
    add(fact, printable(id, 40));
  } else if (const auto known = ids_.find(fact.address); known != ids_.end()) {
    add(fact, known->second);
  } else if (without_id_.size() < kMaxMembers) {
    without_id_.push_back(std::move(fact));
  } else {
    ++dropped_;
  }
}

// Without an id, in older versions, those of a size are one.
void NcclCommunicators::add(const Fact& fact, std::string_view id) {
  const std::string key = fmt::format("{} {}", id, fact.ranks);
  auto at = communicators_.find(key);
  if (at == communicators_.end()) {
    if (all_.size() == kMaxCommunicators) {
      ++dropped_;
      return;
    }
    at = communicators_.emplace(key, all_.size()).first;
    all_.push_back({.id = std::string(id), .ranks = fact.ranks, .line = fact.line});
  }
  NcclCommunicator& communicator = all_[at->second];
  communicator.nodes = std::max(communicator.nodes, fact.nodes);
  communicator.line = std::min(communicator.line, fact.line);

  const std::string member_key = fmt::format("{} {} {}", at->second, fact.member.rank, fact.member.host);
  auto member_at = members_.find(member_key);
  if (member_at == members_.end()) {
    if (members_.size() == kMaxMembers) {
      ++dropped_;
      return;
    }
    member_at = members_.emplace(member_key, communicator.members.size()).first;
    communicator.members.push_back({.rank = fact.member.rank, .host = fact.member.host});
  }
  NcclMember& member = communicator.members[member_at->second];
  if (fact.member.device >= 0) member.device = fact.member.device;
  if (!fact.member.bus_id.empty()) member.bus_id = fact.member.bus_id;
  member.complete = member.complete || fact.member.complete;
}

std::vector<NcclCommunicator> NcclCommunicators::result() {
  for (const Fact& fact : without_id_) {
    const auto known = ids_.find(fact.address);
    add(fact, known == ids_.end() ? std::string_view{} : std::string_view(known->second));
  }
  for (NcclCommunicator& communicator : all_) {
    std::stable_sort(communicator.members.begin(), communicator.members.end(),
                     [](const NcclMember& a, const NcclMember& b) { return a.rank < b.rank; });
  }
  return std::move(all_);
}

}  // namespace moetax
