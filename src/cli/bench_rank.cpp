#include "cli/bench_rank.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>

#include "cli/bench_decompose.h"
#include "cli/bench_tokens.h"
#include "cli/routing_record.h"
#include "moetax/base/random.h"
#include "moetax/layer/exchange_chooser.h"
#include "moetax/layer/moe_layer.h"
#include "moetax/machine/host.h"
#include "moetax/meter/ledger.h"
#include "moetax/transport/node_map.h"

namespace moetax::cli {
namespace {

constexpr std::uint64_t kTokenStream = 1, kGradientStream = 2, kBiasStream = 1000;
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
  RankBench(const BenchOptions& options, const RoutingSource& routes, const std::optional<MachineCosts>& costs,
            Communicator& world, Ledger& ledger)
      : options_(&options), routes_(&routes), costs_(&costs), rank_(world.rank()), ledger_(&ledger) {}
  Result<void> make_layers(Communicator& world, const Progress& progress);
  Result<void> make_tokens();
  Result<void> step(bool measured);
  bool prices() const { return !options_->costs_path.empty(); }
  Result<void> review(int steps_done, const Progress& progress);
  std::vector<const RoutingTable*> routings() const;
  Result<void> forward();
  Result<void> backward();
  std::int64_t tokens() const { return options_->tokens[static_cast<std::size_t>(rank_)]; }
  Rows rows_at(const PageBuffer& buffer) const {
    return {buffer.data(), options_->dtype, tokens(), options_->model.hidden};
  }

  const BenchOptions* options_;
  const RoutingSource* routes_;
  const std::optional<MachineCosts>* costs_;  // on rank 0
  Rank rank_;
  Ledger* ledger_;
  std::unique_ptr<ExchangeChooser> chooser_;  // where the exchange is chosen
  std::vector<BillChoice> choices_;
  bool one_exchange_ = true;  // in all measured steps
  std::unique_ptr<ExpertParallel> parallel_;
  std::vector<MoeLayer> layers_;
  std::vector<PageBuffer> inputs_;         // hidden of every layer
  std::vector<std::vector<float>> scale_;  // [layers][T] of the norm behind each layer
  PageBuffer output_;
  std::vector<RoutingTable> given_;
  std::vector<LayerSaved> saved_;
  std::vector<LayerGradients> gradients_;
  PageBuffer d_out_, d_stream_, d_hidden_;
};

Result<RankBench> RankBench::create(const BenchOptions& options, const RoutingSource& routes,
                                    const std::optional<MachineCosts>& costs, Communicator& world, Ledger& ledger,
                                    const Progress& progress) {
  RankBench bench(options, routes, costs, world, ledger);
  const auto place = std::find(options.here.begin(), options.here.end(), world.rank()) - options.here.begin();
  ledger.record().pinning =
      options.bound_by_launcher
          ? "as the launcher did"
          : pin_rank(static_cast<Rank>(place), static_cast<int>(options.here.size()), options.threads);
  MOETAX_TRY(bench.make_layers(world, progress));
  MOETAX_TRY(bench.make_tokens());
  return bench;
}

// Stands in for a trained router's: small against the scores, so that it moves some choices and starves nobody.
std::vector<float> selection_bias(const BenchOptions& options, int layer_idx) {
  const RandomStream random(options.seed, kBiasStream + static_cast<std::uint64_t>(layer_idx));
  std::vector<float> bias(static_cast<std::size_t>(options.model.router.experts));
  for (std::size_t e = 0; e < bias.size(); ++e) bias[e] = 0.01f * random.normal(e);
  return bias;
}

// kUsage where the calibration lacks what these ranks need.
Result<void> check_costs(const MachineCosts& costs, ExpertParallel& parallel, const std::string& path) {
  const NodeMap nodes(parallel.world());
  RankPlaces places;
  for (const Rank rank : parallel.world().everyone()) places.node.push_back(nodes.node_of(rank));
  places.group = parallel.options().ep_size;
  const auto problem = cannot_predict(costs, places);
  if (!problem) return {};
  return fail(ErrorCode::kUsage, fmt::format("--machine {}: {}", path, *problem));
}

Result<void> RankBench::make_layers(Communicator& world, const Progress& progress) {
  const BenchOptions& options = *options_;
  if (options.auto_exchange && prices()) {
    chooser_ = std::make_unique<ExchangeChooser>(*costs_, options.policy, ledger_);
  }
  Observer* observer = chooser_ ? static_cast<Observer*>(chooser_.get()) : ledger_;
  MOETAX_ASSIGN(ExpertParallel parallel,
                ExpertParallel::create(world, {.max_tokens = tokens(),
                                               .hidden = options.model.hidden,
                                               .experts = options.model.router.experts,
                                               .topk = options.model.router.topk,
                                               .dtype = options.dtype,
                                               .ep_size = options.ep_size,
                                               .in_flight = options.activations == Activations::kRecompute ? 2 : 1,
                                               .threads = options.threads,
                                               .algorithm = options.exchange,
                                               .fp32_sums = options.fp32_sums,
                                               .deadline_s = options.deadline_s,
                                               .observer = observer}));
  parallel_ = std::make_unique<ExpertParallel>(std::move(parallel));
  if (*costs_) MOETAX_TRY(check_costs(**costs_, *parallel_, options.costs_path));
  for (int l = 0; l < options.layers; ++l) {
    progress.say(fmt::format("making the weights of layer {}/{}", l + 1, options.layers));
    MOETAX_ASSIGN(MoeLayer layer, MoeLayer::create(*parallel_, options.layer_config(), options.activations));
    MOETAX_TRY(layer.init_weights(options.seed, l));
    if (options.model.selection_bias) layer.set_selection_bias(selection_bias(options, l));
    layers_.push_back(std::move(layer));
  }
  return {};
}

Result<void> RankBench::make_tokens() {
  const BenchOptions& options = *options_;
  const std::size_t bytes = static_cast<std::size_t>(tokens() * options.model.hidden) * size_of(options.dtype);
  const std::int64_t first = options.first_token(rank_);
  for (int l = 0; l < options.layers; ++l) {
    MOETAX_ASSIGN(PageBuffer input, PageBuffer::reserve(bytes));
    inputs_.push_back(std::move(input));
    scale_.emplace_back(static_cast<std::size_t>(tokens()));
    if (routes_->from_router()) continue;
    given_.emplace_back();
    routes_->fill(l, first, tokens(), given_.back());
  }
  MOETAX_ASSIGN(output_, PageBuffer::reserve(bytes));
  fill_tokens(options.seed, kTokenStream, first, options.threads, rows_at(inputs_[0]));
  if (!options.backward) return {};
  saved_.resize(layers_.size());
  gradients_.resize(layers_.size());
  MOETAX_ASSIGN(d_out_, PageBuffer::reserve(bytes));
  MOETAX_ASSIGN(d_stream_, PageBuffer::reserve(bytes));
  MOETAX_ASSIGN(d_hidden_, PageBuffer::reserve(static_cast<std::size_t>(tokens() * options.model.hidden) * 4));
  fill_tokens(options.seed, kGradientStream, first, options.threads, rows_at(d_out_));
  return {};
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

std::vector<const RoutingTable*> RankBench::routings() const {
  std::vector<const RoutingTable*> routings;
  for (const MoeLayer& layer : layers_) routings.push_back(&layer.routing());
  return routings;
}

// Of the last measured step; before there is one nothing is known.
std::optional<double> last_tax_share(const RankLedger& record) {
  if (record.steps.empty()) return std::nullopt;
  const StepRecord& step = record.steps.back();
  std::int64_t tax = 0;
  for (const Part part : {Part::kPack, Part::kWire, Part::kWait, Part::kLaunch}) {
    tax += step.part_ns[static_cast<std::size_t>(part)];
  }
  return static_cast<double>(tax) / static_cast<double>(std::max<std::int64_t>(1, step.end_ns - step.start_ns));
}

// Between steps: another exchange from here on, if that promises to be faster.
Result<void> RankBench::review(int steps_done, const Progress& progress) {
  for (LayerSaved& saved : saved_) saved.layout = {};
  MOETAX_ASSIGN(const auto decision, chooser_->review(*parallel_, routings(), last_tax_share(ledger_->record())));
  if (!decision) return {};
  if (decision->from != decision->to && steps_done > options_->warmup) one_exchange_ = false;
  if (rank_ != 0) return {};
  choices_.push_back({steps_done, to_string(decision->to), decision->why});
  progress.clear();
  std::fprintf(stderr, "moetax: after step %d: exchange %s, because %s\n", steps_done, to_string(decision->to),
               decision->why.c_str());
  return {};
}

Result<void> RankBench::price(BenchOutcome& outcome) {
  if (!prices()) return {};
  for (LayerSaved& saved : saved_) saved.layout = {};
  for (const RoutingTable* routing : routings()) {
    MOETAX_ASSIGN(auto traffic, gather_traffic(*parallel_, {&routing, 1}));
    if (traffic) outcome.traffic.push_back(std::move(*traffic));
  }
  if (one_exchange_) outcome.one_exchange = parallel_->exchange().algorithm();
  outcome.bill.choices = choices_;
  if (!options_->decompose) return {};
  const std::optional<Traffic> traffic =
      outcome.traffic.empty() ? std::nullopt : std::optional(outcome.traffic.front());
  MOETAX_ASSIGN(outcome.bill.decomposition, decompose(*parallel_, layers_[0].routing(), rows_at(inputs_[0]),
                                                      rows_at(output_), *costs_ ? &**costs_ : nullptr, traffic));
  return {};
}

Result<void> RankBench::step(bool measured) {
  if (measured) ledger_->begin_step();
  if (const double ms = options_->delay_ms[static_cast<std::size_t>(rank_)]; ms > 0) {
    const Span span(ledger_, Part::kOther, kPlantedDelay);
    std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(ms));
  }
  MOETAX_TRY(forward());
  if (options_->backward) MOETAX_TRY(backward());
  if (measured) ledger_->end_step();
  return {};
}

// x[l+1] = norm(x[l] + layer_l(x[l])); the last layer's output stands alone.
Result<void> RankBench::forward() {
  const std::int64_t first = options_->first_token(rank_);
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    LayerSaved* saved = options_->backward ? &saved_[l] : nullptr;
    const RoutingTable* given = given_.empty() ? nullptr : &given_[l];
    MOETAX_TRY(layers_[l].forward(rows_at(inputs_[l]), rows_at(output_), saved, given, first));
    if (l + 1 == layers_.size()) break;
    const Span span(ledger_, Part::kOther, "residual");
    add_and_normalise(rows_at(inputs_[l]), rows_at(output_), options_->threads, rows_at(inputs_[l + 1]), scale_[l]);
  }
  return {};
}

Result<void> RankBench::backward() {
  const MatrixView<float> d_hidden(d_hidden_.as<float>(), tokens(), options_->model.hidden);
  ConstRows d_out = rows_at(d_out_);
  for (std::size_t l = layers_.size(); l-- > 0;) {
    MOETAX_TRY(layers_[l].backward(rows_at(inputs_[l]), saved_[l], d_out, d_hidden, gradients_[l], false));
    if (l == 0) break;
    const Span span(ledger_, Part::kOther, "residual");
    const bool last = l + 1 == layers_.size();
    add_and_normalise_backward(rows_at(inputs_[l]), scale_[l - 1], d_hidden, last ? ConstRows{} : d_out,
                               options_->threads, rows_at(d_stream_));
    d_out = rows_at(d_stream_);
  }
  return {};
}

// Rank 0 writes every rank's routes of the last step, in global token order.
Result<void> RankBench::record_routing() {
  const RoutingTable& mine = layers_[0].routing();
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
  for (const MoeLayer& layer : layers_) {
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
  const std::uint64_t mine = hash_rows(options_->first_token(rank_), rows_at(output_));
  std::vector<std::uint64_t> all(static_cast<std::size_t>(options_->ranks));
  MOETAX_TRY(over_world().all_gather("output hash", std::as_bytes(std::span(&mine, 1)),
                                     std::as_writable_bytes(std::span(all)), deadline()));
  std::uint64_t sum = 0;
  for (const std::uint64_t part : all) sum += part;
  return sum;
}

Result<std::optional<BenchOutcome>> run(const BenchOptions& options, const RoutingSource& routes,
                                        const std::optional<MachineCosts>& costs, Bill bill, Communicator& world) {
  const Progress progress(world.rank());
  Ledger ledger(world.rank(), options.recorded_steps(), options.exchanges_per_step(), kMaxSpans);
  MOETAX_ASSIGN(RankBench bench, RankBench::create(options, routes, costs, world, ledger, progress));
  MOETAX_TRY(bench.run(progress));
  bench.complete(ledger.record());
  MOETAX_ASSIGN(const std::uint64_t hash, bench.output_hash());
  if (!options.record_routing_path.empty()) MOETAX_TRY(bench.record_routing());
  MOETAX_ASSIGN(const auto handed_in, bench.over_world().gather_bytes(ledger.record().to_bytes(), bench.deadline()));
  BenchOutcome outcome{.bill = std::move(bill), .ledgers = {}, .traffic = {}, .one_exchange = {}};
  MOETAX_TRY(bench.price(outcome));
  if (world.rank() != 0) return std::optional<BenchOutcome>();
  for (const std::vector<std::byte>& bytes : handed_in) {
    MOETAX_ASSIGN(RankLedger record, RankLedger::from_bytes(bytes));
    outcome.ledgers.push_back(std::move(record));
  }
  outcome.bill.output_hash = fmt::format("{:016x}", hash);
  return std::optional(std::move(outcome));
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
