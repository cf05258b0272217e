// Requests that arrive at one rank while it works, for `moetax bench --concurrency` and `--rate`.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

namespace moetax::cli {

// A request brings all tokens of its prompt in its first step, and then one token a step for each of its output.
struct RequestShape {
  std::int64_t prompt = 0, output = 0;  // not both 0
};

// In the order of their arrival requests join a rank's batch between steps, when it has room for their next tokens,
// and stay in it until they are done.
class RequestQueue {
 public:
  // `capacity`: tokens of a step, at least the prompt's and 1. `arrival_ns` ascends.
  RequestQueue(RequestShape shape, std::int64_t capacity, std::vector<std::int64_t> arrival_ns);
  // Each request that ends is followed at once by another, until `more` have followed.
  void follow_with(std::int64_t more) { more_ = more; }

  // Lets in who has come by now. The tokens of the step, 0: nobody is here.
  std::int64_t begin_step(std::int64_t now_ns);
  void end_step(std::int64_t now_ns);

  bool done() const { return waiting_.empty() && running_.empty(); }
  std::int64_t next_arrival_ns() const { return waiting_.front(); }      // of those that wait; there is one
  const std::vector<double>& latency_us() const { return latency_us_; }  // from arrival, of those that are done
  std::int64_t tokens() const { return tokens_; }                        // in all steps that ended

 private:
  struct Running {
    std::int64_t arrival_ns;
    bool prompted;
    std::int64_t left;  // of the output
  };
  std::int64_t next_tokens(const Running& request) const { return request.prompted ? 1 : shape_.prompt; }

  RequestShape shape_;
  std::int64_t capacity_, more_ = 0, step_tokens_ = 0, tokens_ = 0;
  std::deque<std::int64_t> waiting_;  // their arrivals
  std::vector<Running> running_;
  std::vector<double> latency_us_;
};

}  // namespace moetax::cli
