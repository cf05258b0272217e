#include "cli/registry.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "cli/mpi_plugin.h"

namespace moetax::cli {
namespace {

Result<std::string> always() {
  return std::string();
}

// Local ranks meet in an anonymous file; a sandbox may refuse it.
Result<std::string> probe_shared_memory() {
  const int file = memfd_create("moetax probe", MFD_CLOEXEC);
  if (file < 0) {
    return fail(ErrorCode::kUnavailable, fmt::format("no shared memory: memfd_create: {}", std::strerror(errno)));
  }
  close(file);
  return std::string();
}

Result<std::string> probe_mpi() {
  MOETAX_ASSIGN(const MpiPlugin* plugin, mpi_plugin());
  return plugin->library();
}

constexpr std::array kTransports = {
    TransportEntry{"local-processes", "ranks as processes of this machine over shared memory", probe_shared_memory,
                   run_processes},
    TransportEntry{"local-threads", "ranks as threads of one process, for embedding and tests", probe_shared_memory,
                   run_threads},
    TransportEntry{"mpi", "ranks that mpirun, mpiexec or srun started, on one machine or many", probe_mpi, nullptr},
};

ExchangeEntry exchange_of(ExchangeAlgorithm algorithm, const char* what) {
  return {algorithm, to_string(algorithm), what, always};
}

const std::array kExchanges = {
    exchange_of(ExchangeAlgorithm::kFlat, "a row goes once to each destination rank, peers in staggered rounds"),
    exchange_of(ExchangeAlgorithm::kDirect, "the same, to all peers at once"),
    exchange_of(ExchangeAlgorithm::kRing, "through neighbouring nodes, at most half way round"),
    exchange_of(ExchangeAlgorithm::kMesh2d, "along rows and columns of a grid of nodes, two hops"),
    exchange_of(ExchangeAlgorithm::kTwoLevel, "once to each destination node; back comes one sum per node"),
};

}  // namespace

std::span<const TransportEntry> transports() {
  return kTransports;
}

const TransportEntry& mpi_transport() {
  return kTransports.back();
}

std::span<const ExchangeEntry> exchanges() {
  return kExchanges;
}

const ExchangeEntry& exchange_entry(ExchangeAlgorithm algorithm) {
  const auto is_it = [&](const ExchangeEntry& entry) { return entry.algorithm == algorithm; };
  return *std::find_if(kExchanges.begin(), kExchanges.end(), is_it);
}

}  // namespace moetax::cli
