// moetax calibrate: what the links between ranks cost here, fitted, as a table and as machine.json.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/calibrate_links.h"
#include "cli/cli.h"
#include "cli/launched.h"
#include "cli/rank_errors.h"
#include "cli/registry.h"
#include "moetax/machine/host.h"
#include "moetax/report/bill.h"
#include "moetax/version.h"

namespace moetax::cli {
namespace {

struct CalibrateOptions {
  int ranks = 2, nodes = 1;
  double deadline_s = 30;
  std::string out = "machine.json";

  int ranks_per_node() const { return (ranks + nodes - 1) / nodes; }
};

Result<std::optional<CalibrateOptions>> parse(int argc, char** argv) {
  CalibrateOptions options;
  CLI::App app("Measures what moving bytes between ranks costs, fits it, and writes machine.json.", "moetax calibrate");
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_option("--ranks", options.ranks, "ranks, one process each")->capture_default_str();
  app.add_option("--nodes", options.nodes, "treat the ranks as if they were on so many nodes, which share no memory")
      ->capture_default_str();
  app.add_option("--deadline", options.deadline_s, "seconds until a silent rank is given up")->capture_default_str();
  app.add_option("--out", options.out, "where the fitted costs go (- for standard output)")->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return std::optional<CalibrateOptions>();
  } catch (const CLI::ParseError& error) {
    return fail(ErrorCode::kUsage,
                fmt::format("calibrate: {} (moetax calibrate --help lists the options)", error.what()));
  }
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
std::string to_text(const MeasuredLink& link, const LinkCost& cost) {
  std::string text = fmt::format("{}: {}\n", link.name, link.what);
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

nlohmann::ordered_json to_json(const MeasuredLink& link, const LinkCost& cost) {
  nlohmann::ordered_json samples = nlohmann::ordered_json::array(), pieces = samples;
  for (const LinkSample& sample : link.samples) samples.push_back({{"bytes", sample.bytes}, {"us", sample.us}});
  for (const LinkPiece& piece : cost.pieces) {
    pieces.push_back(
        {{"from_bytes", piece.from_bytes}, {"start_up_us", piece.start_up_us}, {"bytes_per_us", piece.bytes_per_us}});
  }
  return {{"class", link.name},
          {"what", link.what},
          {"pieces", pieces},
          {"mean_error", cost.mean_error},
          {"worst_error", cost.worst_error},
          {"samples", samples}};
}

Result<void> deliver(const CalibrateOptions& options, const char* transport, const HostInfo& host,
                     const std::vector<MeasuredLink>& links) {
  nlohmann::ordered_json machine = {
      {"schema", "moetax.machine/1"},
      {"tool_version", MOETAX_VERSION_STRING},
      {"machine", {{"cpu", host.cpu}, {"isa", host.isa}, {"cores", host.cores}, {"kernel", host.kernel}}},
      {"ranks", options.ranks},
      {"nodes", options.nodes},
      {"transport", transport},
      {"links", nlohmann::ordered_json::array()}};
  std::string text;
  for (const MeasuredLink& link : links) {
    const LinkCost cost = fit_link(link.samples);
    text += to_text(link, cost) + "\n";
    machine["links"].push_back(to_json(link, cost));
  }
  if (options.out != "-") MOETAX_TRY(write_text("-", text + fmt::format("written to {}\n", options.out)));
  return write_text(options.out, machine.dump(2) + "\n");
}

int rank_body(const CalibrateOptions& options, const char* transport, const HostInfo& host, Communicator& world) {
  const bool shows = world.rank() == 0 && isatty(STDERR_FILENO);
  const auto progress = [&](const std::string& what) {
    if (shows) std::fprintf(stderr, "\r\033[Kmoetax: %s", what.c_str());
  };
  const auto links = measure_links(world, options.deadline_s, progress);
  if (shows) std::fputs("\r\033[K", stderr);
  Result<void> done;
  if (!links) {
    done = Unexpected(links.error());
  } else if (world.rank() == 0) {
    done = deliver(options, transport, host, *links);
  }
  if (done) return 0;
  world.fail(done.error());
  return exit_code(done.error().code);
}

Result<int> run(int argc, char** argv) {
  MOETAX_ASSIGN(const auto parsed, parse(argc, argv));
  if (!parsed) return 0;
  const CalibrateOptions& options = *parsed;
  if (launched_rank()) {
    return fail(ErrorCode::kUsage, "calibrate starts ranks of its own, on this machine: run it without a launcher");
  }
  const HostInfo host = probe_host();
  const TransportEntry& transport = transports().front();
  MOETAX_TRY(transport.probe());
  MOETAX_ASSIGN(
      const auto outcomes,
      transport.start(
          {.ranks = options.ranks, .ranks_per_node = options.ranks_per_node(), .linger_s = options.deadline_s},
          [&](Communicator& world) { return rank_body(options, transport.name, host, world); }));
  if (const auto cause = cause_of(outcomes)) return report_error(*cause);
  return outcomes[0].exit_status;
}

}  // namespace

int cmd_calibrate(int argc, char** argv) {
  const Result<int> status = run(argc, argv);
  return status ? *status : report_error(status.error());
}

}  // namespace moetax::cli
