// Where the ranks of each process group are, from dumps of their flight recorders.
#pragma once

#include <string>
#include <vector>

#include "doctor/facts.h"

namespace moetax::doctor {

// What one dump has of a group.
struct FlightSeat {
  int rank = -1;
  const FlightFacts* from = nullptr;
  std::vector<const FlightCall*> calls = {};  // collectives with a number, by it
  const FlightCall* last = nullptr;           // the rank's last call of any group; null: none

  // The only call with that number; null when there is none, or several were launched as one.
  const FlightCall* at(std::int64_t sequence) const;
  std::int64_t newest() const { return calls.empty() ? -1 : calls.back()->sequence; }
};

struct FlightMeeting {
  std::string group;              // "mesh_ep", or "group 3"
  std::vector<int> members;       // ascending; empty where no dump lists them
  std::vector<FlightSeat> seats;  // by rank
};

// Groups of ranks with one name in different places are told apart by their members. Dumps of unknown rank count as
// ranks of their own from -1 down.
std::vector<FlightMeeting> flight_meetings(const Facts& facts);

// The first collective of a group that a rank has begun and not ended.
struct FlightStop {
  std::int64_t sequence = -1;
  std::vector<const FlightSeat*> waiting;  // in it
  std::vector<const FlightSeat*> behind;   // have not come to it
};
std::optional<FlightStop> find_stop(const FlightMeeting& meeting);

// "all_to_all 412 of mesh_ep: started, 4096 elements in, 4096 out, model.py:120 forward".
Evidence flight_evidence(const FlightSeat& seat, const FlightCall& call, const std::string& group);
std::string flight_group_name(const FlightDump& dump, const FlightCall& call);
// "rank 3", "ranks 0, 1, 2 and 5 others".
std::string ranks_text(const std::vector<const FlightSeat*>& seats);

}  // namespace moetax::doctor
