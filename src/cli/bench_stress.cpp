#include "cli/bench_stress.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>

#include "moetax/base/clock.h"
#include "moetax/base/random.h"

namespace moetax::cli {
namespace {

constexpr std::uint64_t kArrivalStream = 3000;
constexpr int kWarmUpSteps = 2;

// Adds up where the time of steps goes; keeps nothing else.
class PartClock final : public Observer {
 public:
  void enter(Part part, const char*) override {
    book(now_ns());
    open_.push_back(part);
  }
  void leave() override {
    book(now_ns());
    open_.pop_back();
  }
  void waited(const WaitRecord&) override {}
  void exchanged(const ExchangeRecord&) override {}

  void reset() { part_ns_ = {}; }
  std::int64_t tax_ns() const {
    std::int64_t tax = 0;
    for (const Part part : {Part::kPack, Part::kWire, Part::kWait, Part::kLaunch}) {
      tax += part_ns_[static_cast<std::size_t>(part)];
    }
    return tax;
  }

 private:
  void book(std::int64_t now) {
    if (!open_.empty()) part_ns_[static_cast<std::size_t>(open_.back())] += now - last_ns_;
    last_ns_ = now;
  }
  std::array<std::int64_t, kNumParts> part_ns_{};
  std::vector<Part> open_;
  std::int64_t last_ns_ = 0;
};

// One level for one shape.
struct Level {
  RequestShape shape;
  int concurrency = 0;  // 0: by rate
  double rate = 0;
  std::int64_t requests = 0;
};

// What a rank hands in of a level; its latencies follow.
struct Ran {
  std::int64_t requests = 0, tokens = 0, steps = 0, step_ns = 0, tax_ns = 0, start_ns = 0, end_ns = 0;
};

// What a rank says before a step.
struct Ahead {
  std::int64_t tokens = 0, done = 0, idle_ns = 0;
};

class StressRank {
 public:
  static Result<std::unique_ptr<StressRank>> create(const BenchOptions& options, const RoutingSource& routes,
                                                    bool replicas, Communicator& world, const Say& say) {
    std::unique_ptr<StressRank> made(new StressRank(options, replicas, world.rank()));
    MOETAX_ASSIGN(ExpertParallel parallel,
                  ExpertParallel::create(
                      world, options.parallel_options(made->rank_, &made->clock_, replicas ? 1 : options.ep_size)));
    made->parallel_ = std::make_unique<ExpertParallel>(std::move(parallel));
    MOETAX_ASSIGN(made->stack_, LayerStack::create(options, routes, *made->parallel_, &made->clock_, say));
    for (int i = 0; i < kWarmUpSteps; ++i) MOETAX_TRY(made->stack_->forward());
    return made;
  }

  // The level's row on rank 0, with the mode left to fill in.
  Result<std::optional<BillStress>> run(const Level& level) {
    MOETAX_TRY(over_world().barrier("a level of load", deadline()));
    clock_.reset();
    const std::int64_t start = now_ns();
    RequestQueue queue = arrivals(level, start);
    Ran ran{.start_ns = start};
    while (true) {
      const std::int64_t tokens = queue.begin_step(now_ns());
      MOETAX_ASSIGN(const Ahead all, look_ahead(queue, tokens));
      if (all.done) break;
      if (all.tokens == 0) {
        std::this_thread::sleep_for(std::chrono::nanoseconds(all.idle_ns));
        continue;
      }
      const std::int64_t begin = now_ns();
      MOETAX_TRY(step(tokens));
      const std::int64_t end = now_ns();
      queue.end_step(end);
      ++ran.steps;
      ran.step_ns += end - begin;
    }
    ran.end_ns = now_ns();
    ran.tax_ns = clock_.tax_ns();
    ran.tokens = queue.tokens();
    ran.requests = static_cast<std::int64_t>(queue.latency_us().size());
    return hand_in(level, ran, queue.latency_us());
  }

 private:
  StressRank(const BenchOptions& options, bool replicas, Rank rank)
      : options_(options), replicas_(replicas), rank_(rank) {}
  Collectives& over_world() { return parallel_->over_world(); }
  Deadline deadline() const { return Deadline::in_seconds(options_.deadline_s); }
  std::int64_t capacity() const { return options_.tokens[static_cast<std::size_t>(rank_)]; }

  // Requests go to the ranks in turn; in a closed loop of fewer than there are ranks the others only hold experts.
  RequestQueue arrivals(const Level& level, std::int64_t start) const {
    std::vector<std::int64_t> arrival;
    if (level.concurrency > 0) {
      const int serving = std::min(level.concurrency, options_.ranks);
      const auto mine = [&](std::int64_t of) { return rank_ < serving ? of / serving + (rank_ < of % serving) : 0; };
      const std::int64_t at_once = std::min(mine(level.concurrency), mine(level.requests));
      arrival.assign(static_cast<std::size_t>(at_once), start);
      RequestQueue queue(level.shape, capacity(), std::move(arrival));
      if (at_once > 0) queue.follow_with(mine(level.requests) - at_once);
      return queue;
    }
    // Gaps between arrivals of a Poisson process are exponential: -ln(u) / rate.
    const RandomStream random(options_.seed, kArrivalStream);
    double at_s = 0;
    for (std::int64_t i = 0; i < level.requests; ++i) {
      at_s -= std::log(1 - random.uniform(static_cast<std::uint64_t>(i))) / level.rate;
      if (i % options_.ranks == rank_) arrival.push_back(start + static_cast<std::int64_t>(at_s * 1e9));
    }
    return {level.shape, capacity(), std::move(arrival)};
  }

  // All ranks step together as long as one has requests. Replicas know of themselves alone.
  Result<Ahead> look_ahead(const RequestQueue& queue, std::int64_t tokens) {
    Ahead mine{.tokens = tokens, .done = queue.done(), .idle_ns = 1'000'000};
    if (!mine.done && tokens == 0) mine.idle_ns = std::max<std::int64_t>(0, queue.next_arrival_ns() - now_ns());
    if (mine.done) mine.idle_ns = INT64_MAX;
    if (replicas_) return mine;
    std::vector<Ahead> ranks(static_cast<std::size_t>(options_.ranks));
    MOETAX_TRY(over_world().all_gather("the next step", std::as_bytes(std::span(&mine, 1)),
                                       std::as_writable_bytes(std::span(ranks)), deadline()));
    Ahead all{.tokens = 0, .done = 1, .idle_ns = INT64_MAX};
    for (const Ahead& rank : ranks) {
      all.tokens += rank.tokens;
      all.done = all.done && rank.done;
      all.idle_ns = std::min(all.idle_ns, rank.idle_ns);
    }
    return all;
  }

  // Tokens from other places at each step, so that routes differ.
  Result<void> step(std::int64_t tokens) {
    const std::int64_t places = capacity() - tokens + 1;
    next_token_ = places > 0 ? (next_token_ + tokens) % places : 0;
    return stack_->forward(next_token_, tokens);
  }

  Result<std::optional<BillStress>> hand_in(const Level& level, const Ran& ran, std::span<const double> latency_us) {
    std::vector<std::byte> bytes(sizeof ran + latency_us.size_bytes());
    std::memcpy(bytes.data(), &ran, sizeof ran);
    if (!latency_us.empty()) std::memcpy(bytes.data() + sizeof ran, latency_us.data(), latency_us.size_bytes());
    MOETAX_ASSIGN(const auto all, over_world().gather_bytes(bytes, deadline()));
    if (rank_ != 0) return std::optional<BillStress>();
    return std::optional(summary(level, all));
  }

  BillStress summary(const Level& level, std::span<const std::vector<std::byte>> all) const {
    BillStress row;
    row.replicas = replicas_;
    row.prompt = level.shape.prompt;
    row.output = level.shape.output;
    row.concurrency = level.concurrency;
    row.rate = level.rate;
    std::vector<double> latency_us;
    Ran sum;
    std::int64_t longest_ns = 0, most_steps = 0;
    for (const std::vector<std::byte>& bytes : all) {
      Ran ran;
      std::memcpy(&ran, bytes.data(), sizeof ran);
      const std::size_t before = latency_us.size();
      latency_us.resize(before + static_cast<std::size_t>(ran.requests));
      if (ran.requests > 0) std::memcpy(&latency_us[before], bytes.data() + sizeof ran, bytes.size() - sizeof ran);
      sum.tokens += ran.tokens;
      sum.step_ns += ran.step_ns;
      sum.steps += ran.steps;
      sum.tax_ns += ran.tax_ns;
      longest_ns = std::max(longest_ns, ran.end_ns - ran.start_ns);
      most_steps = std::max(most_steps, ran.steps);
    }
    row.latency_us = stats_of(latency_us);
    row.steps = most_steps;
    if (longest_ns > 0) row.tokens_per_s = static_cast<double>(sum.tokens) / (static_cast<double>(longest_ns) * 1e-9);
    if (sum.steps > 0) row.step_us = static_cast<double>(sum.step_ns) * 1e-3 / static_cast<double>(sum.steps);
    if (sum.step_ns > 0) row.tax_share = static_cast<double>(sum.tax_ns) / static_cast<double>(sum.step_ns);
    return row;
  }

  const BenchOptions& options_;
  bool replicas_;
  Rank rank_;
  PartClock clock_;
  std::unique_ptr<ExpertParallel> parallel_;
  std::optional<LayerStack> stack_;
  std::int64_t next_token_ = 0;
};

std::vector<Level> levels_of(const BenchOptions& options) {
  const StressOptions& stress = options.stress;
  std::vector<Level> levels;
  for (const RequestShape& shape : stress.shapes) {
    for (const int concurrency : stress.concurrency) {
      levels.push_back({shape, concurrency, 0, stress.requests.value_or(std::max(32, 8 * concurrency))});
    }
    for (const double rate : stress.rate) levels.push_back({shape, 0, rate, stress.requests.value_or(64)});
  }
  return levels;
}

}  // namespace

Result<std::vector<BillStress>> run_stress(const BenchOptions& options, const RoutingSource& routes,
                                           Communicator& world, const Say& say) {
  const std::vector<Level> levels = levels_of(options);
  std::vector<std::vector<BillStress>> rows(levels.size());  // with the exchange, and of replicas
  for (const bool replicas : {false, true}) {
    if (replicas && !options.stress.replicas) continue;
    MOETAX_ASSIGN(const auto rank, StressRank::create(options, routes, replicas, world, say));
    for (std::size_t i = 0; i < levels.size(); ++i) {
      say(fmt::format("load {}/{}{}", i + 1, levels.size(), replicas ? ", replicas" : ""));
      MOETAX_ASSIGN(const auto row, rank->run(levels[i]));
      if (row) rows[i].push_back(*row);
    }
  }
  std::vector<BillStress> all;
  for (const std::vector<BillStress>& of_level : rows) all.insert(all.end(), of_level.begin(), of_level.end());
  return all;
}

}  // namespace moetax::cli
