// moetax bench: the layer runs here, one process a rank, and prints its bill.
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>

#include "cli/bench_memory.h"
#include "cli/bench_options.h"
#include "cli/bench_rank.h"
#include "cli/cli.h"
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
  config.transport = transport.name;
  config.exchange = exchange.name;
  config.nodes = options.nodes;
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

// Before hours of steps, not after them. Leaves an empty file where there was none.
Result<void> check_writable(const std::string& path) {
  if (path.empty() || path == "-") return {};
  std::FILE* file = std::fopen(path.c_str(), "a");
  if (!file) return fail(ErrorCode::kUsage, fmt::format("cannot write {}: {}", path, std::strerror(errno)));
  std::fclose(file);
  return {};
}

// Rank 0's last act: the bill for people, the files for machines, the threshold.
Result<int> deliver(const BenchOptions& options, BenchOutcome& outcome) {
  Bill& bill = outcome.bill;
  bill.pinning = outcome.ledgers[0].pinning;
  bill.gemm = gemm_description();
  fill_bill(outcome.ledgers, bill);
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

// Containers of this process may still fail to grow; that is an error like others, and the other ranks hear of it.
Result<std::optional<BenchOutcome>> run_rank(const BenchOptions& options, const RoutingSource& routes, const Bill& bill,
                                             Communicator& world) {
  try {
    return run_bench_rank(options, routes, bill, world);
  } catch (const std::bad_alloc&) {
    Error error{ErrorCode::kUnavailable, fmt::format("rank {} ran out of memory", world.rank()), world.rank()};
    world.fail(error);
    return Unexpected(std::move(error));
  }
}

int rank_body(const BenchOptions& options, const RoutingSource& routes, const Bill& bill, const RankErrors& errors,
              Communicator& world) {
  auto outcome = run_rank(options, routes, bill, world);
  if (!outcome) {
    errors.send(outcome.error());
    return exit_code(outcome.error().code);
  }
  if (!*outcome) return 0;
  const Result<int> delivered = deliver(options, **outcome);
  if (delivered) return *delivered;
  errors.send(delivered.error());
  return exit_code(delivered.error().code);
}

Result<int> run(int argc, char** argv) {
  const HostInfo host = probe_host();
  MOETAX_ASSIGN(const auto parsed, parse_bench_options(argc, argv, host.cores));
  if (!parsed) return 0;
  const BenchOptions& options = *parsed;
  if (!options.fail_on.empty()) MOETAX_TRY(parse_threshold(options.fail_on));
  const RouterConfig& router = options.model.router;
  MOETAX_ASSIGN(const RoutingSource routes,
                RoutingSource::open(options.routing, router.experts, router.topk, options.seed));
  MOETAX_TRY(check_memory(options, host));
  for (const std::string* path : {&options.json_path, &options.trace_path}) MOETAX_TRY(check_writable(*path));
  if (!options.record_routing_path.empty()) MOETAX_TRY(check_recordable(options.record_routing_path));
  const TransportEntry& transport = transports().front();
  const ExchangeEntry& exchange = exchange_entry(options.exchange);
  MOETAX_TRY(transport.probe());
  MOETAX_TRY(exchange.probe());
  MOETAX_ASSIGN(const RankErrors errors, RankErrors::open());
  const Bill bill = describe_run(options, host, transport, exchange);
  MOETAX_ASSIGN(
      const auto outcomes,
      transport.start(
          {.ranks = options.ranks, .ranks_per_node = options.ranks_per_node(), .linger_s = options.deadline_s},
          [&](Communicator& world) { return rank_body(options, routes, bill, errors, world); }));
  if (const auto cause = errors.cause(outcomes)) return report_error(*cause);
  return outcomes[0].exit_status;
}

}  // namespace

int cmd_bench(int argc, char** argv) {
  const Result<int> status = run(argc, argv);
  return status ? *status : report_error(status.error());
}

}  // namespace moetax::cli
