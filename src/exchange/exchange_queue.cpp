#include "moetax/exchange/exchange_queue.h"

#include <algorithm>
#include <csignal>

#include "moetax/base/clock.h"

namespace moetax {
namespace {

constexpr std::size_t kUsualCalls = 64;  // between two drains; more allocate

}  // namespace

ExchangeQueue::ExchangeQueue(Observer* observer) : observer_(observer) {
  calls_.reserve(kUsualCalls);
  exchanges_.reserve(kUsualCalls);
  waits_.reserve(kUsualCalls);
  flows_.reserve(kUsualCalls);
  exposed_.reserve(kUsualCalls);
  // Signals are for the rank's own thread, which knows what it is at.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

ExchangeQueue::~ExchangeQueue() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_.notify_one();
  thread_.join();
}

ExchangeQueue::Ticket ExchangeQueue::submit(Call call) {
  Ticket ticket = 0;
  {
    const std::lock_guard lock(mutex_);
    if (next_ == calls_.size()) {
      calls_.clear();
      next_ = 0;
    }
    calls_.push_back(call);
    ticket = ++submitted_;
  }
  work_.notify_one();
  return ticket;
}

void ExchangeQueue::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    work_.wait(lock, [&] { return stop_ || next_ < calls_.size(); });
    if (next_ == calls_.size()) return;
    const Call call = calls_[next_++];
    if (!error_) {
      lock.unlock();
      Result<void> result = call();
      lock.lock();
      if (!result) error_ = std::move(result.error());
    }
    depth_ = too_deep_ = 0;  // an error may have left spans open
    ++done_;
    ++moves_;
    news_.notify_one();
  }
}

Result<void> ExchangeQueue::wait(Ticket ticket) {
  std::unique_lock lock(mutex_);
  follow(ticket, lock);
  tell();
  if (error_) return Unexpected(*error_);
  return {};
}

void ExchangeQueue::drain() {
  std::unique_lock lock(mutex_);
  news_.wait(lock, [&] { return done_ == submitted_; });
}

// The rank waits: its time is spent where the call is.
void ExchangeQueue::follow(Ticket ticket, std::unique_lock<std::mutex>& lock) {
  if (done_ >= ticket) return;
  const std::int64_t start = now_ns();
  while (done_ < ticket) {
    const Place place = depth_ > 0 ? open_[depth_ - 1] : Place{};
    const std::uint64_t moves = moves_;
    lock.unlock();
    {
      const Span span(observer_, place.part, place.name);
      lock.lock();
      news_.wait(lock, [&] { return moves_ != moves; });
      lock.unlock();
    }
    lock.lock();
  }
  exposed_.push_back({start, now_ns()});
}

// What calls have told since, to the observer.
void ExchangeQueue::tell() {
  if (exchanges_.empty()) return;
  // The thread may be in the next call already, whose waits and flows are told with it.
  const std::int64_t until = exchanges_.back().end_ns;
  const auto told = [&](auto& records) {
    return std::find_if(records.begin(), records.end(), [&](const auto& one) { return one.end_ns > until; });
  };
  const auto waits_end = told(waits_);
  const auto flows_end = told(flows_);
  std::size_t next_wait = 0, next_flow = 0;
  for (ExchangeRecord& exchange : exchanges_) {
    exchange.hidden_ns = exchange.end_ns - exchange.start_ns - exposed_ns(exchange.start_ns, exchange.end_ns);
    if (!observer_) continue;
    for (; next_flow < flows_.size() && flows_[next_flow].end_ns <= exchange.end_ns; ++next_flow) {
      observer_->flowed(flows_[next_flow]);
    }
    for (; next_wait < waits_.size() && waits_[next_wait].end_ns <= exchange.end_ns; ++next_wait) {
      WaitRecord wait = waits_[next_wait];
      const std::int64_t exposed = exposed_ns(wait.start_ns, wait.end_ns);
      if (exposed == 0) continue;
      wait.start_ns = wait.end_ns - exposed;
      wait.off_cpu_ns = std::min(wait.off_cpu_ns, exposed);
      observer_->waited(wait);
    }
    observer_->exchanged(exchange);
  }
  exchanges_.clear();
  waits_.erase(waits_.begin(), waits_end);
  flows_.erase(flows_.begin(), flows_end);
  if (done_ == submitted_) exposed_.clear();
}

std::int64_t ExchangeQueue::exposed_ns(std::int64_t start_ns, std::int64_t end_ns) const {
  std::int64_t exposed = 0;
  for (const Interval& interval : exposed_) {
    exposed += std::max<std::int64_t>(0, std::min(end_ns, interval.end_ns) - std::max(start_ns, interval.start_ns));
  }
  return exposed;
}

void ExchangeQueue::enter(Part part, const char* name) {
  const std::lock_guard lock(mutex_);
  if (depth_ == kMaxDepth) {
    ++too_deep_;
    return;
  }
  open_[depth_++] = {part, name};
  ++moves_;
  news_.notify_one();
}

void ExchangeQueue::leave() {
  const std::lock_guard lock(mutex_);
  if (too_deep_ > 0) {
    --too_deep_;
    return;
  }
  if (depth_ > 0) --depth_;
  ++moves_;
  news_.notify_one();
}

void ExchangeQueue::waited(const WaitRecord& wait) {
  const std::lock_guard lock(mutex_);
  waits_.push_back(wait);
}

void ExchangeQueue::exchanged(const ExchangeRecord& exchange) {
  const std::lock_guard lock(mutex_);
  exchanges_.push_back(exchange);
}

void ExchangeQueue::flowed(const FlowRecord& flow) {
  const std::lock_guard lock(mutex_);
  flows_.push_back(flow);
}

}  // namespace moetax
