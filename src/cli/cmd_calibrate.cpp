// moetax calibrate: what the links between ranks cost here, fitted, as a table and as machine.json.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <optional>

#include "cli/bench_place.h"
#include "cli/calibrate_links.h"
#include "cli/cli.h"
#include "cli/launched.h"
#include "cli/launched_job.h"
#include "cli/output_file.h"
#include "cli/rank_errors.h"
#include "cli/registry.h"
#include "moetax/machine/host.h"
#include "moetax/report/bill.h"
#include "moetax/version.h"

namespace moetax::cli {
namespace {

struct CalibrateOptions {
  int ranks = 2, nodes = 1;
  std::optional<int> nodes_by_decree;
  double deadline_s = 30;
  std::string out = "machine.json";
  bool launched = false;

  int ranks_per_node() const { return (ranks + nodes - 1) / nodes; }
};

Result<void> check(const CalibrateOptions& options) {
  if (options.ranks < 2 || options.ranks > 256) {
    return fail(ErrorCode::kUsage,
                fmt::format("--ranks {}: expected 2 to 256, there is no link to oneself", options.ranks));
  }
  if (options.nodes < 1 || options.nodes > options.ranks ||
      (options.ranks - 1) / options.ranks_per_node() + 1 != options.nodes) {
    return fail(ErrorCode::kUsage,
                fmt::format("--nodes {}: {} ranks do not fill so many", options.nodes, options.ranks));
  }
  if (!(options.deadline_s > 0 && options.deadline_s <= 86400)) {
    return fail(ErrorCode::kUsage, fmt::format("--deadline {}: expected more than 0 seconds", options.deadline_s));
  }
  return {};
}

Result<std::optional<CalibrateOptions>> parse(int argc, char** argv, const std::optional<LaunchedRank>& launched) {
  CalibrateOptions options;
  std::optional<int> ranks;
  CLI::App app("Measures what moving bytes between ranks costs, fits it, and writes machine.json.", "moetax calibrate");
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_option("--ranks", ranks, "ranks, one process each (default 2; under mpirun its number)");
  app.add_option("--nodes", options.nodes_by_decree,
                 "treat the ranks as if they were on so many nodes, which share no memory (default: as they are)");
  app.add_option("--deadline", options.deadline_s, "seconds until a silent rank is given up")->capture_default_str();
  app.add_option("--out", options.out, "where the fitted costs go (- for standard output)")->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    if (!launched || launched->rank == 0) std::fputs(app.help().c_str(), stdout);
    return std::optional<CalibrateOptions>();
  } catch (const CLI::ParseError& error) {
    return fail(ErrorCode::kUsage,
                fmt::format("calibrate: {} (moetax calibrate --help lists the options)", error.what()));
  }
  MOETAX_ASSIGN(options.ranks, resolve_ranks(ranks, launched));
  options.nodes = options.nodes_by_decree.value_or(1);
  options.launched = launched.has_value();
  MOETAX_TRY(check(options));
  return std::optional(std::move(options));
}

std::string size_text(double bytes) {
  if (bytes >= 1 << 20) return fmt::format("{:.0f} MiB", bytes / (1 << 20));
  if (bytes >= 1 << 10) return fmt::format("{:.0f} KiB", bytes / (1 << 10));
  return fmt::format("{:.0f} B", bytes);
}

std::string time_text(double us) {
  return us >= 1000 ? fmt::format("{:.3g} ms", us / 1000) : fmt::format("{:.3g} us", us);
}

// What the fit says, beside what was measured.
std::string to_text(const MeasuredLink& link) {
  const LinkCost& cost = link.cost;
  std::string text = fmt::format("{}: {}\n", to_string(link.link), link.what);
  for (const LinkPiece& piece : cost.pieces) {
    // A piece in which size costs nothing that could be measured has no bandwidth to speak of.
    const std::string bandwidth = piece.bytes_per_us > 0.99 * kLinkNoLimit
                                      ? "whatever the size"
                                      : fmt::format("+ bytes / {:.3g} GB/s", piece.bytes_per_us * 1e-3);
    text +=
        fmt::format("  from {:<8} {:>9} {}\n", size_text(piece.from_bytes), time_text(piece.start_up_us), bandwidth);
  }
  text +=
      fmt::format("  off by {:.1f} % on average, {:.1f} % at worst\n", 100 * cost.mean_error, 100 * cost.worst_error);
  text += fmt::format("  {:>9} {:>10} {:>10} {:>8} {:>9}\n", "bytes", "measured", "fitted", "off", "GB/s");
  for (const LinkSample& sample : link.samples) {
    const double fitted = cost.time_us(sample.bytes);
    text += fmt::format("  {:>9} {:>10} {:>10} {:>+6.1f} % {:>9.3f}\n", size_text(sample.bytes), time_text(sample.us),
                        time_text(fitted), 100 * (fitted / sample.us - 1), sample.bytes / sample.us * 1e-3);
  }
  return text;
}

std::string to_text(const CallCosts& calls, int ranks, int nodes) {
  std::string text = fmt::format("calls: dispatch and combine without tokens\n  over all {} ranks {} and {}\n", ranks,
                                 time_text(calls.dispatch_us), time_text(calls.combine_us));
  if (nodes > 1) {
    text += fmt::format("  over the ranks of a node {} and {}\n", time_text(calls.node_dispatch_us),
                        time_text(calls.node_combine_us));
  }
  return text + fmt::format("  {} where rows are pushed; {:.3g} ns per token and expert to plan\n",
                            time_text(calls.node_push_us), calls.choice_ns);
}

Result<void> deliver(const CalibrateOptions& options, const MachineCosts& machine) {
  std::string text;
  for (const MeasuredLink& link : machine.links) text += to_text(link) + "\n";
  text += to_text(machine.calls, machine.ranks, machine.nodes);
  if (options.out != "-") MOETAX_TRY(write_text("-", text + fmt::format("\nwritten to {}\n", options.out)));
  return write_text(options.out, to_json(machine));
}

Result<void> measure(const CalibrateOptions& options, const HostInfo& host, Communicator& world) {
  const bool shows = world.rank() == 0 && isatty(STDERR_FILENO);
  const auto say = [&](const std::string& what) {
    if (shows) std::fprintf(stderr, "\r\033[Kmoetax: %s", what.c_str());
  };
  const CalibrateProgress progress{say, options.deadline_s};
  MachineCosts machine;
  machine.tool_version = MOETAX_VERSION_STRING;
  machine.cpu = host.cpu;
  machine.isa = host.isa;
  machine.kernel = host.kernel;
  machine.cores = host.cores;
  machine.l2_bytes = host.l2_bytes;
  machine.transport = world.transport();
  auto measured = measure_links(world, progress, machine);
  if (measured) measured = measure_calls(world, progress, machine);
  if (shows) std::fputs("\r\033[K", stderr);
  MOETAX_TRY(measured);
  return world.rank() == 0 ? deliver(options, machine) : Result<void>();
}

// Ranks run where those of a bench would.
Result<void> settle_rank(const CalibrateOptions& options, Communicator& world) {
  if (!options.launched) {
    pin_rank(world.rank(), world.size(), 1);
    return {};
  }
  MOETAX_TRY(check_size(options.ranks, world));
  MOETAX_ASSIGN(const JobPlaces places, find_places(world, options.deadline_s));
  if (places.bound_by_launcher) return {};
  const auto place = std::find(places.here.begin(), places.here.end(), world.rank()) - places.here.begin();
  pin_rank(static_cast<Rank>(place), static_cast<int>(places.here.size()), 1);
  return {};
}

int rank_body(const CalibrateOptions& options, const HostInfo& host, Communicator& world) {
  Result<void> done = world.rank() == 0 ? check_writable(options.out) : Result<void>();
  if (done) done = settle_rank(options, world);
  if (done) done = measure(options, host, world);
  return done ? 0 : told(world, done.error());
}

Result<int> run_here(const CalibrateOptions& options, const HostInfo& host) {
  const TransportEntry& transport = transports().front();
  MOETAX_TRY(transport.probe());
  MOETAX_ASSIGN(
      const auto outcomes,
      transport.start(
          {.ranks = options.ranks, .ranks_per_node = options.ranks_per_node(), .linger_s = options.deadline_s},
          [&](Communicator& world) { return rank_body(options, host, world); }));
  if (const auto cause = cause_of(outcomes)) return report_error(*cause);
  return outcomes[0].exit_status;
}

}  // namespace

int cmd_calibrate(int argc, char** argv) {
  const auto launched = launched_rank();
  const HostInfo host = probe_host();
  const auto parsed = parse(argc, argv, launched);
  if (parsed && !*parsed) return 0;
  if (launched) {
    MpiRun job;
    if (parsed) job.deadline_s = (*parsed)->deadline_s;
    if (parsed && (*parsed)->nodes_by_decree) job.ranks_per_node = (*parsed)->ranks_per_node();
    return run_launched_job(*launched, job, [&](Communicator& world) {
      return parsed ? rank_body(**parsed, host, world) : told(world, parsed.error());
    });
  }
  if (!parsed) return report_error(parsed.error());
  const Result<int> status = run_here(**parsed, host);
  return status ? *status : report_error(status.error());
}

}  // namespace moetax::cli
