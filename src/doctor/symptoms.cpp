#include "moetax/doctor/symptom.h"

#include <algorithm>
#include <array>
#include <string>

#include "doctor/settings.h"

namespace moetax::doctor {
namespace {

// ---- training stops -------------------------------------------------------------------------------------------------

constexpr Cause kTrainingHangs[] = {
    {"ranks use different experts under ZeRO-3, so they gather different parameters",
     "watchdog lines of several ranks have the same SeqNum and different NumelIn; 'Invalidate trace cache' before; one "
     "GPU works",
     "zero3-expert-modules"},
    {"an expert-parallel rank got no tokens and skipped its experts, so its backward has fewer collectives",
     "the rank that is ahead has zero tokens in a layer (print tokens per rank); batches with little text trigger it",
     "zero-token-rank"},
    {"ranks have different numbers of batches, or only rank 0 runs an evaluation forward",
     "some ranks have left the loop or the program while others wait in an all-to-all; it happens at the end of an "
     "epoch "
     "or in evaluation",
     "rank-left"},
    {"one rank is somewhere else: in another group's collective, in code of the host, or gone",
     "dumps of the flight recorder of all ranks: one has not come to the number that the others wait in",
     "rank-behind"},
    {"capacity is computed from each rank's own tokens, so buffers of different size are exchanged",
     "drop_tokens is off, or padding differs from rank to rank; all ranks wait in the same all-to-all",
     "dynamic-capacity"},
    {"two communicators are in flight in an order that differs between ranks",
     "ranks wait in different operations (all-to-all here, reduce-scatter there); EP 1 works; it takes hundreds of "
     "steps",
     "collective-order"},
    {"adapters on expert layers communicate over the tensor-parallel group",
     "LoRA targets the experts' linear layers and expert tensor parallelism differs from tensor parallelism",
     "lora-expert-tp"},
};
constexpr const char* kCollectHang[] = {
    "the launch line and configurations; config.json",
    "TORCH_NCCL_TRACE_BUFFER_SIZE=20000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 and the dumps of all ranks, or ncclras",
    "the watchdog lines of every rank, not of the first only",
    "py-spy dump --pid of a rank that waits and of one that does not",
};

constexpr Cause kFirstStepHangs[] = {
    {"a process group makes its communicator on first use, when the model has filled the GPU's memory",
     "it is always the first optimizer step, without any message; memory is within a few GiB of the limit; "
     "NCCL_TIMEOUT "
     "does not cover it",
     "lazy-communicator"},
    {"ZeRO-3 with per-expert modules", "the forward of the first steps hangs too; watchdog lines after the time-out",
     "zero3-expert-modules"},
    {"a pipeline uses an all-to-all over all ranks, which other stages never enter",
     "tensor parallelism works, pipeline parallelism of 2 hangs at once", "pipeline-world-exchange"},
};

// ---- time-outs of a dispatch ----------------------------------------------------------------------------------------

constexpr Cause kDispatchTimeout[] = {
    {"kernels are being compiled on some ranks while others wait",
     "lines of DeepGEMM's warm-up just before; minutes of silence between two lines; the second start works",
     "jit-skew-timeout"},
    {"ranks do not issue the same number of dispatches: idle data-parallel ranks, graphs of other sizes",
     "one request hangs, many together work; it works with graphs off", "graph-dp-padding"},
    {"one rank died or ran out of memory first", "one rank's log has an error before the time-outs of the others",
     "oom-first"},
    {"more tokens than the low-latency buffer holds", "an assertion with num_max_dispatch_tokens_per_rank",
     "buffer-below-concurrency"},
    {"the network: GPU-initiated sends fell back to the CPU, or ranks share an adapter",
     "ibgda lines in the log; ib_write_bw or shmem_put_bw between the two hosts is low too", "gpu-send-fallback"},
};
constexpr const char* kCollectTimeout[] = {
    "the server's log of all nodes from its start, with times",
    "the launch line and environment of all nodes",
    "NCCL_DEBUG=INFO NVSHMEM_DEBUG=INFO of a start",
};

constexpr Cause kDecodeHangs[] = {
    {"data-parallel ranks replay graphs of different sizes", "one request hangs, many do not; capture sizes hold 1",
     "graph-dp-padding"},
    {"a collective between nodes is captured in a graph",
     "one request works, several stop within seconds; graphs off works", "graph-between-nodes"},
    {"in generate() the ranks that finished first leave the exchange",
     "outputs have different lengths; one rank is done", "generate-not-synced"},
};

// ---- slow -----------------------------------------------------------------------------------------------------------

constexpr Cause kSlowExchange[] = {
    {"traffic takes sockets instead of InfiniBand or RoCE", "NET/Socket in the NCCL log", "socket-transport"},
    {"several GPUs share one adapter", "fewer adapters than GPUs in the topology; bandwidth is NIC / GPUs",
     "nic-shared"},
    {"EP groups reach over nodes where a smaller group would do", "fast with EP inside a node", "ep-cross-node"},
    {"the exchange waits for a slow or overloaded rank, the wire is fine",
     "the bill's wait is larger than its wire; the last rank is always the same", "straggler"},
    {"routes collide (ECMP) or rails are crossed",
     "all-reduce is at its roof, all-to-all is not; two nodes are fast, four "
     "are not",
     "alltoall-below-allreduce"},
};
constexpr const char* kCollectSlow[] = {
    "nvidia-smi topo -m of each kind of node, or NCCL_TOPO_DUMP_FILE=topo.xml",
    "alltoall_perf and all_reduce_perf of nccl-tests with the same number of nodes, and the NIC's line rate",
    "a profile: moetax analyze splits the exchange into wire and waiting",
    "the expert load: layer_id,expert_id,count",
};

constexpr Cause kEpSlower[] = {
    {"the model fits without expert parallelism",
     "weights and cache of the model fit on one GPU or one tensor-parallel "
     "group",
     "ep-not-needed"},
    {"a backend for many nodes is used inside one", "DeepEP with EP up to 8 on one node", "deepep-single-node"},
    {"batches are small, so latency counts and not bandwidth", "concurrency below a few dozen requests", ""},
    {"the load is uneven and the hottest rank sets the pace", "rank max/mean of the load well above 1.2",
     "rank-imbalance"},
};

constexpr Cause kImbalanceNoGain[] = {
    {"the load is even over ranks already", "expert max/mean is high, rank max/mean is near 1", "eplb-no-gain"},
    {"experts are moved so often that moving eats the gain", "'rebalance' lines take seconds every few hundred steps",
     "eplb-too-often"},
    {"the slow rank is slow for another reason", "its waits remain with even load; its matrix products take longer",
     "straggler"},
};

// ---- memory, numbers ------------------------------------------------------------------------------------------------

constexpr Cause kOutOfMemory[] = {
    {"one rank receives far more tokens than the mean, early in training",
     "the rank differs from run to run; the load's rank "
     "max/mean is 3 and more; it passes after some hundred steps",
     "hot-rank-memory"},
    {"buffers of low-latency dispatch are sized for the worst case", "memory is gone before the first request",
     "buffer-below-concurrency"},
    {"another communicator is made when memory is full", "the message names NCCL or ncclCommInit", "lazy-communicator"},
};
constexpr const char* kCollectMemory[] = {
    "the first rank's error, and what nvidia-smi shows before",
    "the expert load of the first steps (layer_id,expert_id,count), the launch line and config.json",
};

constexpr Cause kRecompute[] = {
    {"the recomputation routes again and a near tie falls to the other side",
     "the shapes differ only in the first dimension, by a few rows", "recompute-rerouted"},
    {"the dispatch itself is in the recomputed region", "the number of tensors differs, or int64 index tensors do",
     "recompute-rerouted"},
    {"kernels before the router are not deterministic", "it happens with one GPU too; deterministic algorithms cure it",
     ""},
};
constexpr const char* kCollectNumbers[] = {
    "the whole error text with both shapes",
    "the launch line and configuration: recomputation, dispatcher, dtypes of model and router",
};

constexpr Cause kQuality[] = {
    {"router logits are stored in bf16 or fp16",
     "scores of the last chosen and the first left out nearly tie in many tokens", "router-low-precision"},
    {"the combine is quantised", "accuracy falls only with FP8 on the way back", "combine-fp8"},
    {"rollout and training engines route differently", "log-probabilities of the two drift apart, rewards collapse",
     "rollout-router-mismatch"},
    {"tokens are dropped at the capacity", "dropped tokens are counted in the log; a larger factor cures it",
     "capacity-drops"},
};

constexpr Symptom kSymptoms[] = {
    {"training hangs after some steps",
     "training hang hangs stuck stall watchdog nccl timeout allgather reduce step backward", kTrainingHangs,
     kCollectHang},
    {"hangs at the first optimizer step", "hang hangs first optimizer step silent deadlock start", kFirstStepHangs,
     kCollectHang},
    {"time-out in dispatch or combine", "timeout time-out dispatch combine deepep recv cpu", kDispatchTimeout,
     kCollectTimeout},
    {"decoding or generation hangs",
     "decode decoding generate generation hang hangs request concurrency graph evaluation", kDecodeHangs,
     kCollectTimeout},
    {"the all-to-all is slow", "slow alltoall all-to-all bandwidth low network busbw exchange nodes", kSlowExchange,
     kCollectSlow},
    {"expert parallelism is slower than without",
     "slower ep expert parallel parallelism tensor than without latency ttft", kEpSlower, kCollectSlow},
    {"balancing experts brings nothing", "eplb balance balancing imbalance load gain nothing rebalance",
     kImbalanceNoGain, kCollectSlow},
    {"out of memory", "oom out memory cuda allocate", kOutOfMemory, kCollectMemory},
    {"recomputed tensors differ",
     "recompute recomputed checkpointing checkpoint metadata shape saved tensors differ different", kRecompute,
     kCollectNumbers},
    {"quality is worse than it should be", "accuracy quality loss worse reward collapse numerics diverges logits",
     kQuality, kCollectNumbers},
};

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words(1);
  for (const char c : lower(text)) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (letter) words.back() += c;
    if (!letter && c != '-' && !words.back().empty()) words.emplace_back();
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

std::size_t shared_words(const std::vector<std::string>& asked, const Symptom& symptom) {
  const std::vector<std::string> has = words_of(symptom.words);
  return static_cast<std::size_t>(std::count_if(asked.begin(), asked.end(), [&](const std::string& word) {
    return std::find(has.begin(), has.end(), word) != has.end();
  }));
}

}  // namespace

std::span<const Symptom> symptoms() {
  return kSymptoms;
}

std::vector<const Symptom*> find_symptoms(std::string_view text) {
  const std::vector<std::string> asked = words_of(text);
  std::vector<std::pair<std::size_t, const Symptom*>> scored;
  for (const Symptom& symptom : kSymptoms) {
    if (const std::size_t shared = shared_words(asked, symptom)) scored.emplace_back(shared, &symptom);
  }
  std::stable_sort(scored.begin(), scored.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<const Symptom*> found;
  for (const auto& [score, symptom] : scored) {
    if (score == scored.front().first) found.push_back(symptom);
  }
  return found;
}

}  // namespace moetax::doctor
