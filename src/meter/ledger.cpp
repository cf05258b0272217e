#include "moetax/meter/ledger.h"

#include <algorithm>
#include <cstring>

#include "moetax/base/clock.h"

namespace moetax {
namespace {

constexpr std::size_t kWaitsPerExchange = 8;

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
  reserve_touched(record_.waits, exchanges * kWaitsPerExchange);
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
  previous_end_ = moment(mark_ns_);
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
  if (from_outside && is_exchange_part(part)) arrivals_[num_arrivals_++ % kMaxArrivals] = moment(now);
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
  if (!in_step_ || wait.end_ns <= wait.start_ns) return;
  if (!has_room(record_.waits)) {
    ++record_.records_dropped;
    return;
  }
  const auto step = static_cast<std::int32_t>(record_.steps.size());
  record_.waits.push_back({step, -1, wait.peer, wait.start_ns, wait.end_ns, wait.off_cpu_ns});
}

void Ledger::exchanged(const ExchangeRecord& exchange) {
  if (!in_step_) return;
  const std::int64_t now = now_ns();
  charge(now);
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

  // Idle polling is taken as off the CPU in full: whether it spun or slept, it did not keep the rank from working.
  const auto off_cpu = [](const Moment& from, const Moment& to, const PartTimes& parts) {
    const std::int64_t wall = to.at_ns - from.at_ns, cpu = to.cpu_ns - from.cpu_ns;
    return std::max<std::int64_t>(0, wall - cpu - wait_of(parts) - (to.planted_ns - from.planted_ns));
  };
  out.approach.start_ns = previous_end_.at_ns;
  out.approach.part_ns = difference(arrival.part_ns, previous_end_.part_ns);
  out.approach.planted_ns = arrival.planted_ns - previous_end_.planted_ns;
  out.approach.off_cpu_ns = off_cpu(previous_end_, arrival, out.approach.part_ns);
  out.part_ns = difference(end.part_ns, arrival.part_ns);
  out.busy_off_cpu_ns = off_cpu(arrival, end, out.part_ns);

  const bool kept = has_room(record_.exchanges);
  for (; first_wait_ < record_.waits.size(); ++first_wait_) {
    LedgerWait& wait = record_.waits[first_wait_];
    out.off_cpu_ns += wait.off_cpu_ns;
    if (kept) wait.exchange = static_cast<std::int32_t>(record_.exchanges.size());
  }
  previous_end_ = end;
  num_arrivals_ = 0;
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
  return {now, thread_cpu_ns(), planted_ns_, step_.part_ns};
}

// The entry into an exchange part that was this exchange's arrival; its end when it opened no span.
const Ledger::Moment& Ledger::arrival_near(std::int64_t start_ns, const Moment& end) const {
  const Moment* nearest = &end;
  const auto distance = [start_ns](const Moment& m) {
    return m.at_ns > start_ns ? m.at_ns - start_ns : start_ns - m.at_ns;
  };
  for (std::size_t i = 0; i < std::min(num_arrivals_, kMaxArrivals); ++i) {
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

}  // namespace moetax
