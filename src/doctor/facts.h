// What is known, put together from all inputs, each with the place where it is written.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "doctor/log.h"
#include "doctor/measured.h"
#include "doctor/settings.h"
#include "moetax/base/result.h"
#include "moetax/doctor/finding.h"
#include "moetax/machine/flight_dump.h"
#include "moetax/machine/nccl_inspector.h"
#include "moetax/machine/nccl_log.h"
#include "moetax/machine/nccl_tests.h"
#include "moetax/machine/nvbandwidth.h"
#include "moetax/machine/topology.h"
#include "moetax/route/load_file.h"
#include "moetax/trace/nsight_table.h"

namespace moetax::doctor {

template <class T>
struct Known {
  T value{};
  Evidence at;
};
template <class T>
using Maybe = std::optional<Known<T>>;

// Sizes are 0 where unknown.
struct ModelFacts {
  std::string name, model_type, dtype;
  Evidence at;
  std::int64_t hidden = 0, inter = 0, shared_inter = 0;
  int experts = 0, topk = 0, layers = 0, moe_layers = 0;
  double total_elements = 0, active_elements = 0;
  Settings settings;  // all keys of its config.json
};

enum class Phase : std::uint8_t { kUnknown, kTraining, kInference };

struct JobFacts {
  std::string engine;   // megatron, deepspeed, accelerate, torchtitan, transformers, vllm, sglang, trtllm, verl,
                        // llama.cpp, automodel; empty: unknown
  Evidence at;          // where the job starts
  std::string command;  // that starts it, its words parted by blanks; empty: only configurations are known
  Phase phase = Phase::kUnknown;
  Settings settings;
  Settings variables;  // of the script around it
  Maybe<int> tp, pp, dp, ep, etp, cp, nodes, gpus_per_node, world;
  Maybe<std::int64_t> micro_batch, seq_len;
  Maybe<std::string> dispatcher;  // alltoall, allgather, deepep, ...
  std::vector<std::string> files;

  // GPUs in a row that one EP group lies on, and nodes it touches; nothing when unknown.
  std::optional<int> ep_span() const;
  std::optional<int> ep_nodes() const;
  bool is(std::string_view name) const { return engine == name; }
};

struct LoadFacts {
  std::string file;
  int experts = 0;
  bool all_listed = false;  // every expert has a row in each layer, or the model says how many there are
  std::vector<ExpertCounts> layers;
};

struct TopologyFacts {
  std::string file;
  Topology topology;
};

struct NcclLogFacts {
  std::string file;
  NcclLog log;
};

struct BandwidthFacts {
  std::string file;
  NcclTestsTable table;
};

struct FlightFacts {
  std::string file;
  FlightDump dump;
};

struct InspectorFacts {
  std::string file;
  InspectorDump dump;
};

struct HostLinkFacts {
  std::string file;
  Nvbandwidth measured;
};

struct KernelTableFacts {
  std::string file;
  NsightTable table;
};

struct GpuFacts {
  std::string name;
  double memory_gib = 0;   // 0: there are several
  double bf16_tflops = 0;  // dense
};

struct BillFacts {
  std::string file;
  double step_us = 0, tax_share = 0;
  std::optional<double> wait_us, rank_max_over_mean, expert_max_over_mean;
  std::optional<double> compute_us, exposed_us, hidden_us;
  bool from_traces = false;  // of a job, by moetax analyze
  struct Wait {
    int rank = 0, late = -1;
    double us = 0;
    std::string cause, cause_text;
  };
  std::vector<Wait> waits;
  std::vector<Finding> findings;
};

// One job and all that belongs to it.
struct Facts {
  JobFacts job;
  const ModelFacts* model = nullptr;
  const LogFacts* log = nullptr;  // never null in a rule
  const std::vector<LoadFacts>* loads = nullptr;
  const std::vector<BillFacts>* bills = nullptr;
  const std::vector<TopologyFacts>* topologies = nullptr;
  const std::vector<NcclLogFacts>* nccl_logs = nullptr;
  const std::vector<BandwidthFacts>* bandwidths = nullptr;
  const std::vector<FlightFacts>* flights = nullptr;
  const std::vector<InspectorFacts>* inspectors = nullptr;
  const std::vector<HostLinkFacts>* host_links = nullptr;
  const std::vector<KernelTableFacts>* kernel_tables = nullptr;
  const MeasuredFacts* measured = nullptr;
  Maybe<GpuFacts> gpu;

  // Views that are empty where there is nothing.
  std::span<const LoadFacts> all_loads() const { return loads ? std::span(*loads) : std::span<const LoadFacts>(); }
  std::span<const TopologyFacts> all_topologies() const {
    return topologies ? std::span(*topologies) : std::span<const TopologyFacts>();
  }
  std::span<const NcclLogFacts> all_nccl_logs() const {
    return nccl_logs ? std::span(*nccl_logs) : std::span<const NcclLogFacts>();
  }
  std::span<const BandwidthFacts> all_bandwidths() const {
    return bandwidths ? std::span(*bandwidths) : std::span<const BandwidthFacts>();
  }
  std::span<const FlightFacts> all_flights() const {
    return flights ? std::span(*flights) : std::span<const FlightFacts>();
  }
  std::span<const InspectorFacts> all_inspectors() const {
    return inspectors ? std::span(*inspectors) : std::span<const InspectorFacts>();
  }
  std::span<const HostLinkFacts> all_host_links() const {
    return host_links ? std::span(*host_links) : std::span<const HostLinkFacts>();
  }
  std::span<const KernelTableFacts> all_kernel_tables() const {
    return kernel_tables ? std::span(*kernel_tables) : std::span<const KernelTableFacts>();
  }
  // GB/s from the host to its slowest GPU, as measured. 0: unknown.
  double host_gbs() const;
  // GB/s that one rank can send to other nodes: measured, or its share of the adapters a topology lists. 0: unknown.
  double node_gbs() const;
  std::span<const BillFacts> all_bills() const { return bills ? std::span(*bills) : std::span<const BillFacts>(); }
};

// Unknown sizes count as 1; at most a thousand million.
int product(std::initializer_list<Maybe<int>> sizes);

// What the sizes of a job follow from its settings.
void derive_job(JobFacts& job);

// Models
// ---------------------------------------------------------------------------------------------------------------

// From a config.json; nothing with the reason when it cannot be read.
Result<ModelFacts> read_model(std::string_view text, const std::string& file);
// From flags of a job that describe one (Megatron), or the name it gives of a published one.
std::optional<ModelFacts> model_of_job(const JobFacts& job);

Result<LoadFacts> read_load(std::string_view text, const std::string& file, int experts_of_model);
// The first GPU that `text` names: "NVIDIA H100", "xpu_spec.model: nvidia_a100".
std::optional<GpuFacts> find_gpu(std::string_view text);
Result<BillFacts> read_bill(std::string_view text, const std::string& file);

// One line for people: "megatron, TP 2, EP 64, ...".
std::string describe(const JobFacts& job);
std::string describe(const ModelFacts& model);
std::string describe(const Topology& topology);
std::string describe(const NcclLog& log);
std::string describe(const FlightDump& dump);
std::string describe(const InspectorDump& dump);
std::string describe(const Nvbandwidth& measured);

}  // namespace moetax::doctor
