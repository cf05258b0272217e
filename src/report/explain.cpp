// What the bill means: the one bottleneck, the other findings, and for each an upper bound of what removing it saves.
// Each finding's id, condition and estimate are defined in docs/bill.md.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "moetax/report/bill.h"
#include "report/format.h"
#include "report/links.h"
#include "report/load.h"
#include "report/waits.h"

namespace moetax {
namespace {

using namespace report;  // NOLINT(google-build-using-namespace): the room's own helpers

constexpr double kTaxWorthCutting = 0.02;   // of the step
constexpr double kShareWorthNaming = 0.01;  // smaller contributions are left out
constexpr double kShareOfWarning = 0.05;    // from here on a finding is a warning
constexpr double kUnevenRows = 1.2;         // rank max/mean
constexpr double kUnsteady = 0.2;           // deviation / mean of the step
constexpr double kMuchOther = 0.10;

// A finding and how much of the mean step it stands for.
struct Candidate {
  BillFinding finding;
  double us = 0;
};

double share_of_step(const Bill& bill, double us) {
  return bill.step_us.mean > 0 ? us / bill.step_us.mean : 0;
}

const char* severity_of(const Bill& bill, double us) {
  return share_of_step(bill, us) >= kShareOfWarning ? "warning" : "note";
}

// ---- waits -------------------------------------------------------------------------------------------------------

// All waits of one cause.
struct WaitGroup {
  double mean_us = 0;             // over ranks
  double longest_us = 0;          // of one rank, over all peers it waited for
  Rank longest_rank = kNoRank;    // which one
  Rank peer = kNoRank;            // most waited for
  double peer_us = 0;             // by all ranks
  std::size_t waiters = 0;        // ranks that waited for it
  Rank longest_waiter = kNoRank;  // for it
  double longest_for_peer_us = 0;
  std::string text;
};

double wait_of(const BillRank& rank, Rank peer, WaitCause cause) {
  double us = 0;
  for (const BillWaitedFor& waited : rank.waited_for) {
    if (waited.rank == peer) us += waited.by_cause_us[static_cast<std::size_t>(cause)];
  }
  return us;
}

void find_peer(const Bill& bill, WaitCause cause, WaitGroup& group) {
  for (const BillRank& peer : bill.ranks) {
    double us = 0;
    for (const BillRank& rank : bill.ranks) us += wait_of(rank, peer.rank, cause);
    if (us > group.peer_us) {
      group.peer = peer.rank;
      group.peer_us = us;
    }
  }
  for (const BillRank& rank : bill.ranks) {
    const double us = wait_of(rank, group.peer, cause);
    if (us > 0) ++group.waiters;
    if (us <= group.longest_for_peer_us) continue;
    group.longest_for_peer_us = us;
    group.longest_waiter = rank.rank;
  }
}

WaitGroup group_waits(const Bill& bill, WaitCause cause) {
  WaitGroup group;
  group.text = cause_text(cause);
  for (const BillRank& rank : bill.ranks) {
    double us = 0;
    for (const BillWaitedFor& waited : rank.waited_for) us += waited.by_cause_us[static_cast<std::size_t>(cause)];
    group.mean_us += us / static_cast<double>(bill.ranks.size());
    if (us <= group.longest_us) continue;
    group.longest_us = us;
    group.longest_rank = rank.rank;
  }
  find_peer(bill, cause, group);
  for (const BillRank& rank : bill.ranks) {
    for (const BillWaitedFor& waited : rank.waited_for) {
      if (waited.rank == group.peer && waited.cause == cause) group.text = waited.cause_text;
    }
  }
  return group;
}

// A rank's steps may be longer than the mean over ranks, and so may its waits: then beside what they are a part of.
std::string wait_text(const Bill& bill, Rank rank, double us) {
  if (us <= bill.step_us.mean) return time_text(us) + " per step";
  const auto waiter =
      std::find_if(bill.ranks.begin(), bill.ranks.end(), [&](const BillRank& r) { return r.rank == rank; });
  return fmt::format("{} of its {} step", time_text(us), time_text(waiter->step_us));
}

std::string wait_title(const Bill& bill, const WaitGroup& group) {
  const std::string longest = wait_text(bill, group.longest_waiter, group.longest_for_peer_us);
  const std::string peer = group.peer == kNoRank ? "a peer not named" : fmt::format("rank {}", group.peer);
  if (group.waiters == 1) {
    return fmt::format("rank {} waits {} for {} ({})", group.longest_waiter, longest, peer, group.text);
  }
  return fmt::format("{} ranks wait for {}, rank {} longest with {} ({})", group.waiters, peer, group.longest_waiter,
                     longest, group.text);
}

struct Advice {
  std::string cause, fix;
};

bool oversubscribed(const Bill& bill) {
  return bill.config.ranks * bill.config.threads > bill.machine.cores;
}

Advice turns_advice(const Bill& bill) {
  const auto threads = static_cast<std::size_t>(bill.config.ranks) * static_cast<std::size_t>(bill.config.threads);
  const auto cores = static_cast<std::size_t>(bill.machine.cores);
  return {fmt::format("{} on {}: the kernel lets them take turns", plural(threads, "thread"), plural(cores, "core")),
          fmt::format("use at most {} ranks x threads here, or more cores", cores)};
}

Advice descheduled_advice(const Bill& bill) {
  if (oversubscribed(bill)) return turns_advice(bill);
  return {"something else ran on the ranks' cores",
          "keep other work off these cores (cgroup or isolated cores) and pin each rank to its own"};
}

Advice wait_advice(const Bill& bill, WaitCause cause) {
  switch (cause) {
    case WaitCause::kPlanted:
      return {"the delay was asked for", "drop --delay: this wait was planted, it is no property of the model"};
    case WaitCause::kDescheduled:
      return descheduled_advice(bill);
    case WaitCause::kExpertLoad:
      return {"its experts got more tokens than the others'",
              "spread the hot experts over ranks or replicate them, or balance the router's load"};
    case WaitCause::kCompute:
      return {"it computed longer for no more expert rows",
              "compare clocks, caches and neighbours of that rank's cores with the others'"};
    case WaitCause::kCopying:
      return {"it packed or moved rows for longer",
              "give ranks the same number of tokens; compare their memory bandwidth"};
    case WaitCause::kLag:
      return {"it was still busy with the exchange before", "look at the waits and copies of that exchange"};
    case WaitCause::kStepLag:
      return {"it ended the step before later, or stayed longer between the two",
              "look at its last exchange of a step and at what follows it"};
    case WaitCause::kOther:
      return {"it did other work on the way", "move that work out of the step, or do the same on every rank"};
    case WaitCause::kWakeUp:
      return {"it had come already, this rank slept or had no core when it did",
              "use no more ranks x threads than cores, and keep other work off them"};
    case WaitCause::kUnknown:
      break;
  }
  return {"the peer came as early as this rank by all that was measured", "open the trace (--trace) at these waits"};
}

// Taking the cause away saves no rank more than its longest waits of it; evening out the load not more than what the
// fullest rank computes for rows above the mean.
double wait_gain(const Bill& bill, WaitCause cause, const WaitGroup& group) {
  if (cause != WaitCause::kExpertLoad) return group.longest_us;
  double rows = 0;
  for (const BillRank& rank : bill.ranks) rows += rank.expert_rows.value_or(0) / static_cast<double>(bill.ranks.size());
  double above_mean = 0;
  for (const BillRank& rank : bill.ranks) {
    const double mine = rank.expert_rows.value_or(0);
    if (mine > rows) above_mean = std::max(above_mean, rank.compute_us * (1 - rows / mine));
  }
  return above_mean > 0 ? std::min(above_mean, group.longest_us) : group.longest_us;
}

void add_waits(const Bill& bill, std::vector<Candidate>& out) {
  for (int i = 0; i < kNumWaitCauses; ++i) {
    const auto cause = static_cast<WaitCause>(i);
    const WaitGroup group = group_waits(bill, cause);
    if (group.waiters == 0 || share_of_step(bill, group.mean_us) < kShareWorthNaming) continue;
    const Advice advice = wait_advice(bill, cause);
    BillFinding finding;
    finding.id = std::string("wait-") + cause_id(cause);
    finding.severity = severity_of(bill, group.mean_us);
    finding.title = wait_title(bill, group);
    finding.cause = advice.cause;
    finding.evidence = fmt::format("{} of the step on average; rank {} waits longest, {}",
                                   percent_text(share_of_step(bill, group.mean_us)), group.longest_rank,
                                   wait_text(bill, group.longest_rank, group.longest_us));
    finding.fix = advice.fix;
    finding.gain_us_estimate = wait_gain(bill, cause, group);
    out.push_back({finding, group.mean_us});
  }
}

// ---- the other parts of the tax ----------------------------------------------------------------------------------

double total_bytes(const Bill& bill) {
  double bytes = 0;
  for (const BillExchange& exchange : bill.exchanges) bytes += static_cast<double>(exchange.physical_bytes);
  return bytes;
}

double calls_per_step(const Bill& bill) {
  double calls = 0;
  for (const BillExchange& exchange : bill.exchanges) calls += static_cast<double>(exchange.calls);
  return bill.step_us.count > 0 ? calls / static_cast<double>(bill.step_us.count) : 0;
}

Candidate part_finding(const Bill& bill, const char* id, double us) {
  Candidate candidate;
  candidate.us = us;
  candidate.finding.id = id;
  candidate.finding.severity = severity_of(bill, us);
  return candidate;
}

void add_wire(const Bill& bill, std::vector<Candidate>& out) {
  const double us = bill.tax.wire_us.value_or(0);
  if (share_of_step(bill, us) < kShareWorthNaming) return;
  Candidate candidate = part_finding(bill, "wire-bound", us);
  BillFinding& finding = candidate.finding;
  finding.title = fmt::format("moving rows between ranks takes {} per step", time_text(us));
  finding.cause = fmt::format("{} per step over all ranks, nothing of it hidden under {} of compute",
                              bytes_text(total_bytes(bill)), time_text(bill.compute_us));
  if (bill.hidden_us > 0) {
    finding.cause = fmt::format("{} per step over all ranks; {} of transfer is hidden, this is not",
                                bytes_text(total_bytes(bill)), time_text(bill.hidden_us));
  }
  finding.evidence = fmt::format("{} of the step", percent_text(share_of_step(bill, us)));
  const bool can_overlap = bill.config.nodes > 1 && bill.config.overlap == "none" && !bill.config.backward;
  finding.fix = fmt::format(
      "run exchanges under compute{} (saves at most the lesser of wire and compute), or send rows in half the bytes "
      "(saves at most {})",
      can_overlap ? ": try --overlap 4" : "", time_text(us / 2));
  finding.gain_us_estimate = std::min(us, bill.compute_us);
  if (oversubscribed(bill)) {  // others' turns fall into the copies too
    finding.cause += "; " + turns_advice(bill).cause;
    finding.fix = turns_advice(bill).fix;
    finding.gain_us_estimate.reset();
  }
  out.push_back(candidate);
}

std::string node_text(const Bill& bill, Node node) {
  const auto idx = static_cast<std::size_t>(node);
  return idx < bill.config.hosts.size() ? fmt::format("node {} ({})", node, bill.config.hosts[idx])
                                        : fmt::format("node {}", node);
}

// Transfer goes by the slowest link: with it as calibrated, at most so much of it would be saved.
bool add_slow_link(const Bill& bill, std::vector<Candidate>& out) {
  const BillLink* link = slow_link(bill);
  const double us = bill.tax.wire_us.value_or(0);
  if (!link || share_of_step(bill, us) < kShareWorthNaming) return false;
  const std::string node = node_text(bill, link->node);
  Candidate candidate = part_finding(bill, "slow-link", us);
  BillFinding& finding = candidate.finding;
  finding.title = link->slowdown
                      ? fmt::format("the link of {} is {} slower than calibrated", node, ratio_text(*link->slowdown))
                      : fmt::format("the link of {} is slower than those of the others", node);
  finding.cause = "every exchange waits for the rows that go over it";
  finding.evidence = fmt::format(
      "a stream from or to it carries {} GB/s, those between the others more than twice as "
      "much; {} of the step",
      digits3(link->gbs), percent_text(share_of_step(bill, us)));
  finding.fix = "look at that node's adapter, cable, port and other traffic, or leave the node out";
  if (link->slowdown && *link->slowdown > 1) finding.gain_us_estimate = us * (1 - 1 / *link->slowdown);
  out.push_back(candidate);
  return true;
}

void add_launch(const Bill& bill, std::vector<Candidate>& out) {
  const double us = bill.tax.launch_us.value_or(0);
  if (share_of_step(bill, us) < kShareWorthNaming) return;
  Candidate candidate = part_finding(bill, "launch-bound", us);
  BillFinding& finding = candidate.finding;
  finding.title = fmt::format("starting and completing exchanges takes {} per step", time_text(us));
  finding.cause = "a fixed cost of every exchange, paid however few tokens it carries";
  finding.evidence = fmt::format("{} of the step in {} exchanges per step", percent_text(share_of_step(bill, us)),
                                 digits3(calls_per_step(bill)));
  finding.fix =
      "batch more tokens into a step: the cost per token falls in proportion; twice the tokens save half of it";
  finding.gain_us_estimate = us / 2;
  if (oversubscribed(bill)) {  // a woken peer takes the core at once, in the middle of the launch
    finding.cause = turns_advice(bill).cause;
    finding.fix = turns_advice(bill).fix;
    finding.gain_us_estimate.reset();
  }
  out.push_back(candidate);
}

void add_pack(const Bill& bill, std::vector<Candidate>& out) {
  const double us = bill.tax.pack_us.value_or(0);
  if (share_of_step(bill, us) < kShareWorthNaming) return;
  Candidate candidate = part_finding(bill, "pack-bound", us);
  BillFinding& finding = candidate.finding;
  finding.title = fmt::format("moving rows inside ranks takes {} per step", time_text(us));
  finding.cause = "rows are gathered, copied once per expert on their rank, and summed up again";
  finding.evidence = fmt::format("{} of the step", percent_text(share_of_step(bill, us)));
  const bool idle_cores = bill.config.ranks * bill.config.threads < bill.machine.cores;
  finding.fix = idle_cores ? "more threads per rank: cores are idle while rows are copied"
                           : "fewer bytes per row, or fewer experts per token; this cost has no waiting in it";
  finding.gain_us_estimate = us;
  out.push_back(candidate);
}

// ---- what is true besides ----------------------------------------------------------------------------------------

void add_note(const char* id, std::string title, std::string cause, std::string evidence, std::string fix,
              std::optional<double> gain, std::vector<BillFinding>& out) {
  out.push_back({id, "note", std::move(title), std::move(cause), std::move(evidence), std::move(fix), gain});
}

void add_load_notes(const Bill& bill, std::vector<BillFinding>& out) {
  const BillRouting& routing = bill.routing;
  const double rank_ratio = routing.rank_max_over_mean.value_or(0);
  const bool waited_for = std::any_of(out.begin(), out.end(), [](const BillFinding& finding) {
    return finding.id == std::string("wait-") + cause_id(WaitCause::kExpertLoad);
  });
  if (rank_ratio > kUnevenRows && !waited_for) {
    add_note("expert-load-uneven", fmt::format("the fullest rank has {} the mean expert rows", ratio_text(rank_ratio)),
             "the router prefers experts that lie on one rank",
             fmt::format("the hottest expert has {} the mean tokens", ratio_text(routing.expert_max_over_mean)),
             "none while nobody waits for it: other costs hide it now", std::nullopt, out);
  }
  if (routing.experts_never_chosen > 0) {
    const auto never = static_cast<std::size_t>(routing.experts_never_chosen);
    add_note("experts-never-chosen", fmt::format("{} got no token in the last step", plural(never, "expert")),
             "too few tokens for so many experts, or a router that has collapsed",
             fmt::format("entropy {} of {} bits", digits3(routing.entropy_bits), digits3(routing.entropy_max_bits)),
             "check over more tokens before you change the router; their weights take memory but no time", std::nullopt,
             out);
  }
}

void add_run_notes(const Bill& bill, std::vector<BillFinding>& out) {
  const double other = share_of_step(bill, bill.other_us);
  if (other > kMuchOther) {
    add_note("other-time", fmt::format("{} of the step is outside compute and exchanges", percent_text(other)),
             "time that no span covers, and planted delays", fmt::format("{} per step", time_text(bill.other_us)),
             "open the trace (--trace): the gaps between spans are this time", std::nullopt, out);
  }
  if (bill.step_us.mean > 0 && bill.step_us.std / bill.step_us.mean > kUnsteady) {
    add_note("unsteady-steps", fmt::format("steps vary by {}", percent_text(bill.step_us.std / bill.step_us.mean)),
             "other work on this machine, or too few steps",
             fmt::format("from {} to {}", time_text(bill.step_us.min), time_text(bill.step_us.max)),
             "run more steps on a quiet machine before you compare", std::nullopt, out);
  }
  if (bill.records_dropped > 0) {
    add_note("records-dropped", fmt::format("{} exchanges or waits are missing from this bill", bill.records_dropped),
             "the ledger's reserved memory was full", "parts and step times are complete",
             "measure fewer steps at once", std::nullopt, out);
  }
}

BillFinding nothing_measured() {
  return {"nothing-measured",
          "error",
          "no step was measured",
          "no rank recorded a step that all ranks completed",
          "",
          "run at least one measured step (--steps 1)",
          std::nullopt};
}

BillFinding small_tax(const Bill& bill) {
  if (bill.other_us > bill.compute_us) {
    return {"outside-the-layer",
            "note",
            fmt::format("{} of the step is spent outside the layer and its exchanges",
                        percent_text(share_of_step(bill, bill.other_us))),
            "planted delays and whatever else runs between the layer's calls",
            fmt::format("other {} of {}", time_text(bill.other_us), time_text(bill.step_us.mean)),
            "drop --delay, or look at what runs between the layers",
            bill.other_us};
  }
  return {"tax-small",
          "note",
          fmt::format("compute is {} of the step, nothing is worth cutting",
                      percent_text(share_of_step(bill, bill.compute_us))),
          bill.tax.share < kTaxWorthCutting ? "the tax is below 2 % of the step"
                                            : "no single part of the tax reaches 1 % of the step",
          fmt::format("tax {} of {}", time_text(bill.tax.us), time_text(bill.step_us.mean)),
          "look at the compute first",
          bill.tax.us};
}

}  // namespace

void explain(Bill& bill) {
  bill.findings.clear();
  if (bill.step_us.count == 0) {
    bill.findings.push_back(nothing_measured());
    return;
  }
  std::vector<Candidate> candidates;
  add_waits(bill, candidates);
  if (!add_slow_link(bill, candidates)) add_wire(bill, candidates);
  add_launch(bill, candidates);
  add_pack(bill, candidates);
  const auto larger = [](const Candidate& a, const Candidate& b) { return a.us > b.us; };
  std::stable_sort(candidates.begin(), candidates.end(), larger);
  if (bill.tax.share < kTaxWorthCutting || candidates.empty()) bill.findings.push_back(small_tax(bill));
  if (candidates.size() > 1) {  // after the bottleneck by what they promise
    std::stable_sort(candidates.begin() + 1, candidates.end(), [](const Candidate& a, const Candidate& b) {
      return a.finding.gain_us_estimate.value_or(0) > b.finding.gain_us_estimate.value_or(0);
    });
  }
  for (Candidate& candidate : candidates) {
    auto& gain = candidate.finding.gain_us_estimate;
    if (gain) gain = std::min(*gain, bill.step_us.mean);
    bill.findings.push_back(std::move(candidate.finding));
  }
  add_load_notes(bill, bill.findings);
  add_run_notes(bill, bill.findings);
}

}  // namespace moetax
