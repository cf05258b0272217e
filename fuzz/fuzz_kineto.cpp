// A text read as a trace gives times in range and indices that hold, or an error of one line; in chunks of any size the
// same.

#include "fuzz.h"
#include "moetax/trace/kineto.h"

namespace moetax::fuzz {
namespace {

void check(const GpuTrace& trace) {
  require(trace.read.damaged <= trace.read.events);
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    const GpuEvent& event = trace.events[i];
    require(event.duration_ns >= 0 && event.end_ns() >= event.start_ns);
    require(event.name < trace.names.size() && event.track < trace.tracks.size());
    require(event.collective < static_cast<std::int64_t>(trace.collectives.size()));
  }
}

}  // namespace
}  // namespace moetax::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moetax::fuzz;
  const std::string_view text = as_text(data, size);
  for (const std::size_t chunk : {std::size_t{64}, std::size_t{1} << 16}) {
    const auto trace = moetax::parse_kineto(text, "trace.json", {chunk});
    if (!trace) {
      require_good_message(trace.error(), "trace.json:");
    } else {
      check(*trace);
    }
  }
  return 0;
}
