// A database read as an export of Nsight Systems gives times in range and indices that hold, or an error of one line.

#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "fuzz.h"
#include "moetax/trace/nsight.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moetax::fuzz;
  const int fd = memfd_create("nsight", MFD_CLOEXEC);
  require(fd >= 0 && write(fd, data, size) == static_cast<ssize_t>(size));
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  const auto trace = moetax::read_nsight(path);
  close(fd);
  if (!trace) {
    require_good_message(trace.error(), path + ":");
    return 0;
  }
  for (std::size_t i = 0; i < trace->events.size(); ++i) {
    const moetax::GpuEvent& event = trace->events[i];
    require(event.duration_ns >= 0 && event.end_ns() >= event.start_ns);
    require(event.name < trace->names.size() && event.track < trace->tracks.size());
  }
  return 0;
}
