#include "cli/bench_rank.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "cli/bench_decompose.h"
#include "cli/bench_stress.h"
#include "cli/bench_tokens.h"
#include "cli/layer_stack.h"
#include "cli/routing_record.h"
#include "moetax/layer/exchange_chooser.h"
#include "moetax/machine/host.h"
#include "moetax/meter/ledger.h"

namespace moetax::cli {
namespace {

constexpr int kMaxSpans = 40000;
constexpr int kStepsPerReview = 4;  // of the exchange

// A progress line on standard error, when rank 0 talks to a terminal.
class Progress {
 public:
  explicit Progress(Rank rank) : shown_(rank == 0 && isatty(STDERR_FILENO)) {}
  ~Progress() { clear(); }
  void clear() const {
    if (shown_) std::fputs("\r\033[K", stderr);
  }
  void say(const std::string& text) const {
    if (shown_) std::fprintf(stderr, "\r\033[Kmoetax: %s", text.c_str());
  }

 private:
  bool shown_;
};

class RankBench {
 public:
  static Result<RankBench> create(const BenchOptions& options, const RoutingSource& routes,
                                  const std::optional<MachineCosts>& costs, Communicator& world, Ledger& ledger,
                                  const Progress& progress);
  Result<void> run(const Progress& progress);
  Result<void> record_routing();
  void complete(RankLedger& record) const;
  Result<std::uint64_t> output_hash();
  // What costs have to say of the run, on rank 0.
  Result<void> price(BenchOutcome& outcome);
  Collectives& over_world() { return parallel_->over_world(); }
  Deadline deadline() const { return Deadline::in_seconds(options_->deadline_s); }

 private:
  RankBench(const BenchOptions& options, const std::optional<MachineCosts>& costs, Communicator& world, Ledger& ledger)
      : options_(&options), costs_(&costs), rank_(world.rank()), ledger_(&ledger) {}
  Result<void> join(Communicator& world);
  Result<void> check_costs();
  Result<void> step(bool measured);
  bool prices() const { return !options_->costs_path.empty(); }
  Result<void> review(int steps_done, const Progress& progress);
  TaxSeen tax_since_review();

  const BenchOptions* options_;
  const std::optional<MachineCosts>* costs_;  // on rank 0
  Rank rank_;
  Ledger* ledger_;
  std::unique_ptr<ExchangeChooser> chooser_;  // where the exchange is chosen
  std::vector<BillChoice> choices_;
  std::size_t reviewed_steps_ = 0;                         // of the ledger
  std::array<int, kNumExchangeAlgorithms> steps_by_ = {};  // measured, by who carried the rows
  std::unique_ptr<ExpertParallel> parallel_;
  std::optional<LayerStack> stack_;
};

Result<RankBench> RankBench::create(const BenchOptions& options, const RoutingSource& routes,
                                    const std::optional<MachineCosts>& costs, Communicator& world, Ledger& ledger,
                                    const Progress& progress) {
  RankBench bench(options, costs, world, ledger);
  const auto place = std::find(options.here.begin(), options.here.end(), world.rank()) - options.here.begin();
  ledger.record().pinning =
      options.bound_by_launcher
          ? "as the launcher did"
          : pin_rank(static_cast<Rank>(place), static_cast<int>(options.here.size()), options.threads);
  MOETAX_TRY(bench.join(world));
  MOETAX_TRY(bench.check_costs());
  MOETAX_ASSIGN(bench.stack_, LayerStack::create(options, routes, *bench.parallel_, &ledger,
                                                 [&](const std::string& what) { progress.say(what); }));
  return bench;
}

Result<void> RankBench::join(Communicator& world) {
  if (options_->auto_exchange && prices()) {
    chooser_ = std::make_unique<ExchangeChooser>(*costs_, options_->policy, ledger_);
  }
  Observer* observer = chooser_ ? static_cast<Observer*>(chooser_.get()) : ledger_;
  MOETAX_ASSIGN(ExpertParallel parallel,
                ExpertParallel::create(world, options_->parallel_options(rank_, observer, options_->ep_size)));
  parallel_ = std::make_unique<ExpertParallel>(std::move(parallel));
  return {};
}

// kUsage where the calibration lacks what these ranks need.
Result<void> RankBench::check_costs() {
  if (!*costs_) return {};
  const auto problem = cannot_predict(**costs_, places_of(*parallel_));
  if (!problem) return {};
  return fail(ErrorCode::kUsage, fmt::format("--machine {}: {}", options_->costs_path, *problem));
}

Result<void> RankBench::run(const Progress& progress) {
  // Ranks take different times to make their weights; that is no wait of a step.
  MOETAX_TRY(over_world().barrier("the first step", deadline()));
  const int total = options_->warmup + options_->steps;
  for (int i = 0; i < total; ++i) {
    const bool measured = i >= options_->warmup;
    progress.say(measured ? fmt::format("step {}/{}", i - options_->warmup + 1, options_->steps)
                          : fmt::format("warming up {}/{}", i + 1, options_->warmup));
    MOETAX_TRY(step(measured));
    if (chooser_ && i + 1 < total && (i == 0 || (i + 1) % kStepsPerReview == 0)) MOETAX_TRY(review(i + 1, progress));
  }
  return {};
}

// Of this rank's measured steps; there are none while it warms up.
TaxSeen RankBench::tax_since_review() {
  const std::vector<StepRecord>& steps = ledger_->record().steps;
  TaxSeen seen;
  for (; reviewed_steps_ < steps.size(); ++reviewed_steps_) {
    const StepRecord& step = steps[reviewed_steps_];
    for (const Part part : {Part::kPack, Part::kWire, Part::kWait, Part::kLaunch}) {
      seen.tax_ns += step.part_ns[static_cast<std::size_t>(part)];
    }
    seen.step_ns += step.end_ns - step.start_ns;
  }
  return seen;
}

// Between steps: another exchange from here on, if that promises to be faster.
Result<void> RankBench::review(int steps_done, const Progress& progress) {
  stack_->let_go_of_layouts();
  MOETAX_ASSIGN(const auto decision, chooser_->review(*parallel_, stack_->routings(), tax_since_review()));
  if (!decision || rank_ != 0) return {};
  choices_.push_back({steps_done, to_string(decision->to), decision->why});
  progress.clear();
  std::fprintf(stderr, "moetax: after step %d: exchange %s, because %s\n", steps_done, to_string(decision->to),
               decision->why.c_str());
  return {};
}

Result<void> RankBench::price(BenchOutcome& outcome) {
  if (!prices()) return {};
  stack_->let_go_of_layouts();
  for (const RoutingTable* routing : stack_->routings()) {
    MOETAX_ASSIGN(auto traffic, gather_traffic(*parallel_, {&routing, 1}));
    if (traffic) outcome.traffic.push_back(std::move(*traffic));
  }
  for (std::size_t i = 0; i < steps_by_.size(); ++i) {
    if (steps_by_[i] > 0) outcome.uses.push_back({static_cast<ExchangeAlgorithm>(i), steps_by_[i]});
  }
  outcome.bill.choices = choices_;
  if (!options_->decompose) return {};
  const std::optional<Traffic> traffic =
      outcome.traffic.empty() ? std::nullopt : std::optional(outcome.traffic.front());
  MOETAX_ASSIGN(outcome.bill.decomposition, decompose(*parallel_, *stack_->routings()[0], stack_->input(),
                                                      stack_->output(), *costs_ ? &**costs_ : nullptr, traffic));
  return {};
}

Result<void> RankBench::step(bool measured) {
  if (measured) {
    ledger_->begin_step();
    ++steps_by_[static_cast<std::size_t>(parallel_->exchange().algorithm())];
  }
  if (const double ms = options_->delay_ms[static_cast<std::size_t>(rank_)]; ms > 0) {
    const Span span(ledger_, Part::kOther, kPlantedDelay);
    std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(ms));
  }
  MOETAX_TRY(stack_->forward());
  if (options_->backward) MOETAX_TRY(stack_->backward());
  if (measured) ledger_->end_step();
  return {};
}

// Rank 0 writes every rank's routes of the last step, in global token order.
Result<void> RankBench::record_routing() {
  const RoutingTable& mine = stack_->layers()[0].routing();
  const auto topk = static_cast<std::size_t>(mine.topk());
  const auto cells = static_cast<std::size_t>(mine.tokens()) * topk;
  std::vector<std::byte> bytes(cells * 8);
  if (cells > 0) {
    std::memcpy(bytes.data(), mine.expert().data, cells * 4);
    std::memcpy(bytes.data() + cells * 4, mine.weight().data, cells * 4);
  }
  MOETAX_ASSIGN(const auto all, over_world().gather_bytes(bytes, deadline()));
  if (rank_ != 0) return {};
  std::vector<RoutingTable> tables;
  for (const std::vector<std::byte>& part : all) {
    RoutingTable& table = tables.emplace_back();
    table.resize(static_cast<std::int64_t>(part.size() / 8 / topk), mine.topk());
    if (!part.empty()) {
      std::memcpy(table.expert().data, part.data(), part.size() / 2);
      std::memcpy(table.weight().data, part.data() + part.size() / 2, part.size() / 2);
    }
  }
  return write_recording(options_->record_routing_path, tables);
}

void RankBench::complete(RankLedger& record) const {
  record.rank = rank_;
  record.node = parallel_->world().node_of(rank_);
  record.clock_offset_ns = -parallel_->world().clock_offset_ns(0);
  for (const MoeLayer& layer : stack_->layers()) {
    std::vector<std::int64_t> counts(static_cast<std::size_t>(options_->model.router.experts));
    const auto chosen = layer.routing().expert();
    for (std::int64_t t = 0; t < chosen.rows; ++t) {
      for (const std::int32_t expert : chosen.row_span(t)) ++counts[static_cast<std::size_t>(expert)];
    }
    record.expert_tokens.push_back(std::move(counts));
    record.weight_bytes += static_cast<std::int64_t>(layer.weight_bytes());
    record.flops += layer.forward_flops() + (options_->backward ? layer.backward_flops() : 0);
  }
  record.rows_reserved_bytes = static_cast<std::int64_t>(parallel_->exchange().reserved_bytes());
  record.rows_touched_bytes = static_cast<std::int64_t>(parallel_->exchange().touched_bytes());
}

Result<std::uint64_t> RankBench::output_hash() {
  const std::uint64_t mine = hash_rows(options_->first_token(rank_), stack_->output());
  std::vector<std::uint64_t> all(static_cast<std::size_t>(options_->ranks));
  MOETAX_TRY(over_world().all_gather("output hash", std::as_bytes(std::span(&mine, 1)),
                                     std::as_writable_bytes(std::span(all)), deadline()));
  std::uint64_t sum = 0;
  for (const std::uint64_t part : all) sum += part;
  return sum;
}

// The run that the bill is of. Its layers are gone when it returns.
Result<std::optional<BenchOutcome>> run_steps(const BenchOptions& options, const RoutingSource& routes,
                                              const std::optional<MachineCosts>& costs, Bill bill, Communicator& world,
                                              const Progress& progress) {
  Ledger ledger(world.rank(), options.recorded_steps(), options.exchanges_per_step(), kMaxSpans);
  MOETAX_ASSIGN(RankBench bench, RankBench::create(options, routes, costs, world, ledger, progress));
  MOETAX_TRY(bench.run(progress));
  bench.complete(ledger.record());
  MOETAX_ASSIGN(const std::uint64_t hash, bench.output_hash());
  if (!options.record_routing_path.empty()) MOETAX_TRY(bench.record_routing());
  MOETAX_ASSIGN(const auto handed_in, bench.over_world().gather_bytes(ledger.record().to_bytes(), bench.deadline()));
  BenchOutcome outcome{.bill = std::move(bill), .ledgers = {}, .traffic = {}, .uses = {}};
  MOETAX_TRY(bench.price(outcome));
  if (world.rank() != 0) return std::optional<BenchOutcome>();
  for (const std::vector<std::byte>& bytes : handed_in) {
    MOETAX_ASSIGN(RankLedger record, RankLedger::from_bytes(bytes));
    outcome.ledgers.push_back(std::move(record));
  }
  outcome.bill.output_hash = fmt::format("{:016x}", hash);
  return std::optional(std::move(outcome));
}

Result<std::optional<BenchOutcome>> run(const BenchOptions& options, const RoutingSource& routes,
                                        const std::optional<MachineCosts>& costs, Bill bill, Communicator& world) {
  const Progress progress(world.rank());
  MOETAX_ASSIGN(auto outcome, run_steps(options, routes, costs, std::move(bill), world, progress));
  if (!options.stress.wanted()) return outcome;
  MOETAX_ASSIGN(auto stress, run_stress(options, routes, world, [&](const std::string& what) { progress.say(what); }));
  if (outcome) outcome->bill.stress = std::move(stress);
  return outcome;
}

}  // namespace

Result<std::optional<BenchOutcome>> run_bench_rank(const BenchOptions& options, const RoutingSource& routes,
                                                   const std::optional<MachineCosts>& costs, Bill bill,
                                                   Communicator& world) {
  auto outcome = run(options, routes, costs, std::move(bill), world);
  if (!outcome) world.fail(outcome.error());
  return outcome;
}

}  // namespace moetax::cli
