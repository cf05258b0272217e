// Measures what links cost: the messages and copies that exchanges are made of, over message sizes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "moetax/cost/link.h"
#include "moetax/transport/communicator.h"

namespace moetax::cli {

struct MeasuredLink {
  std::string name;  // "memory", "link", "link-shared"
  std::string what;
  std::vector<LinkSample> samples;  // median times, by size
};

// Collective. Rank 0 returns the links there are, the others nothing:
// - memory: one copy into the memory of a rank of the same node, and the flag that says it is there;
// - link: one message between two ranks of different nodes, nothing else under way;
// - link-shared: the same while every rank sends to the next node and hears from the one before.
// `progress` is told what is being measured. Every wait has the deadline.
Result<std::vector<MeasuredLink>> measure_links(Communicator& comm, double deadline_s,
                                                const std::function<void(const std::string&)>& progress);

}  // namespace moetax::cli
