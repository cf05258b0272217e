#include "doctor/flight.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace moetax::doctor {
namespace {

constexpr std::size_t kMaxMeetings = 65536;

std::string label(const FlightGroup& group) {
  if (!group.what.empty() && group.what != "undefined") return group.what;
  return "group " + group.name;
}

FlightSeat seat_of(const FlightFacts& facts, int rank, int group) {
  FlightSeat seat{rank, &facts};
  for (const FlightCall& call : facts.dump.calls) {
    if (call.group == group && !call.message && call.sequence >= 0) seat.calls.push_back(&call);
    if (!seat.last || call.created_ns >= seat.last->created_ns) seat.last = &call;
  }
  std::stable_sort(seat.calls.begin(), seat.calls.end(),
                   [](const FlightCall* a, const FlightCall* b) { return a->sequence < b->sequence; });
  return seat;
}

}  // namespace

const FlightCall* FlightSeat::at(std::int64_t sequence) const {
  const auto begin =
      std::lower_bound(calls.begin(), calls.end(), sequence,
                       [](const FlightCall* call, std::int64_t value) { return call->sequence < value; });
  if (begin == calls.end() || (*begin)->sequence != sequence) return nullptr;
  return begin + 1 != calls.end() && (*(begin + 1))->sequence == sequence ? nullptr : *begin;
}

std::vector<FlightMeeting> flight_meetings(const Facts& facts) {
  std::map<std::pair<std::string, std::vector<int>>, FlightMeeting> meetings;
  int unknown = 0;
  for (const FlightFacts& flight : facts.all_flights()) {
    const int rank = flight.dump.rank >= 0 ? flight.dump.rank : --unknown;
    for (std::size_t g = 0; g < flight.dump.groups.size() && meetings.size() < kMaxMeetings; ++g) {
      const FlightGroup& group = flight.dump.groups[g];
      FlightSeat seat = seat_of(flight, rank, static_cast<int>(g));
      if (seat.calls.empty() && std::find(group.ranks.begin(), group.ranks.end(), rank) == group.ranks.end()) continue;
      FlightMeeting& meeting = meetings[{group.name, group.ranks}];
      meeting.group = label(group);
      meeting.members = group.ranks;
      meeting.seats.push_back(std::move(seat));
    }
  }
  std::vector<FlightMeeting> all;
  for (auto& [key, meeting] : meetings) {
    std::stable_sort(meeting.seats.begin(), meeting.seats.end(),
                     [](const FlightSeat& a, const FlightSeat& b) { return a.rank < b.rank; });
    all.push_back(std::move(meeting));
  }
  return all;
}

std::optional<FlightStop> find_stop(const FlightMeeting& meeting) {
  FlightStop stop;
  for (const FlightSeat& seat : meeting.seats) {
    for (const FlightCall* call : seat.calls) {
      const bool unfinished = call->state == FlightState::kScheduled || call->state == FlightState::kStarted;
      if (!unfinished) continue;
      if (stop.sequence < 0 || call->sequence < stop.sequence) stop.sequence = call->sequence;
      break;
    }
  }
  if (stop.sequence < 0) return std::nullopt;
  for (const FlightSeat& seat : meeting.seats) {
    if (seat.newest() < stop.sequence) {
      stop.behind.push_back(&seat);
    } else if (const FlightCall* call = seat.at(stop.sequence); call && call->state != FlightState::kCompleted) {
      stop.waiting.push_back(&seat);
    }
  }
  return stop;
}

std::string flight_group_name(const FlightDump& dump, const FlightCall& call) {
  return label(dump.groups[static_cast<std::size_t>(call.group)]);
}

Evidence flight_evidence(const FlightSeat& seat, const FlightCall& call, const std::string& group) {
  std::string text = fmt::format("{} {} of {}: {}", call.op, call.sequence, group, flight_state_name(call.state));
  if (!call.in_elements.empty() || !call.out_elements.empty()) {
    text += fmt::format(", {} elements in, {} out", call.elements_in(), call.elements_out());
  }
  if (!call.where.empty()) text += ", " + call.where;
  return {seat.from->file, 0, std::move(text)};
}

std::string ranks_text(const std::vector<const FlightSeat*>& seats) {
  constexpr std::size_t kShown = 8;
  std::string text = seats.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < std::min(seats.size(), kShown); ++i) {
    const int rank = seats[i]->rank;
    text += (i > 0 ? ", " : "") + (rank >= 0 ? std::to_string(rank) : "of " + seats[i]->from->file);
  }
  return seats.size() > kShown ? text + fmt::format(" and {} others", seats.size() - kShown) : text;
}

}  // namespace moetax::doctor
