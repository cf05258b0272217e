#include "moetax/layer/expert_parallel.h"

#include <fmt/format.h>

namespace moetax {
namespace {

// A group of its own even when it holds all ranks: exchanges number their flags, and `world` belongs to the
// collectives.
Result<std::unique_ptr<Communicator>> split(Communicator& world, int color, const ExpertParallelOptions& options) {
  return world.split(color, Deadline::in_seconds(options.deadline_s));
}

Result<std::unique_ptr<Collectives>> collectives_over(Communicator& group, const ExpertParallelOptions& options) {
  MOETAX_ASSIGN(Collectives made, Collectives::create(group, Deadline::in_seconds(options.deadline_s)));
  return std::make_unique<Collectives>(std::move(made));
}

}  // namespace

Result<ExpertParallel> ExpertParallel::create(Communicator& world, const ExpertParallelOptions& options) {
  ExpertParallel parallel;
  parallel.options_ = options;
  parallel.world_ = &world;
  MOETAX_ASSIGN(parallel.world_collectives_, collectives_over(world, options));
  MOETAX_TRY(parallel.world_collectives_->agree(
      "the layer's group",
      fmt::format("H={} E={} K={} {} ep_size={} in_flight={} overlap={}", options.hidden, options.experts, options.topk,
                  to_string(options.dtype), options.ep_size, options.in_flight, options.overlap),
      Deadline::in_seconds(options.deadline_s)));
  if (options.overlap < 1 || options.overlap > 64) {
    return fail(ErrorCode::kUsage, fmt::format("overlap = {}, possible are 1 to 64 parts", options.overlap));
  }
  const int ep_size = options.ep_size > 0 ? options.ep_size : world.size();
  if (world.size() % ep_size != 0) {
    return fail(ErrorCode::kUsage,
                fmt::format("an expert-parallel size of {} does not divide {} ranks", ep_size, world.size()));
  }
  parallel.options_.ep_size = ep_size;
  parallel.replicas_ = world.size() / ep_size;
  parallel.ep_rank_ = world.rank() % ep_size;
  MOETAX_ASSIGN(parallel.ep_group_, split(world, world.rank() / ep_size, options));
  if (parallel.replicas_ > 1) {
    MOETAX_ASSIGN(parallel.replica_group_, split(world, parallel.ep_rank_, options));
    MOETAX_ASSIGN(parallel.replica_collectives_, collectives_over(*parallel.replica_group_, options));
  }
  const bool overlaps = options.overlap > 1;
  if (overlaps && !world.any_thread()) {
    return fail(ErrorCode::kUsage,
                "overlap needs an MPI that takes calls from any thread, one at a time: MPI_Init_thread with "
                "MPI_THREAD_SERIALIZED");
  }
  if (overlaps) parallel.queue_ = std::make_unique<ExchangeQueue>(options.observer);
  Observer* observer = overlaps ? static_cast<Observer*>(parallel.queue_.get()) : options.observer;
  MOETAX_ASSIGN(Exchange exchange, Exchange::create(*parallel.ep_group_, {.max_tokens = options.max_tokens,
                                                                          .hidden = options.hidden,
                                                                          .experts = options.experts,
                                                                          .topk = options.topk,
                                                                          .dtype = options.dtype,
                                                                          .in_flight = overlaps ? 2 : options.in_flight,
                                                                          .threads = overlaps ? 1 : options.threads,
                                                                          .algorithm = options.algorithm,
                                                                          .fp32_sums = options.fp32_sums,
                                                                          .deadline_s = options.deadline_s,
                                                                          .observer = observer}));
  parallel.exchange_ = std::make_unique<Exchange>(std::move(exchange));
  return parallel;
}

}  // namespace moetax
