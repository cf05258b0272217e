#include "cli/bench_place.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "moetax/transport/collectives.h"
#include "moetax/transport/node_map.h"

namespace moetax::cli {
namespace {

struct Place {
  std::array<char, 64> host{};
  cpu_set_t cpus{};  // that this rank may use
};

bool same_cpus(const Place& a, const Place& b) {
  return CPU_EQUAL(&a.cpus, &b.cpus) != 0;
}

}  // namespace

Result<JobPlaces> find_places(Communicator& world, double deadline_s) {
  Place mine;
  gethostname(mine.host.data(), mine.host.size() - 1);
  sched_getaffinity(0, sizeof mine.cpus, &mine.cpus);
  const Deadline deadline = Deadline::in_seconds(deadline_s);
  MOETAX_ASSIGN(Collectives collectives, Collectives::create(world, deadline));
  std::vector<Place> places(static_cast<std::size_t>(world.size()));
  MOETAX_TRY(collectives.all_gather("places", std::as_bytes(std::span(&mine, 1)),
                                    std::as_writable_bytes(std::span(places)), deadline));
  const NodeMap nodes(world);
  JobPlaces found;
  for (int node = 0; node < nodes.num_nodes(); ++node) {
    found.hosts.emplace_back(places[static_cast<std::size_t>(nodes.ranks_of(node).front())].host.data());
  }
  found.here.assign(nodes.near().begin(), nodes.near().end());
  const auto bound = [&](Rank rank) { return !same_cpus(places[static_cast<std::size_t>(rank)], mine); };
  found.bound_by_launcher = std::any_of(found.here.begin(), found.here.end(), bound);
  return found;
}

Result<void> check_size(int ranks, const Communicator& world) {
  if (world.size() == ranks) return {};
  return fail(ErrorCode::kUsage, fmt::format("there are {} ranks, but MPI joins {} of them: the launcher is not that "
                                             "of the MPI that moetax was built with, see moetax info",
                                             ranks, world.size()));
}

Result<void> settle(BenchOptions& options, int cores, Communicator& world) {
  MOETAX_TRY(check_size(options.ranks, world));
  MOETAX_ASSIGN(JobPlaces places, find_places(world, options.deadline_s));
  options.nodes = static_cast<int>(places.hosts.size());
  options.hosts = std::move(places.hosts);
  options.here = std::move(places.here);
  options.bound_by_launcher = places.bound_by_launcher;
  if (options.threads > 0) return {};
  const int sharers = options.bound_by_launcher ? 1 : static_cast<int>(options.here.size());
  options.threads = std::max(1, cores / sharers);
  return {};
}

}  // namespace moetax::cli
