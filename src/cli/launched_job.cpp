#include "cli/launched_job.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <thread>
#include <utility>

#include "cli/cli.h"
#include "cli/rank_errors.h"

namespace moetax::cli {

int told(Communicator& world, Error error) {
  if (!error.where.empty()) error.message = fmt::format("{}: {}", error.where, error.message);
  world.fail(error);
  return exit_code(error.code);
}

int run_launched_job(const LaunchedRank& launched, const MpiRun& job, const std::function<int(Communicator&)>& body) {
  const auto plugin = mpi_plugin();
  if (!plugin) {  // they cannot talk to each other
    if (launched.rank == 0) return report_error(plugin.error());
    std::this_thread::sleep_for(std::chrono::milliseconds(200));  // launchers end all when one has failed
    return exit_code(plugin.error().code);
  }
  const auto report = [](const std::vector<RankOutcome>& outcomes) {
    if (const auto cause = cause_of(outcomes)) report_error(*cause);
    std::fflush(nullptr);
  };
  const auto outcomes = (*plugin)->run(job, body, report);
  if (!outcomes) {
    (*plugin)->leave(report_error(outcomes.error()), false);
    return exit_code(outcomes.error().code);
  }
  const auto cause = cause_of(*outcomes);
  const int status = cause ? exit_code(cause->code) : (*outcomes)[0].exit_status;
  (*plugin)->leave(status, !cause);
  return status;
}

}  // namespace moetax::cli
