#include "moetax/meter/ledger.h"

#include <algorithm>
#include <cstring>

#include "moetax/base/clock.h"

namespace moetax {
namespace {

constexpr std::int64_t kReadCpuEveryNs = 200'000;

bool is_exchange_part(Part part) {
  return part == Part::kPack || part == Part::kWire || part == Part::kWait || part == Part::kLaunch;
}

// Takes memory and its pages now, so that recording neither allocates nor faults.
template <class T>
void reserve_touched(std::vector<T>& records, std::size_t count) {
  records.resize(count);
  records.clear();
}

template <class T>
bool has_room(const std::vector<T>& records) {
  return records.size() < records.capacity();
}

PartTimes difference(const PartTimes& end, const PartTimes& start) {
  PartTimes parts{};
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i] = end[i] - start[i];
  return parts;
}

std::int64_t wait_of(const PartTimes& parts) {
  return parts[static_cast<std::size_t>(Part::kWait)];
}

std::size_t size(int count) {
  return static_cast<std::size_t>(std::max(count, 0));
}

}  // namespace

Ledger::Ledger(Rank rank, int max_steps, int max_exchanges_per_step, int max_spans) {
  const std::size_t exchanges = size(max_steps) * size(max_exchanges_per_step);
  record_.rank = rank;
  reserve_touched(record_.steps, size(max_steps));
  reserve_touched(record_.exchanges, exchanges);
  reserve_touched(record_.waits, exchanges * kMaxWaits);
  reserve_touched(record_.flows, kMaxFlows);
  reserve_touched(record_.spans, size(max_spans));
  reserve_touched(interned_, kMaxNames);
}

void Ledger::begin_step() {
  if (!has_room(record_.steps)) {
    ++record_.records_dropped;
    return;
  }
  in_step_ = true;
  depth_ = too_deep_ = num_arrivals_ = 0;
  planted_ns_ = 0;
  first_wait_ = record_.waits.size();
  step_ = {};
  step_.start_ns = mark_ns_ = now_ns();
  off_cpu_ns_ = 0;
  previous_end_ = previous_arrival_ = cpu_mark_ = moment(mark_ns_);
  cpu_mark_ns_ = thread_cpu_ns();
}

void Ledger::end_step() {
  if (!in_step_) return;
  step_.end_ns = now_ns();
  charge(step_.end_ns);
  while (depth_ > 0) close_innermost(step_.end_ns);
  in_step_ = false;
  record_.steps.push_back(step_);
  publish_names();
}

void Ledger::enter(Part part, const char* name) {
  if (!in_step_) return;
  if (depth_ == kMaxDepth) {
    ++too_deep_;
    return;
  }
  const std::int64_t now = now_ns();
  charge(now);
  const bool from_outside = depth_ == 0 || !is_exchange_part(open_[depth_ - 1].part);
  if (from_outside && is_exchange_part(part)) note_arrival(now);
  const bool planted = part == Part::kOther && std::strcmp(name, kPlantedDelay) == 0;
  open_[depth_++] = {part, planted, name, now};
}

void Ledger::leave() {
  if (!in_step_) return;
  if (too_deep_ > 0) {
    --too_deep_;
    return;
  }
  if (depth_ == 0) return;  // opened before the step
  const std::int64_t now = now_ns();
  charge(now);
  close_innermost(now);
}

void Ledger::waited(const WaitRecord& wait) {
  if (!in_step_ || wait.end_ns <= wait.start_ns || fold_wait(wait)) return;
  if (!has_room(record_.waits)) {
    ++record_.records_dropped;
    return;
  }
  const auto step = static_cast<std::int32_t>(record_.steps.size());
  record_.waits.push_back(
      {step, -1, wait.peer, wait.start_ns, wait.end_ns, wait.end_ns - wait.start_ns, wait.off_cpu_ns});
}

// An exchange in many chunks waits many times: beyond kMaxWaits they are added to one that was for the same peer.
bool Ledger::fold_wait(const WaitRecord& wait) {
  if (record_.waits.size() < first_wait_ + kMaxWaits) return false;
  for (std::size_t i = record_.waits.size(); i > first_wait_; --i) {
    LedgerWait& kept = record_.waits[i - 1];
    if (kept.peer != wait.peer) continue;
    kept.idle_ns += wait.end_ns - wait.start_ns;
    kept.off_cpu_ns += wait.off_cpu_ns;
    return true;
  }
  return false;
}

void Ledger::exchanged(const ExchangeRecord& exchange) {
  if (!in_step_) return;
  const std::int64_t now = now_ns();
  charge(now);
  step_.hidden_ns += exchange.hidden_ns;
  const Moment end = moment(now);
  const Moment& arrival = arrival_near(exchange.start_ns, end);

  LedgerExchange out;
  out.step = static_cast<std::int32_t>(record_.steps.size());
  out.number = exchange.number;
  out.start_ns = exchange.start_ns;
  out.end_ns = exchange.end_ns;
  out.logical_bytes = exchange.logical_bytes;
  out.physical_bytes = exchange.physical_bytes;
  out.internode_bytes = exchange.internode_bytes;
  out.wait_ns = exchange.wait_ns;
  out.transfer_ns = exchange.transfer_ns;
  out.last_rank = exchange.last_rank;

  out.approach.start_ns = previous_end_.at_ns;
  out.approach.part_ns = difference(arrival.part_ns, previous_end_.part_ns);
  out.approach.planted_ns = arrival.planted_ns - previous_end_.planted_ns;
  out.approach.off_cpu_ns = arrival.off_cpu_ns - previous_arrival_.off_cpu_ns;
  out.part_ns = difference(end.part_ns, arrival.part_ns);
  previous_arrival_ = arrival;
  previous_end_ = end;
  num_arrivals_ = 0;

  const bool kept = has_room(record_.exchanges);
  for (; first_wait_ < record_.waits.size(); ++first_wait_) {
    LedgerWait& wait = record_.waits[first_wait_];
    out.off_cpu_ns += wait.off_cpu_ns;
    if (kept) wait.exchange = static_cast<std::int32_t>(record_.exchanges.size());
  }
  if (!kept) {
    ++record_.records_dropped;
    return;
  }
  out.name = intern(exchange.name);
  out.phase = intern(exchange.phase);
  out.family = intern(exchange.family);
  record_.exchanges.push_back(out);
}

void Ledger::charge(std::int64_t now) {
  const bool inside = depth_ > 0;
  const Part part = inside ? open_[depth_ - 1].part : Part::kOther;
  step_.part_ns[static_cast<std::size_t>(part)] += now - mark_ns_;
  if (inside && open_[depth_ - 1].planted) planted_ns_ += now - mark_ns_;
  mark_ns_ = now;
}

void Ledger::close_innermost(std::int64_t now) {
  const Open& open = open_[--depth_];
  if (has_room(record_.spans)) {
    record_.spans.push_back({intern(open.name), open.part, open.start_ns, now});
  } else {
    ++record_.spans_dropped;
  }
}

Ledger::Moment Ledger::moment(std::int64_t now) const {
  return {now, planted_ns_, off_cpu_ns_, step_.part_ns};
}

void Ledger::note_arrival(std::int64_t now) {
  if (now - cpu_mark_.at_ns >= kReadCpuEveryNs) read_cpu(now);
  const std::size_t place = std::min(num_arrivals_, kMaxArrivals - 1);  // the last one is for the latest
  arrivals_[place] = moment(now);
  num_arrivals_ = place + 1;
}

// Idle waits are taken as off the CPU in full, whether they spun or slept: nothing kept the rank from working then.
void Ledger::read_cpu(std::int64_t now) {
  const Moment here = moment(now);
  const std::int64_t cpu = thread_cpu_ns();
  const std::int64_t idle = wait_of(here.part_ns) - wait_of(cpu_mark_.part_ns);
  const std::int64_t planted = here.planted_ns - cpu_mark_.planted_ns;
  off_cpu_ns_ += std::max<std::int64_t>(0, (now - cpu_mark_.at_ns) - (cpu - cpu_mark_ns_) - idle - planted);
  cpu_mark_ = here;
  cpu_mark_ns_ = cpu;
}

// The entry into an exchange part that was this exchange's arrival; its end when it opened no span.
const Ledger::Moment& Ledger::arrival_near(std::int64_t start_ns, const Moment& end) const {
  const Moment* nearest = &end;
  const auto distance = [start_ns](const Moment& m) {
    return m.at_ns > start_ns ? m.at_ns - start_ns : start_ns - m.at_ns;
  };
  for (std::size_t i = 0; i < num_arrivals_; ++i) {
    if (distance(arrivals_[i]) < distance(*nearest)) nearest = &arrivals_[i];
  }
  return *nearest;
}

std::int32_t Ledger::intern(const char* name) {
  const auto found = std::find(interned_.begin(), interned_.end(), name);
  const auto index = static_cast<std::int32_t>(found - interned_.begin());
  if (found != interned_.end()) return index;
  if (interned_.size() == kMaxNames) return 0;
  interned_.push_back(name);
  return index;
}

void Ledger::publish_names() {
  for (std::size_t i = record_.names.size(); i < interned_.size(); ++i) record_.names.emplace_back(interned_[i]);
}

void Ledger::flowed(const FlowRecord& flow) {
  if (!in_step_) return;
  std::vector<LedgerFlow>& flows = record_.flows;
  const auto is_it = [&](const LedgerFlow& one) { return one.peer == flow.peer; };
  auto found = std::find_if(flows.begin(), flows.end(), is_it);
  if (found == flows.end()) {
    if (flows.size() == kMaxFlows) return;
    found = flows.insert(flows.end(), LedgerFlow{flow.peer, 0, 0});
  }
  found->bytes += flow.bytes;
  found->ns += flow.end_ns - flow.start_ns;
}

}  // namespace moetax
