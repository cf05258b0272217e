// The sizes of a job: every engine's names for them, and what each engine makes of what is not said.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "doctor/facts.h"

namespace moetax::doctor {
namespace {

struct Engine {
  std::string_view name;
  std::string_view word;  // in the command that starts it
  Phase phase;
};

// The first whose word is in the command.
constexpr std::array kEngines = {
    Engine{"verl", "verl.trainer", Phase::kTraining},
    Engine{"openrlhf", "openrlhf", Phase::kTraining},
    Engine{"vllm", "vllm", Phase::kInference},
    Engine{"sglang", "sglang", Phase::kInference},
    Engine{"trtllm", "trtllm", Phase::kInference},
    Engine{"trtllm", "tensorrt_llm", Phase::kInference},
    Engine{"llama.cpp", "llama-server", Phase::kInference},
    Engine{"llama.cpp", "llama-cli", Phase::kInference},
    Engine{"llama.cpp", "llama-bench", Phase::kInference},
    Engine{"torchtitan", "torchtitan", Phase::kTraining},
    Engine{"automodel", "automodel", Phase::kTraining},
    Engine{"axolotl", "axolotl", Phase::kTraining},
    Engine{"llamafactory", "llamafactory", Phase::kTraining},
    Engine{"deepspeed", "deepspeed", Phase::kTraining},
    Engine{"accelerate", "accelerate", Phase::kTraining},
};

// Settings that only one engine has.
struct Sign {
  std::string_view name;
  std::string_view engine;
};
constexpr std::array kSigns = {
    Sign{"expert_model_parallel_size", "megatron"},
    Sign{"tensor_model_parallel_size", "megatron"},
    Sign{"pipeline_model_parallel_size", "megatron"},
    Sign{"moe_router_load_balancing_type", "megatron"},
    Sign{"recompute_granularity", "megatron"},
    Sign{"pipeline_model_parallel_layout", "megatron"},
    Sign{"moe_grouped_gemm", "megatron"},
    Sign{"parallelism.expert_parallel_degree", "torchtitan"},
    Sign{"parallelism.data_parallel_shard_degree", "torchtitan"},
    Sign{"zero_optimization.stage", "deepspeed"},
    Sign{"deepspeed_config.zero_stage", "accelerate"},
    Sign{"zero_stage", "accelerate"},
    Sign{"ep_world_size", "deepspeed"},
};

void find_engine(JobFacts& job) {
  for (const Engine& engine : kEngines) {
    if (!contains(job.command, engine.word)) continue;
    job.engine = engine.name;
    job.phase = engine.phase;
    break;
  }
  // What is started by a general launcher is told by its flags.
  if (!job.engine.empty() && !job.is("deepspeed") && !job.is("accelerate")) return;
  for (const Sign& sign : kSigns) {
    const Setting* setting = job.settings.find({sign.name});
    if (!setting) continue;
    if (job.engine.empty() || sign.engine == "megatron") job.engine = sign.engine;
    job.phase = Phase::kTraining;
    if (job.at.file.empty()) job.at = setting->at;
    break;
  }
  if (job.engine.empty() && job.settings.find({"Model_executor.framework.name"})) {
    const std::string name = *job.settings.word({"Model_executor.framework.name"});
    job.engine = name.substr(0, name.find('-'));
  }
}

void read_phase(JobFacts& job) {
  const auto phase = job.settings.word({"phase"});
  if (phase && contains(*phase, "infer")) job.phase = Phase::kInference;
  if (phase && contains(*phase, "train")) job.phase = Phase::kTraining;
  if (job.settings.on({"do_eval", "eval_only", "inference"}) && !job.settings.on({"do_train"}) &&
      job.settings.flag({"do_train", "eval_only", "inference"})) {
    job.phase = Phase::kInference;
  }
}

Maybe<int> size_of(const Settings& settings, Settings::Names names) {
  const Setting* setting = settings.find(names);
  const auto value = settings.whole(names);
  if (!setting || !value || *value < 1 || *value > 20'000) return std::nullopt;
  return Known<int>{static_cast<int>(*value), setting->at};
}

Maybe<std::int64_t> large_size_of(const Settings& settings, Settings::Names names) {
  const Setting* setting = settings.find(names);
  const auto value = settings.whole(names);
  if (!setting || !value || *value < 1) return std::nullopt;
  return Known<std::int64_t>{*value, setting->at};
}

void read_sizes(JobFacts& job) {
  const Settings& s = job.settings;
  job.tp = size_of(s, {"tensor_model_parallel_size", "tensor_parallel_size", "tensor_parallel_degree", "tp_size", "tp",
                       "TP", "TP_SIZE", "model_plan_parallelization.tp"});
  job.pp = size_of(s, {"pipeline_model_parallel_size", "pipeline_parallel_size", "pipeline_parallel_degree", "pp_size",
                       "pp", "PP", "PP_SIZE"});
  job.ep = size_of(s, {"expert_model_parallel_size", "expert_parallel_size", "expert_parallel_degree", "ep_size",
                       "ep_world_size", "moe_expert_parallel_size", "moe_ep_size", "ep", "EP", "EP_SIZE"});
  job.etp = size_of(s, {"expert_tensor_parallel_size", "expert_tensor_parallel_degree", "etp_size", "etp", "ETP"});
  job.cp = size_of(s, {"context_parallel_size", "context_parallel_degree", "cp_size", "cp", "CP"});
  job.dp = size_of(s, {"data_parallel_size", "data_parallel_shard_degree", "dp_size", "dp", "DP", "dp_shard"});
  job.nodes = size_of(s, {"nnodes", "num_nodes", "num_machines", "nodes", "NNODES", "NUM_NODES", "SLURM_NNODES",
                          "SLURM_JOB_NUM_NODES", "N"});
  job.gpus_per_node = size_of(s, {"nproc_per_node", "gpus_per_node", "n_gpus_per_node", "num_gpus", "GPUS_PER_NODE",
                                  "count_per_node", "ntasks_per_node"});
  job.world = size_of(s, {"num_processes", "world_size", "WORLD_SIZE", "total_count", "np", "ntasks"});
  job.micro_batch = large_size_of(s, {"micro_batch_size", "per_device_train_batch_size", "local_batch_size", "MBS",
                                      "train_micro_batch_size_per_gpu"});
  job.seq_len = large_size_of(s, {"seq_length", "seq_len", "max_seq_length", "max_length", "cutoff_len", "SEQ_LEN",
                                  "sequence_len", "max_seq_len"});
}

// What engines do where nothing is said.
void fill_gaps(JobFacts& job) {
  const Settings& s = job.settings;
  const auto derived = [&](int value, const Evidence& at) { return Known<int>{value, at}; };
  if (job.is("vllm")) {
    // vLLM has no size of its own for it: the experts are spread over all ranks of tensor and data parallelism.
    if (!job.command.empty()) job.ep.reset();
    if (const Setting* flag = s.find({"enable_expert_parallel"}); flag && s.on({"enable_expert_parallel"})) {
      const bool tp_unknown = s.find({"tensor_parallel_size", "tp"}) && !job.tp;
      const bool dp_unknown = s.find({"data_parallel_size", "dp"}) && !job.dp;
      if (!tp_unknown && !dp_unknown) {
        job.ep = derived((job.tp ? job.tp->value : 1) * (job.dp ? job.dp->value : 1), flag->at);
      }
    }
    if (!job.world && (job.tp || job.dp)) {
      const int size = product({job.tp, job.dp, job.pp});
      job.world = derived(size, job.tp ? job.tp->at : job.dp->at);
    }
  }
  // With DeepEP the experts of SGLang are spread over the tensor-parallel ranks.
  const auto backend = s.word({"moe_a2a_backend"});
  const bool deepep = s.on({"enable_deepep_moe"}) || (backend && *backend == "deepep");
  if (job.is("sglang") && !job.ep && job.tp && (deepep || s.on({"enable_ep_moe"}))) job.ep = job.tp;
  // Attention's data parallelism divides the same ranks.
  if (job.is("sglang") && !job.world && job.tp) job.world = derived(product({job.tp, job.pp}), job.tp->at);
  if (!job.nodes && (job.is("sglang") || contains(job.command, "torchrun") || contains(job.command, "accelerate"))) {
    if (!s.find({"nnodes", "num_machines", "NNODES", "hostfile"}) && !s.find({"SLURM_NNODES", "nodes"})) {
      job.nodes = derived(1, job.at);
    }
  }
  if (!job.world && job.nodes && job.gpus_per_node) {
    job.world = derived(job.nodes->value * job.gpus_per_node->value, job.gpus_per_node->at);
  }
  if (!job.gpus_per_node && job.world && job.nodes && job.world->value % job.nodes->value == 0) {
    job.gpus_per_node = derived(job.world->value / job.nodes->value, job.world->at);
  }
  if (!job.nodes && job.world && job.gpus_per_node) {
    job.nodes = derived((job.world->value + job.gpus_per_node->value - 1) / job.gpus_per_node->value, job.world->at);
  }
}

void read_dispatcher(JobFacts& job) {
  const Settings& s = job.settings;
  if (const Setting* flag = s.find({"enable_deepep_moe", "moe_enable_deepep", "enable_deepep"});
      flag && s.on({"enable_deepep_moe", "moe_enable_deepep", "enable_deepep"})) {
    job.dispatcher = Known<std::string>{"deepep", flag->at};
    return;
  }
  const Settings::Names kNames = {"moe_a2a_backend",
                                  "moe_token_dispatcher_type",
                                  "all2all_backend",
                                  "VLLM_ALL2ALL_BACKEND",
                                  "MOE_TOKEN_DISPATCHER",
                                  "dispatcher",
                                  "expert_parallel_comm_backend"};
  const Setting* setting = s.find(kNames);
  if (!setting) return;
  const auto value = s.word(kNames);
  if (!value || value->empty() || value->find("${") != std::string::npos) return;
  std::string name = *value;
  const auto flex = s.word({"moe_flex_dispatcher_backend"});
  if (name == "flex") name = flex ? *flex : "deepep";
  if (name.starts_with("deepep")) name = "deepep";
  job.dispatcher = Known<std::string>{name, setting->at};
}

}  // namespace

std::optional<int> JobFacts::ep_span() const {
  if (!ep) return std::nullopt;
  if (etp) return ep->value * etp->value;
  // Megatron cuts each expert as it cuts everything else, unless told otherwise.
  if (is("megatron")) {
    if (settings.find({"expert_tensor_parallel_size"})) return std::nullopt;  // said, and not known
    if (settings.find({"tensor_model_parallel_size"}) && !tp) return std::nullopt;
    return ep->value * (tp ? tp->value : 1);
  }
  return ep->value;
}

std::optional<int> JobFacts::ep_nodes() const {
  const auto span = ep_span();
  if (!span) return std::nullopt;
  if (nodes && nodes->value == 1) return 1;
  if (!gpus_per_node) return std::nullopt;
  return (*span + gpus_per_node->value - 1) / gpus_per_node->value;
}

void derive_job(JobFacts& job) {
  find_engine(job);
  read_phase(job);
  read_sizes(job);
  fill_gaps(job);
  read_dispatcher(job);
}

int product(std::initializer_list<Maybe<int>> sizes) {
  constexpr long long kMost = 1'000'000'000;
  long long all = 1;
  for (const Maybe<int>& size : sizes) all = std::min(kMost, all * (size ? size->value : 1));
  return static_cast<int>(all);
}

std::string describe(const JobFacts& job) {
  std::string text = job.engine.empty() ? "a job" : job.engine;
  const auto add = [&](std::string_view name, const Maybe<int>& size) {
    if (size) text += fmt::format(", {} {}", name, size->value);
  };
  add("TP", job.tp);
  add("PP", job.pp);
  add("DP", job.dp);
  add("EP", job.ep);
  add("ETP", job.etp);
  add("CP", job.cp);
  if (job.nodes && job.gpus_per_node) {
    text += fmt::format(", {} node{} of {} GPUs", job.nodes->value, job.nodes->value == 1 ? "" : "s",
                        job.gpus_per_node->value);
  } else {
    add("nodes", job.nodes);
    add("ranks", job.world);
  }
  const bool eager = job.settings.on({"enforce_eager", "disable_cuda_graph"});
  if (job.phase == Phase::kInference && !job.command.empty()) text += eager ? ", graphs off" : ", graphs on";
  if (job.dispatcher) text += fmt::format(", exchange {}", job.dispatcher->value);
  return text;
}

}  // namespace moetax::doctor
