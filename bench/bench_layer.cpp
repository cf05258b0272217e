// The whole layer: against its arithmetic, over ranks, over more ranks than cores, and with the meter off.
//
// All contenders live in one world of ranks. A contender is a group of ranks with its own layer; the groups take turns,
// and while one runs the others sleep in a barrier. So every figure compares runs made within the same few seconds.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <vector>

#include "moetax/base/random.h"
#include "moetax/layer/moe_layer.h"
#include "moetax/machine/host.h"
#include "moetax/meter/ledger.h"
#include "moetax/model/shape.h"
#include "moetax/route/load_file.h"
#include "moetax/transport/local.h"
#include "peak.h"

namespace moetax::bench {
namespace {

constexpr int kRounds = 15, kStepsPerTurn = 2;
constexpr double kDeadline = 300;

struct Group {
  const char* name;
  int ranks;
  int threads;
  std::int64_t tokens;  // per rank
  bool metered;
};
constexpr Group kGroups[] = {
    {"1 rank, 1 thread, T=2048", 1, 1, 2048, true},
    {"2 ranks, 1 thread, T=2048", 2, 1, 2048, true},
    {"2 ranks, 1 thread, T=2048, no meter", 2, 1, 2048, false},
    {"8 ranks, 1 thread, T=512", 8, 1, 512, true},
    {"1 rank, 2 threads, T=4096", 1, 2, 4096, true},
};
constexpr int kNumGroups = static_cast<int>(std::size(kGroups));

// What a contender's first rank measured, and what it did.
struct Measured {
  std::vector<double> step_us;
  double tax_share = 0;
  double flops = 0;
};

struct Member {
  int group = 0;
  Rank rank = 0;  // in the group
};

Member member_of(Rank world_rank) {
  Member member{0, world_rank};
  while (member.rank >= kGroups[member.group].ranks) member.rank -= kGroups[member.group++].ranks;
  return member;
}

// One rank's part of a contender: a layer and its tokens.
class Contestant {
 public:
  static Result<std::unique_ptr<Contestant>> create(Communicator& world) {
    const Member member = member_of(world.rank());
    const Group& group = kGroups[member.group];
    auto made = std::make_unique<Contestant>(member, group);
    MOETAX_ASSIGN(made->comm_, world.split(member.group, Deadline::in_seconds(kDeadline)));
    pin_rank(member.rank, group.ranks, group.threads);
    MOETAX_ASSIGN(const ModelShape model, preset("deepseek-v2-lite"));
    MOETAX_ASSIGN(ExpertParallel parallel,
                  ExpertParallel::create(*made->comm_, {.max_tokens = group.tokens,
                                                        .hidden = model.hidden,
                                                        .experts = model.router.experts,
                                                        .topk = model.router.topk,
                                                        .threads = group.threads,
                                                        .deadline_s = kDeadline,
                                                        .observer = group.metered ? &made->ledger_ : nullptr}));
    made->parallel_ = std::make_unique<ExpertParallel>(std::move(parallel));
    MOETAX_ASSIGN(MoeLayer layer, MoeLayer::create(*made->parallel_, {.hidden = model.hidden,
                                                                      .inter = model.inter,
                                                                      .shared_inter = model.shared_inter,
                                                                      .router = model.router}));
    MOETAX_TRY(layer.init_weights(1, 0));
    made->layer_ = std::make_unique<MoeLayer>(std::move(layer));
    MOETAX_TRY(made->make_tokens(model));
    return made;
  }

  Contestant(Member member, const Group& group)
      : member_(member), group_(group), ledger_(member.rank, kRounds * kStepsPerTurn, 2, 1) {}

  Result<void> turn(bool measured) {
    Collectives& all = parallel_->over_world();
    MOETAX_TRY(all.barrier("turn", Deadline::in_seconds(kDeadline)));
    const std::int64_t start = now_ns();
    for (int i = 0; i < kStepsPerTurn; ++i) {
      if (measured) ledger_.begin_step();
      MOETAX_TRY(layer_->forward(hidden_, out_, nullptr, &routes_, member_.rank * group_.tokens));
      if (measured) ledger_.end_step();
    }
    MOETAX_TRY(all.barrier("turn", Deadline::in_seconds(kDeadline)));
    if (measured) measured_.step_us.push_back(static_cast<double>(now_ns() - start) * 1e-3 / kStepsPerTurn);
    return {};
  }

  int group() const { return member_.group; }
  double flops() const { return layer_->forward_flops(); }
  const std::vector<double>& step_us() const { return measured_.step_us; }

  double tax_share() const {
    double tax = 0, step = 0;
    for (const StepRecord& s : const_cast<Ledger&>(ledger_).record().steps) {
      step += static_cast<double>(s.end_ns - s.start_ns);
      for (const Part part : {Part::kPack, Part::kWire, Part::kWait, Part::kLaunch}) {
        tax += static_cast<double>(s.part_ns[static_cast<std::size_t>(part)]);
      }
    }
    return step > 0 ? tax / step : 0;
  }

 private:
  Result<void> make_tokens(const ModelShape& model) {
    const std::size_t bytes = static_cast<std::size_t>(group_.tokens * model.hidden) * 2;
    MOETAX_ASSIGN(hidden_pages_, PageBuffer::reserve(bytes));
    MOETAX_ASSIGN(out_pages_, PageBuffer::reserve(bytes));
    hidden_ = {hidden_pages_.data(), DType::kBf16, group_.tokens, model.hidden};
    out_ = {out_pages_.data(), DType::kBf16, group_.tokens, model.hidden};
    const RandomStream random(1, static_cast<std::uint64_t>(member_.rank));
    auto* values = hidden_pages_.as<Bf16>();
    for (std::size_t i = 0; i < bytes / 2; ++i) values[i] = to_bf16(random.normal(i));
    sample_routing(std::vector<double>(static_cast<std::size_t>(model.router.experts), 1.0), model.router.topk, 1,
                   member_.rank * group_.tokens, group_.tokens, routes_);
    return {};
  }

  Member member_;
  const Group& group_;
  Ledger ledger_;
  std::unique_ptr<Communicator> comm_;
  std::unique_ptr<ExpertParallel> parallel_;
  std::unique_ptr<MoeLayer> layer_;
  PageBuffer hidden_pages_, out_pages_;
  Rows hidden_, out_;
  RoutingTable routes_;
  Measured measured_;
};

// What each rank hands to rank 0.
struct Handed {
  double median_us = 0, p10_us = 0, p90_us = 0, tax_share = 0, flops = 0, peak_flops = 0;
};

double quantile(std::vector<double> samples, double q) {
  if (samples.empty()) return 0;
  std::sort(samples.begin(), samples.end());
  return samples[static_cast<std::size_t>(std::lround(q * static_cast<double>(samples.size() - 1)))];
}

void print(const std::vector<Handed>& all) {
  std::vector<Handed> first(kNumGroups);
  std::vector<double> tax(kNumGroups);
  for (Rank rank = static_cast<Rank>(all.size()) - 1; rank >= 0; --rank) {
    const Member member = member_of(rank);
    first[static_cast<std::size_t>(member.group)] = all[static_cast<std::size_t>(rank)];
    tax[static_cast<std::size_t>(member.group)] +=
        all[static_cast<std::size_t>(rank)].tax_share / kGroups[member.group].ranks;
  }
  for (int g = 0; g < kNumGroups; ++g) {
    const Handed& m = first[static_cast<std::size_t>(g)];
    std::printf("%-38s step %8.1f ms [%.1f..%.1f], tax %4.1f %%\n", kGroups[g].name, m.median_us * 1e-3,
                m.p10_us * 1e-3, m.p90_us * 1e-3, 100 * tax[static_cast<std::size_t>(g)]);
  }
  const double speedup = 2 * first[0].median_us / first[1].median_us;
  std::printf("2 ranks against 1 rank, 1 thread each: %.2fx tokens/s (reach 1.85x), tax %.1f %% (reach 8 %%)\n",
              speedup, 100 * tax[1]);
  std::printf("8 ranks against 2 ranks on %d cores, same tokens: %.2fx the step (reach 1.3x)\n", probe_host().cores,
              first[3].median_us / first[1].median_us);
  std::printf("meter on against off: %+.2f %% (reach 1 %%)\n", 100 * (first[1].median_us / first[2].median_us - 1));
  if (first[4].peak_flops > 0) {
    const double floor_us = first[4].flops / first[4].peak_flops * 1e6;
    std::printf("1 rank, 2 threads: %.2fx its arithmetic at the measured peak of %.0f GFLOP/s (reach 1.25x)\n",
                first[4].median_us / floor_us, first[4].peak_flops * 1e-9);
  } else {
    std::printf("1 rank, 2 threads: no bf16 dot products here, so no peak to compare with\n");
  }
  std::fflush(stdout);
}

Result<void> compete(Communicator& world) {
  MOETAX_ASSIGN(Collectives all, Collectives::create(world, Deadline::in_seconds(kDeadline)));
  MOETAX_ASSIGN(auto mine, Contestant::create(world));
  std::vector<double> peaks;
  for (int round = -1; round < kRounds; ++round) {
    for (int group = 0; group < kNumGroups; ++group) {
      MOETAX_TRY(all.barrier("round", Deadline::in_seconds(kDeadline)));
      if (mine->group() != group) continue;
      MOETAX_TRY(mine->turn(round >= 0));
      if (kGroups[group].threads == 2) peaks.push_back(bf16_register_peak(2));
    }
  }
  const Handed handed{quantile(mine->step_us(), 0.5),
                      quantile(mine->step_us(), 0.1),
                      quantile(mine->step_us(), 0.9),
                      mine->tax_share(),
                      mine->flops(),
                      quantile(peaks, 0.5)};
  std::vector<Handed> everyone(static_cast<std::size_t>(world.size()));
  MOETAX_TRY(all.all_gather("results", std::as_bytes(std::span(&handed, 1)),
                            std::as_writable_bytes(std::span(everyone)), Deadline::in_seconds(kDeadline)));
  if (world.rank() == 0) print(everyone);
  return {};
}

int body(Communicator& world) {
  const Result<void> done = compete(world);
  if (done) return 0;
  world.fail(done.error());
  std::fprintf(stderr, "bench_layer: %s\n", done.error().message.c_str());
  return 1;
}

int run() {
  int ranks = 0;
  for (const Group& group : kGroups) ranks += group.ranks;
  const auto outcomes = run_processes({.ranks = ranks}, body);
  if (!outcomes) std::fprintf(stderr, "bench_layer: %s\n", outcomes.error().message.c_str());
  return outcomes && std::ranges::all_of(*outcomes, [](const RankOutcome& o) { return o.exit_status == 0; }) ? 0 : 1;
}

}  // namespace
}  // namespace moetax::bench

int main() {
  return moetax::bench::run();
}
