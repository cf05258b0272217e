// The groups of ranks that layers work in, and the exchange they share.
#pragma once

#include <cstdint>
#include <memory>

#include "moetax/base/observer.h"
#include "moetax/base/result.h"
#include "moetax/exchange/exchange.h"
#include "moetax/exchange/exchange_queue.h"
#include "moetax/transport/collectives.h"
#include "moetax/transport/communicator.h"

namespace moetax {

struct ExpertParallelOptions {
  std::int64_t max_tokens = 0;  // of this rank and call; ranks may differ
  std::int64_t hidden = 0;      // H
  int experts = 0;              // E
  int topk = 0;                 // K
  DType dtype = DType::kBf16;
  int ep_size = 0;  // ranks per replica; 0: all
  // Parts that a forward without a backward cuts its tokens into, the same on all ranks: the exchange of one runs
  // beside the experts of another, in a thread of its own. Above 1 the exchange belongs to queue(), and nothing goes
  // backward.
  int overlap = 1;
  int in_flight = 1;  // dispatches that may be open at once; 2 for layers that recompute activations
  int threads = 1;    // of this rank
  ExchangeAlgorithm algorithm = ExchangeAlgorithm::kFlat;  // between nodes
  bool fp32_sums = false;                                  // of two-level, see ExchangeOptions
  double deadline_s = 10;
  Observer* observer = nullptr;  // may be null; must outlive this
};

// A world of R ranks is R / ep_size replicas of ep_size ranks each. Rank r exchanges tokens with the ranks of its own
// replica (r / ep_size) and holds the r % ep_size-th block of the experts, as do its counterparts in the other
// replicas. Layers of the same shape share one ExpertParallel: they run one after the other, so one set of buffers
// serves all.
class ExpertParallel {
 public:
  // Collective over `world`, which must outlive this.
  // kUsage: ep_size does not divide the number of ranks. kPeerFailed: ranks disagree on a size.
  static Result<ExpertParallel> create(Communicator& world, const ExpertParallelOptions& options);

  const ExpertParallelOptions& options() const { return options_; }
  Exchange& exchange() { return *exchange_; }
  ExchangeQueue* queue() { return queue_.get(); }  // null without overlap
  const ExpertPlacement& placement() const { return exchange_->placement(); }
  Rank ep_rank() const { return ep_rank_; }  // which block of experts this rank holds
  int replicas() const { return replicas_; }

  Collectives& over_world() { return *world_collectives_; }
  // Over the ranks that hold the same experts; only when replicas() > 1.
  Collectives& over_replicas() { return *replica_collectives_; }
  Communicator& world() { return *world_; }

 private:
  ExpertParallel() = default;

  ExpertParallelOptions options_;
  Communicator* world_ = nullptr;
  Rank ep_rank_ = 0;
  int replicas_ = 1;
  // Members are destroyed in reverse: what uses a communicator goes before it.
  std::unique_ptr<Communicator> ep_group_, replica_group_;
  std::unique_ptr<Collectives> world_collectives_, replica_collectives_;
  std::unique_ptr<ExchangeQueue> queue_;  // what the exchange reports to
  std::unique_ptr<Exchange> exchange_;
};

}  // namespace moetax
