#include "report/waits.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>

#include "report/format.h"

namespace moetax::report {
namespace {

using Split = std::array<double, kNumWaitCauses>;  // ns by cause

struct Occurrence {
  const LedgerExchange* exchange = nullptr;
  std::size_t layer = 0;  // of the experts that worked before it
  bool layer_known = false;
};

// The exchanges of one rank by step, number and name: the same on all ranks that took part.
using ExchangeKey = std::tuple<std::int32_t, std::uint64_t, std::string_view>;
using ExchangeIndex = std::map<ExchangeKey, Occurrence>;

ExchangeKey key_of(const RankLedger& ledger, const LedgerExchange& exchange) {
  return {exchange.step, exchange.number, ledger.names[static_cast<std::size_t>(exchange.name)]};
}

// Every layer makes as many exchanges of a name in a step as any other, in the backward pass the last layer first.
ExchangeIndex index_exchanges(const RankLedger& ledger, std::size_t layers) {
  std::map<std::pair<std::int32_t, std::int32_t>, std::size_t> total, seen;  // by step and name
  for (const LedgerExchange& exchange : ledger.exchanges) ++total[{exchange.step, exchange.name}];
  ExchangeIndex index;
  for (const LedgerExchange& exchange : ledger.exchanges) {
    const auto kind = std::pair(exchange.step, exchange.name);
    const std::size_t of_each_layer = std::max<std::size_t>(total[kind] / std::max<std::size_t>(layers, 1), 1);
    const std::size_t k = seen[kind]++ / of_each_layer;
    const bool backward = ledger.names[static_cast<std::size_t>(exchange.phase)] == "backward";
    Occurrence occurrence{&exchange, 0, k < layers};
    if (k < layers) occurrence.layer = backward ? layers - 1 - k : k;
    index.emplace(key_of(ledger, exchange), occurrence);
  }
  return index;
}

double part(const PartTimes& parts, Part which) {
  return static_cast<double>(parts[static_cast<std::size_t>(which)]);
}

double copying(const PartTimes& parts) {
  return part(parts, Part::kPack) + part(parts, Part::kWire) + part(parts, Part::kLaunch);
}

// Hands out the length of a wait, cause by cause: none can explain more than is left.
class Explained {
 public:
  explicit Explained(double ns) : left_(ns) {}
  void take(WaitCause cause, double ns) {
    const double taken = std::clamp(ns, 0.0, left_);
    split_[static_cast<std::size_t>(cause)] += taken;
    left_ -= taken;
  }
  Split finish() {
    take(WaitCause::kUnknown, left_);
    return split_;
  }

 private:
  double left_;
  Split split_{};
};

// One wait and what is known of its two ranks.
struct WaitEvidence {
  const LedgerWait& wait;
  const LedgerExchange& mine;
  const LedgerExchange& theirs;
  double rows_share = 0;        // the part of the peer's compute that comes from its having more expert rows
  double lag_ns = 0;            // by how much later the peer left the exchange before, or began the step
  bool first_of_step = false;   // there was no exchange before
  double after_arrival_ns = 0;  // of the wait
};

// What the late peer did longer than the rank that waited for it, on the way to the same exchange: the surest evidence
// first.
Split explain_wait(const WaitEvidence& evidence) {
  const auto ns = [](std::int64_t value) { return static_cast<double>(value); };
  const LedgerExchange& mine = evidence.mine;
  const LedgerExchange& theirs = evidence.theirs;
  const auto longer = [&](Part which) {
    return part(theirs.approach.part_ns, which) - part(mine.approach.part_ns, which);
  };
  Explained explained(ns(evidence.wait.idle_ns));
  const double planted = ns(theirs.approach.planted_ns - mine.approach.planted_ns);
  explained.take(WaitCause::kPlanted, planted);
  explained.take(WaitCause::kDescheduled, ns(evidence.wait.off_cpu_ns));
  // Off the CPU beyond what the waiter was too: with more ranks than cores all take turns, and more rows take more.
  const double off_cpu = std::max(ns(theirs.approach.off_cpu_ns - mine.approach.off_cpu_ns), 0.0);
  const double computing = std::max(part(theirs.approach.part_ns, Part::kCompute) - off_cpu, 0.0);
  const double by_rows = std::clamp(computing * evidence.rows_share, 0.0, std::max(longer(Part::kCompute), 0.0));
  explained.take(WaitCause::kExpertLoad, by_rows);
  explained.take(WaitCause::kDescheduled, off_cpu);
  explained.take(WaitCause::kCompute, longer(Part::kCompute) - by_rows - off_cpu);
  explained.take(WaitCause::kCopying, copying(theirs.approach.part_ns) - copying(mine.approach.part_ns));
  explained.take(evidence.first_of_step ? WaitCause::kStepLag : WaitCause::kLag, evidence.lag_ns);
  explained.take(WaitCause::kOther, longer(Part::kOther) - std::max(planted, 0.0));
  // What of the wait came after the peer's arrival: an algorithm may copy before it tells its peers, and they may be
  // asleep when it does.
  const double before_told =
      std::clamp(copying(theirs.part_ns) - copying(mine.part_ns), 0.0, evidence.after_arrival_ns);
  explained.take(WaitCause::kCopying, before_told);
  explained.take(WaitCause::kWakeUp, evidence.after_arrival_ns - before_told);
  return explained.finish();
}

class WaitExplainer {
 public:
  WaitExplainer(const std::vector<RankLedger>& ledgers, const ExpertLoad& load) : ledgers_(ledgers), load_(load) {
    for (const RankLedger& ledger : ledgers) indices_.push_back(index_exchanges(ledger, load.expert_tokens.size()));
  }

  Split explain(std::size_t rank, const LedgerWait& wait) const {
    const RankLedger& me = ledgers_[rank];
    const Occurrence* theirs = match(me, wait);
    if (!theirs) return Explained(static_cast<double>(wait.idle_ns)).finish();
    const RankLedger& peer = ledgers_[static_cast<std::size_t>(wait.peer)];
    WaitEvidence evidence{wait, me.exchanges[static_cast<std::size_t>(wait.exchange)], *theirs->exchange};
    evidence.rows_share = more_rows_share(static_cast<Rank>(rank), wait.peer, *theirs);
    const std::int64_t ahead_ns = peer.clock_offset_ns - me.clock_offset_ns;
    evidence.lag_ns =
        static_cast<double>(evidence.theirs.approach.start_ns + ahead_ns - evidence.mine.approach.start_ns);
    const StepRecord& step = peer.steps[static_cast<std::size_t>(evidence.theirs.step)];
    evidence.first_of_step = evidence.theirs.approach.start_ns == step.start_ns;
    const std::int64_t arrival_ns = std::max(evidence.theirs.start_ns + ahead_ns, wait.start_ns);
    evidence.after_arrival_ns = static_cast<double>(std::max<std::int64_t>(wait.end_ns - arrival_ns, 0));
    return explain_wait(evidence);
  }

 private:
  // The peer's side of the exchange that the wait belongs to.
  const Occurrence* match(const RankLedger& me, const LedgerWait& wait) const {
    if (wait.exchange < 0 || wait.peer < 0 || static_cast<std::size_t>(wait.peer) >= ledgers_.size()) return nullptr;
    const ExchangeIndex& index = indices_[static_cast<std::size_t>(wait.peer)];
    const auto found = index.find(key_of(me, me.exchanges[static_cast<std::size_t>(wait.exchange)]));
    return found == index.end() ? nullptr : &found->second;
  }

  // 1 - mine / theirs; differences under 5 % explain nothing.
  double more_rows_share(Rank me, Rank peer, const Occurrence& at) const {
    if (!load_.known()) return 0;
    const bool by_layer = at.layer_known && at.layer < load_.rank_rows.size();
    const double mine = by_layer ? load_.rows(at.layer, me) : load_.rows(me);
    const double theirs = by_layer ? load_.rows(at.layer, peer) : load_.rows(peer);
    return theirs > 1.05 * mine ? 1 - mine / theirs : 0;
  }

  const std::vector<RankLedger>& ledgers_;
  const ExpertLoad& load_;
  std::vector<ExchangeIndex> indices_;
};

// "expert load, 3.10x the mean rows: experts 5, 9", for the layer where the rank has most rows over the mean.
std::string load_text(const ExpertLoad& load, const BillConfig& config, Rank rank) {
  std::size_t worst = 0;
  double ratio = 0;
  for (std::size_t layer = 0; layer < load.rank_rows.size(); ++layer) {
    const double average = load.mean_rows(layer);
    if (average > 0 && load.rows(layer, rank) / average > ratio) {
      ratio = load.rows(layer, rank) / average;
      worst = layer;
    }
  }
  const auto r = static_cast<std::size_t>(rank);
  const int first = load.first_expert[r];
  const auto hot = hottest(load.expert_tokens[worst], 3, first, first + config.experts_per_rank[r]);
  std::vector<std::string> names;
  for (const int expert : hot) {
    const double tokens = static_cast<double>(load.expert_tokens[worst][static_cast<std::size_t>(expert)]);
    if (names.empty() || tokens > mean(load.expert_tokens[worst])) names.push_back(std::to_string(expert));
  }
  return fmt::format("{}, {} the mean rows: expert{} {}{}", cause_text(WaitCause::kExpertLoad), ratio_text(ratio),
                     names.size() == 1 ? "" : "s", join(names),
                     load.rank_rows.size() > 1 ? fmt::format(" of layer {}", worst) : "");
}

BillWaitedFor summarise(Rank peer, const Split& split, double steps) {
  BillWaitedFor waited;
  waited.rank = peer;
  for (std::size_t i = 0; i < split.size(); ++i) {
    waited.by_cause_us[i] = split[i] * 1e-3 / steps;
    waited.us += waited.by_cause_us[i];
  }
  const auto largest = std::max_element(split.begin(), split.end());
  waited.cause = static_cast<WaitCause>(largest - split.begin());
  waited.cause_text = cause_text(waited.cause);
  return waited;
}

}  // namespace

void explain_waits(const std::vector<RankLedger>& ledgers, std::size_t steps, const ExpertLoad& load, Bill& bill) {
  if (steps == 0) return;
  const WaitExplainer explainer(ledgers, load);
  for (std::size_t rank = 0; rank < ledgers.size(); ++rank) {
    std::map<Rank, Split> by_peer;
    for (const LedgerWait& wait : ledgers[rank].waits) {
      if (static_cast<std::size_t>(wait.step) >= steps) continue;
      const Split split = explainer.explain(rank, wait);
      Split& sum = by_peer[wait.peer];
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += split[i];
    }
    auto& waited_for = bill.ranks[rank].waited_for;
    for (const auto& [peer, split] : by_peer) {
      waited_for.push_back(summarise(peer, split, static_cast<double>(steps)));
      if (waited_for.back().cause == WaitCause::kExpertLoad) {
        waited_for.back().cause_text = load_text(load, bill.config, peer);
      }
    }
    std::stable_sort(waited_for.begin(), waited_for.end(),
                     [](const BillWaitedFor& a, const BillWaitedFor& b) { return a.us > b.us; });
  }
}

const char* cause_id(WaitCause cause) {
  static constexpr std::array<const char*, kNumWaitCauses> kIds{
      "planted-delay", "descheduled", "expert-load", "compute", "copying",
      "lag",           "step-lag",    "other",       "wake-up", "unknown"};
  return kIds[static_cast<std::size_t>(cause)];
}

const char* cause_text(WaitCause cause) {
  static constexpr std::array<const char*, kNumWaitCauses> kTexts{
      "planted delay",        "descheduled",
      "expert load",          "slower compute",
      "slower copying",       "late from the exchange before",
      "began the step later", "work outside compute and exchanges",
      "woken late",           "unknown"};
  return kTexts[static_cast<std::size_t>(cause)];
}

}  // namespace moetax::report
