// One collective call of an exchange as its observer hears it: the enclosing span, the spans inside, and the record.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "moetax/base/clock.h"
#include "moetax/base/observer.h"

namespace moetax {

// Row bytes moved, added up by the threads that move them.
struct MovedBytes {
  std::int64_t logical = 0;
  std::int64_t physical = 0;
  std::int64_t internode = 0;
};

// Without an observer no clock is read: at a few tokens a step, clock reads would be a good part of the call.
class Call {
 public:
  // Unless it has to wait for a peer, this rank is the last to arrive.
  Call(Observer* observer, Rank self, const char* name, const char* phase, std::uint64_t number)
      : observer_(observer), launch_(observer, Part::kLaunch, name) {
    record_.name = name;
    record_.phase = phase;
    record_.family = "all-to-all";
    record_.number = number;
    record_.last_rank = self;
    if (observer_) record_.start_ns = now_ns();
  }

  const char* name() const { return record_.name; }
  std::uint64_t number() const { return record_.number; }
  Observer* observer() const { return observer_; }

  // Safe to call from the threads of a parallel_for.
  void moved(const MovedBytes& bytes) {
    logical_.fetch_add(bytes.logical, std::memory_order_relaxed);
    physical_.fetch_add(bytes.physical, std::memory_order_relaxed);
    internode_.fetch_add(bytes.internode, std::memory_order_relaxed);
  }

  // A peer had not arrived at this call yet.
  void waited(const WaitRecord& wait) {
    record_.wait_ns += wait.end_ns - wait.start_ns;
    record_.last_rank = wait.peer;
    if (observer_) observer_->waited(wait);
  }

  void finish() {
    if (!observer_) return;
    record_.logical_bytes = logical_.load(std::memory_order_relaxed);
    record_.physical_bytes = physical_.load(std::memory_order_relaxed);
    record_.internode_bytes = internode_.load(std::memory_order_relaxed);
    record_.end_ns = now_ns();
    observer_->exchanged(record_);
  }

  // A span of kWire or kPack. The record's transfer time is that of its wire spans without what lies inside them: rows
  // of the own rank are packed, and those of node mates pushed, while others are on their way.
  class Work {
   public:
    Work(Call& call, Part part, const char* name)
        : call_(call),
          wire_(part == Part::kWire),
          span_(call.observer_, part, name),
          start_ns_(call.observer_ ? now_ns() : 0),
          outer_inside_ns_(std::exchange(call.inside_ns_, 0)) {}
    ~Work() {
      if (!call_.observer_) return;
      const std::int64_t spent_ns = now_ns() - start_ns_;
      if (wire_) call_.record_.transfer_ns += spent_ns - call_.inside_ns_;
      call_.inside_ns_ = outer_inside_ns_ + spent_ns;
    }
    Work(const Work&) = delete;
    Work& operator=(const Work&) = delete;

   private:
    Call& call_;
    bool wire_;
    Span span_;
    std::int64_t start_ns_;
    std::int64_t outer_inside_ns_;
  };
  struct Wire : Work {
    Wire(Call& call, const char* name) : Work(call, Part::kWire, name) {}
  };
  struct Pack : Work {
    Pack(Call& call, const char* name) : Work(call, Part::kPack, name) {}
  };

 private:
  Observer* observer_;
  Span launch_;
  ExchangeRecord record_;
  std::int64_t inside_ns_ = 0;  // of the innermost open Work, spent in others inside it
  std::atomic<std::int64_t> logical_ = 0, physical_ = 0, internode_ = 0;
};

}  // namespace moetax
