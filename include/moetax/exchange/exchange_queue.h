// Calls of an exchange beside the rank's own work: one after the other, in a thread of their own.
//
//   ExchangeQueue queue(observer);            // the exchange is made with &queue as its observer
//   const auto ticket = queue.submit(call);   // a FunctionRef<Result<void>()> to what the caller keeps
//   ...                                       // experts
//   MOETAX_TRY(queue.wait(ticket));
//
// What the observer hears, all of it from the rank's thread: while the rank waits, the spans that its call is in at
// that time, as if it had made the call itself; so what is exposed stands in its parts and the rest does not. Finished
// calls are told by wait(), with what of them ran beside the rank's work as hidden_ns. Waits for peers are told as far
// as the rank waited too.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "moetax/base/function_ref.h"
#include "moetax/base/observer.h"
#include "moetax/base/result.h"

namespace moetax {

class ExchangeQueue final : public Observer {
 public:
  using Ticket = std::uint64_t;  // calls are numbered from 1
  using Call = FunctionRef<Result<void>()>;

  explicit ExchangeQueue(Observer* observer);  // may be null; must outlive this
  ~ExchangeQueue() override;                   // when all that was submitted is done
  ExchangeQueue(const ExchangeQueue&) = delete;
  ExchangeQueue& operator=(const ExchangeQueue&) = delete;

  // Never blocks. After a call has failed the later ones are not made.
  Ticket submit(Call call);
  // Until the call is done, and all before it. The error of the first that failed.
  Result<void> wait(Ticket ticket);
  // Until all are done: what they refer to may go then.
  void drain();

  // Of the calls, from the thread that makes them.
  void enter(Part part, const char* name) override;
  void leave() override;
  void waited(const WaitRecord& wait) override;
  void exchanged(const ExchangeRecord& exchange) override;
  void flowed(const FlowRecord& flow) override;

 private:
  static constexpr std::size_t kMaxDepth = 32;
  struct Place {
    Part part = Part::kLaunch;
    const char* name = "exchange";
  };
  struct Interval {
    std::int64_t start_ns, end_ns;
  };

  void run();
  void follow(Ticket ticket, std::unique_lock<std::mutex>& lock);
  void tell();
  std::int64_t exposed_ns(std::int64_t start_ns, std::int64_t end_ns) const;

  Observer* observer_;
  std::mutex mutex_;
  std::condition_variable work_, news_;
  std::vector<Call> calls_;  // submitted; those before done_ are over
  std::size_t next_ = 0;     // of calls_
  Ticket submitted_ = 0, done_ = 0;
  bool stop_ = false;
  std::optional<Error> error_;

  // Where the call under way is.
  std::array<Place, kMaxDepth> open_{};
  std::size_t depth_ = 0, too_deep_ = 0;
  std::uint64_t moves_ = 0;
  // What is still to be told.
  std::vector<ExchangeRecord> exchanges_;
  std::vector<WaitRecord> waits_;
  std::vector<FlowRecord> flows_;
  std::vector<Interval> exposed_;  // when the rank waited, since the oldest call that is to be told

  std::thread thread_;  // last: it uses all of these
};

}  // namespace moetax
