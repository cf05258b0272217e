// moetax bench: the layer runs here, or wherever a launcher started ranks, one process a rank, and prints its bill.
#include <fmt/format.h>

#include <cstdio>
#include <new>

#include "cli/bench_memory.h"
#include "cli/bench_options.h"
#include "cli/bench_place.h"
#include "cli/bench_rank.h"
#include "cli/cli.h"
#include "cli/launched.h"
#include "cli/launched_job.h"
#include "cli/output_file.h"
#include "cli/rank_errors.h"
#include "cli/registry.h"
#include "cli/routing_record.h"
#include "cli/routing_source.h"
#include "moetax/expert/feed_forward.h"
#include "moetax/machine/host.h"
#include "moetax/report/bill.h"
#include "moetax/report/threshold.h"
#include "moetax/version.h"

namespace moetax::cli {
namespace {

Bill describe_run(const BenchOptions& options, const HostInfo& host, const TransportEntry& transport,
                  const ExchangeEntry& exchange) {
  Bill bill;
  bill.tool_version = MOETAX_VERSION_STRING;
  bill.machine = host;
  BillConfig& config = bill.config;
  config.model = options.model.name;
  config.ranks = options.ranks;
  config.tokens_per_rank = options.tokens;
  config.hidden = options.model.hidden;
  config.inter = options.model.inter;
  config.shared = options.model.shared_inter;
  config.experts = options.model.router.experts;
  config.topk = options.model.router.topk;
  const int ep_size = options.ep_size > 0 ? options.ep_size : options.ranks;
  config.ep_size = ep_size;
  const ExpertPlacement placement{config.experts, ep_size};
  for (Rank rank = 0; rank < options.ranks; ++rank) config.experts_per_rank.push_back(placement.count(rank % ep_size));
  config.dtype = to_string(options.dtype);
  config.wire_dispatch = config.wire_combine = config.dtype;
  const bool sums = options.auto_exchange || options.exchange == ExchangeAlgorithm::kTwoLevel;
  if (options.fp32_sums && sums && options.nodes > 1) config.wire_combine += " with fp32 sums";
  config.transport = transport.name;
  config.exchange = options.auto_exchange && options.nodes > 1 ? "auto" : exchange.name;
  config.costs = options.costs_path;
  config.nodes = options.nodes;
  config.hosts = options.hosts;
  if (options.overlap > 1) config.overlap = fmt::format("{} parts", options.overlap);
  config.routing = options.routing;
  config.backward = options.backward;
  config.recompute = options.activations == Activations::kRecompute;
  config.layers = options.layers;
  config.threads = options.threads;
  config.steps = options.steps;
  config.warmup = options.warmup;
  config.seed = options.seed;
  for (Rank rank = 0; rank < options.ranks; ++rank) {
    const double ms = options.delay_ms[static_cast<std::size_t>(rank)];
    if (ms > 0) config.delays.push_back({rank, ms});
  }
  config.deadline_s = options.deadline_s;
  return bill;
}

// Rank 0's last act: the bill for people, the files for machines, the threshold.
Result<int> deliver(const BenchOptions& options, const std::optional<MachineCosts>& costs, BenchOutcome& outcome) {
  Bill& bill = outcome.bill;
  bill.pinning = outcome.ledgers[0].pinning;
  bill.gemm = gemm_description();
  fill_bill(outcome.ledgers, bill);
  if (costs) {
    const double row_bytes = static_cast<double>(options.model.hidden) * static_cast<double>(size_of(options.dtype));
    add_predictions(*costs, outcome.traffic, outcome.uses, row_bytes, bill);
  }
  explain(bill);
  if (options.json_path != "-" && options.trace_path != "-") MOETAX_TRY(write_text("-", to_text(bill)));
  if (!options.json_path.empty()) MOETAX_TRY(write_text(options.json_path, to_json(bill)));
  if (!options.trace_path.empty()) MOETAX_TRY(write_text(options.trace_path, to_chrome_trace(outcome.ledgers)));
  if (options.fail_on.empty()) return 0;
  MOETAX_ASSIGN(const Threshold threshold, parse_threshold(options.fail_on));
  MOETAX_ASSIGN(const ThresholdOutcome outcome_of_limit, check_threshold(bill, threshold));
  if (!outcome_of_limit.crossed) return 0;
  std::fprintf(stderr, "moetax: %s\n", outcome_of_limit.text.c_str());
  return kThresholdCrossed;
}

// What every rank needs to run.
struct Prepared {
  BenchOptions options;
  RoutingSource routes;
  Bill bill;
  std::optional<MachineCosts> costs;  // on rank 0
};

// Containers of this process may still fail to grow; that is an error like others, and the other ranks hear of it.
Result<std::optional<BenchOutcome>> run_rank(const Prepared& prepared, Communicator& world) {
  try {
    return run_bench_rank(prepared.options, prepared.routes, prepared.costs, prepared.bill, world);
  } catch (const std::bad_alloc&) {
    Error error{ErrorCode::kUnavailable, fmt::format("rank {} ran out of memory", world.rank()), world.rank()};
    world.fail(error);
    return Unexpected(std::move(error));
  }
}

Result<Prepared> prepare(BenchOptions options, const HostInfo& host, const TransportEntry& transport, bool writes) {
  if (!options.fail_on.empty()) MOETAX_TRY(parse_threshold(options.fail_on));
  const RouterConfig& router = options.model.router;
  auto routes = RoutingSource::open(options.routing, router.experts, router.topk, options.seed);
  if (!routes) return Unexpected(std::move(routes.error()));
  if (options.auto_exchange && options.costs_path.empty() && options.nodes > 1) {
    return fail(ErrorCode::kUsage,
                "--exchange auto chooses by measured costs: run moetax calibrate with the same ranks "
                "and nodes, and give its file as --machine");
  }
  std::optional<MachineCosts> costs;
  if (writes && !options.costs_path.empty()) {
    MOETAX_ASSIGN(costs, read_machine_costs(options.costs_path));
  }
  MOETAX_TRY(check_memory(options, host));
  if (writes) {
    for (const std::string* path : {&options.json_path, &options.trace_path}) MOETAX_TRY(check_writable(*path));
    if (!options.record_routing_path.empty()) MOETAX_TRY(check_recordable(options.record_routing_path));
  }
  const ExchangeEntry& exchange = exchange_entry(options.exchange);
  MOETAX_ASSIGN(const std::string found, transport.probe());
  MOETAX_TRY(exchange.probe());
  Bill bill = describe_run(options, host, transport, exchange);
  bill.mpi = found;
  return Prepared{std::move(options), std::move(*routes), std::move(bill), std::move(costs)};
}

int rank_body(const Prepared& prepared, Communicator& world) {
  auto outcome = run_rank(prepared, world);
  if (!outcome) return told(world, outcome.error());
  if (!*outcome) return 0;
  const Result<int> delivered = deliver(prepared.options, prepared.costs, **outcome);
  return delivered ? *delivered : told(world, delivered.error());
}

// The ranks are started from here.
Result<int> run_here(int argc, char** argv) {
  const HostInfo host = probe_host();
  MOETAX_ASSIGN(auto parsed, parse_bench_options(argc, argv, host.cores));
  if (!parsed) return 0;
  const TransportEntry& transport = transports().front();
  MOETAX_ASSIGN(const Prepared prepared, prepare(std::move(*parsed), host, transport, true));
  const BenchOptions& options = prepared.options;
  MOETAX_ASSIGN(const auto outcomes, transport.start({.ranks = options.ranks,
                                                      .ranks_per_node = options.ranks_per_node(),
                                                      .linger_s = options.deadline_s},
                                                     [&](Communicator& world) { return rank_body(prepared, world); }));
  if (const auto cause = cause_of(outcomes)) return report_error(*cause);
  return outcomes[0].exit_status;
}

// This process is one of the ranks.
int run_launched(int argc, char** argv, const LaunchedRank& launched) {
  const HostInfo host = probe_host();
  auto parsed = parse_bench_options(argc, argv, host.cores, launched);
  if (parsed && !*parsed) return 0;
  MpiRun job;
  if (parsed) job.deadline_s = (*parsed)->deadline_s;
  if (parsed && (*parsed)->nodes_by_decree) job.ranks_per_node = (*parsed)->ranks_per_node();
  return run_launched_job(launched, job, [&](Communicator& world) {
    if (!parsed) return told(world, parsed.error());
    if (auto settled = settle(**parsed, host.cores, world); !settled) return told(world, settled.error());
    const auto prepared = prepare(std::move(**parsed), host, mpi_transport(), world.rank() == 0);
    return prepared ? rank_body(*prepared, world) : told(world, prepared.error());
  });
}

}  // namespace

int cmd_bench(int argc, char** argv) {
  if (const auto launched = launched_rank()) return run_launched(argc, argv, *launched);
  const Result<int> status = run_here(argc, argv);
  return status ? *status : report_error(status.error());
}

}  // namespace moetax::cli
