// Bytes taken as dumps of NCCL and PyTorch give values within their ranges, or an error of one line.
#include <cmath>

#include "fuzz.h"
#include "moetax/machine/flight_dump.h"
#include "moetax/machine/nccl_inspector.h"
#include "moetax/machine/nvbandwidth.h"
#include "moetax/report/tables.h"
#include "moetax/route/load_file.h"

namespace moetax::fuzz {
namespace {

void require_printable(std::string_view text) {
  for (const char c : text) require(c >= ' ' && c <= '~');
}

void check_flight(std::string_view bytes) {
  const auto dump = parse_flight_dump(bytes, "rank0");
  if (!dump) return require_good_message(dump.error(), "rank0: ");
  for (const FlightCall& call : dump->calls) {
    require(call.group >= 0 && static_cast<std::size_t>(call.group) < dump->groups.size());
    require(call.elements_in() >= 0 && call.elements_out() >= 0 && call.sequence >= -1);
    require_printable(call.op);
    require_printable(call.where);
  }
  for (const FlightGroup& group : dump->groups) {
    require_printable(group.name);
    for (const int rank : group.ranks) require(rank >= 0);
  }
}

void check_inspector(std::string_view text) {
  const auto dump = parse_nccl_inspector(text, "dump");
  if (!dump) return require_good_message(dump.error(), "dump: ");
  for (const InspectorCall& call : dump->calls) {
    require(call.rank >= -1 && call.ranks >= 0 && call.bytes >= -1 && call.end_us >= call.start_us);
    require(std::isfinite(call.us) && call.us >= 0 && std::isfinite(call.busbw_gbs));
    require_printable(call.op);
  }
}

void check_bandwidth(std::string_view text) {
  const auto out = parse_nvbandwidth(text, "out");
  if (!out) return require_good_message(out.error(), "out: ");
  require(std::isfinite(out->slowest("host_to_device")));
  for (const NvbandwidthTest& test : out->tests) require_printable(test.name);
}

// What analyze says of files without a time line.
void check_tables(std::string_view text) {
  static const KernelRules kRules;
  const auto table = describe_table(text, "file", kRules);
  if (!table) return require_good_message(table.error(), "file: ");
  require(!table->kind.empty() && table->text.ends_with('\n'));
  require(table->text.find("nan") == std::string::npos || text.find("nan") != std::string_view::npos);
  for (const ExpertCounts& layer : count_expert_load(text)) {
    for (const double count : layer.counts) require(std::isfinite(count) && count >= 0);
  }
}

}  // namespace
}  // namespace moetax::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = moetax::fuzz::as_text(data, size);
  moetax::fuzz::check_flight(bytes);
  moetax::fuzz::check_inspector(bytes);
  moetax::fuzz::check_bandwidth(bytes);
  moetax::fuzz::check_tables(bytes);
  return 0;
}
