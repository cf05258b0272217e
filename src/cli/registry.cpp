#include "cli/registry.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace moetax::cli {
namespace {

Result<void> always() {
  return {};
}

// Local ranks meet in an anonymous file; a sandbox may refuse it.
Result<void> probe_shared_memory() {
  const int file = memfd_create("moetax probe", MFD_CLOEXEC);
  if (file < 0) {
    return fail(ErrorCode::kUnavailable, fmt::format("no shared memory: memfd_create: {}", std::strerror(errno)));
  }
  close(file);
  return {};
}

constexpr std::array kTransports = {
    TransportEntry{"local-processes", "ranks as processes of this machine over shared memory", probe_shared_memory,
                   run_processes},
    TransportEntry{"local-threads", "ranks as threads of one process, for embedding and tests", probe_shared_memory,
                   run_threads},
};

constexpr std::array kExchanges = {
    ExchangeEntry{"direct", "a row goes once to each destination rank, from memory to memory", always},
};

}  // namespace

std::span<const TransportEntry> transports() {
  return kTransports;
}

std::span<const ExchangeEntry> exchanges() {
  return kExchanges;
}

}  // namespace moetax::cli
