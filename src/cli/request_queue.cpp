#include "cli/request_queue.h"

#include <cassert>

namespace moetax::cli {

RequestQueue::RequestQueue(RequestShape shape, std::int64_t capacity, std::vector<std::int64_t> arrival_ns)
    : shape_(shape), capacity_(capacity), waiting_(arrival_ns.begin(), arrival_ns.end()) {
  assert(shape.prompt + shape.output > 0 && capacity >= shape.prompt && capacity > 0);
}

std::int64_t RequestQueue::begin_step(std::int64_t now_ns) {
  step_tokens_ = 0;
  for (const Running& request : running_) step_tokens_ += next_tokens(request);
  while (!waiting_.empty() && waiting_.front() <= now_ns) {
    const Running request{waiting_.front(), shape_.prompt == 0, shape_.output};
    if (step_tokens_ + next_tokens(request) > capacity_) break;
    step_tokens_ += next_tokens(request);
    running_.push_back(request);
    waiting_.pop_front();
  }
  return step_tokens_;
}

void RequestQueue::end_step(std::int64_t now_ns) {
  tokens_ += step_tokens_;
  std::vector<Running> still;
  for (Running& request : running_) {
    request.left -= request.prompted;
    request.prompted = true;
    if (request.left > 0) {
      still.push_back(request);
      continue;
    }
    latency_us_.push_back(static_cast<double>(now_ns - request.arrival_ns) * 1e-3);
    if (more_ > 0) {
      --more_;
      waiting_.push_back(now_ns);
    }
  }
  running_ = std::move(still);
}

}  // namespace moetax::cli
