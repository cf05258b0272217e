// A text taken as a job's output gives facts within their ranges whatever pieces it comes in, or an error of one line;
// the same text as tables of nccl-tests gives finite numbers.
#include <cmath>

#include "fuzz.h"
#include "moetax/machine/nccl_log.h"
#include "moetax/machine/nccl_tests.h"

namespace moetax::fuzz {
namespace {

void require_printable(std::string_view text) {
  for (const char c : text) require(c >= ' ' && c <= '~');
}

void check(const NcclLog& log) {
  require(log.messages >= 0 && log.broken <= log.messages && log.dropped >= 0);
  for (const NcclEdge& edge : log.edges) {
    require(edge.from >= 0 && edge.to >= 0 && edge.line > 0 && edge.line <= log.lines && edge.count > 0);
    require_printable(edge.via);
    require_printable(edge.network);
    require_printable(edge.host);
  }
  for (const NcclCommunicator& communicator : log.communicators) {
    for (const NcclMember& member : communicator.members) {
      require(member.rank >= 0 && member.rank < communicator.ranks);
      require_printable(member.bus_id);
    }
  }
  for (const NcclTimeout& timeout : log.timeouts) {
    require(timeout.rank >= -1 && timeout.sequence >= -1 && timeout.elements_in >= -1 && timeout.ran_ms >= -1);
    require_printable(timeout.op);
    require_printable(timeout.group);
  }
  for (const NcclProblem& problem : log.problems) require_printable(problem.text);
  for (const NcclPath& path : log.paths) require(std::isfinite(path.gbs) && path.gbs >= 0);
}

void check_pieces(std::string_view text, const NcclLog& whole) {
  NcclLogReader reader;
  for (std::size_t at = 0; at < text.size(); at += 7) reader.take(text.substr(at, 7));
  const NcclLog log = reader.finish();
  require(log.lines == whole.lines && log.messages == whole.messages && log.edges.size() == whole.edges.size());
}

void check_tables(std::string_view text) {
  const auto tables = parse_nccl_tests(text, "tests.log");
  if (!tables) return require_good_message(tables.error(), "tests.log: ");
  for (const NcclTestsTable& table : *tables) {
    require(!table.rows.empty() && std::isfinite(table.bus_factor()) && std::isfinite(table.average_busbw_gbs));
    for (const NcclTestsRow& row : table.rows) {
      require(row.bytes >= 0 && row.line > 0 && std::isfinite(row.out_of_place.busbw_gbs) && row.in_place.time_us >= 0);
      require_printable(row.reduction);
    }
  }
}

}  // namespace
}  // namespace moetax::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moetax;
  const std::string_view text = fuzz::as_text(data, size);
  fuzz::check_tables(text);
  const auto log = parse_nccl_log(text, "job.log");
  fuzz::require(log.has_value() == looks_like_nccl_log(text));
  if (!log) {
    fuzz::require_good_message(log.error(), "job.log: ");
    return 0;
  }
  fuzz::check(*log);
  fuzz::check_pieces(text, *log);
  return 0;
}
