#include "doctor/recognise.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "doctor/readers.h"
#include "moetax/base/text.h"
#include "moetax/machine/flight_dump.h"
#include "moetax/machine/nccl_inspector.h"
#include "moetax/machine/nvbandwidth.h"
#include "moetax/trace/nsight_table.h"

namespace moetax::doctor {
namespace {

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}
template <std::size_t N>
bool has_any(std::string_view text, const std::array<std::string_view, N>& parts) {
  return std::any_of(parts.begin(), parts.end(), [&](std::string_view part) { return has(text, part); });
}

// Keys that only one kind of JSON has.
constexpr std::array<std::string_view, 8> kModelKeys = {
    "\"num_experts\"",   "\"n_routed_experts\"",  "\"num_local_experts\"", "\"moe_num_experts\"",
    "\"architectures\"", "\"num_hidden_layers\"", "\"hidden_size\"",       "\"model_type\""};
constexpr std::array<std::string_view, 4> kExpertKeys = {"\"num_experts\"", "\"n_routed_experts\"",
                                                         "\"num_local_experts\"", "\"moe_num_experts\""};
constexpr std::array<std::string_view, 6> kDeepSpeedKeys = {"\"zero_optimization\"",
                                                            "\"train_micro_batch_size_per_gpu\"",
                                                            "\"train_batch_size\"",
                                                            "\"bf16\"",
                                                            "\"fp16\"",
                                                            "\"gradient_accumulation_steps\""};
constexpr std::array<std::string_view, 3> kTraceKeys = {"\"traceEvents\"", "\"schemaVersion\"", "\"deviceProperties\""};
constexpr std::array<std::string_view, 2> kRankKeys = {"\"missing_ranks\"", "\"collective_counts\""};

Recognised recognise_json(std::string_view text) {
  if (has(text, "moetax.bill/")) return {InputKind::kBill, {}};
  if (has(text, "moetax.machine/")) return {InputKind::kMachineCosts, {}};
  if (has(text, "moetax.findings/")) {
    return {InputKind::kUnknown, {"findings of moetax doctor: give what they were made from, or --baseline FILE"}};
  }
  if (has_any(text, kTraceKeys) || (has(text.substr(0, 4096), "\"ph\"") && has(text.substr(0, 4096), "\"ts\"")))
    return {InputKind::kTrace, {}};
  if (has_any(text, kRankKeys)) return {InputKind::kRanks, {}};
  if (has_any(text, kExpertKeys) && has_any(text, kModelKeys)) return {InputKind::kModelConfig, {}};
  if (has_any(text, kDeepSpeedKeys)) return {InputKind::kDeepSpeed, {}};
  if (has(text, "\"weight\"") && has(text, "[[")) return {InputKind::kLoad, {}};
  if (has_any(text, kModelKeys)) {
    return {InputKind::kUnknown, {"model configuration (none of the keys that count its experts is there)"}};
  }
  if (has(text, ":")) return {InputKind::kJobJson, {}};
  return {InputKind::kUnknown, {"DeepSpeed configuration (no zero_optimization)", "model configuration (no experts)"}};
}

constexpr std::array<std::string_view, 21> kLaunchWords = {"axolotl train ",
                                                           "python -m ",
                                                           "python3 -m ",
                                                           "llamafactory-cli ",
                                                           "trtllm-serve ",
                                                           "torchrun ",
                                                           "deepspeed ",
                                                           "accelerate launch",
                                                           "vllm serve",
                                                           "-m vllm.entrypoints",
                                                           "sglang.launch_server",
                                                           "torch.distributed",
                                                           "llama-server",
                                                           "llama-cli",
                                                           "srun ",
                                                           "mpirun ",
                                                           "--expert-parallel",
                                                           "--ep-size",
                                                           "--tensor-parallel",
                                                           "--expert-model-parallel-size",
                                                           "sbatch"};

bool is_script(std::string_view text) {
  if (text.starts_with("#!") && has(text.substr(0, text.find('\n')), "sh")) return true;
  if (!has_any(text, kLaunchWords)) return false;
  // A log can hold a command too; a script is made of commands.
  for (const std::string_view line : split_lines(text)) {
    const std::string_view shown = trim(line);
    if (shown.empty() || shown.starts_with("#")) continue;
    const std::string_view first = shown.substr(0, shown.find_first_of(" \t="));
    if (first.starts_with("[") || first.ends_with(":") || has(first, "[")) return false;
    return std::any_of(first.begin(), first.end(), [](char c) { return std::isalpha(static_cast<unsigned char>(c)); });
  }
  return false;
}

struct LineCounts {
  int lines = 0, yaml = 0, toml = 0, section = 0, environment = 0, csv = 0, tabs = 0;
};

bool is_key(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.' || c == '"';
  });
}

// "key: value". What a logger puts before its lines looks the same.
bool is_mapping(std::string_view line) {
  constexpr std::array<std::string_view, 6> kLevels = {"INFO", "WARN", "WARNING", "ERROR", "DEBUG", "RuntimeError"};
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos) return false;
  const std::string_view key = line.substr(0, colon);
  const bool ends = colon + 1 == line.size() || line[colon + 1] == ' ';
  return ends && is_key(key) && std::find(kLevels.begin(), kLevels.end(), key) == kLevels.end();
}

bool is_csv_row(std::string_view line) {
  if (std::count(line.begin(), line.end(), ',') != 2) return false;
  return std::all_of(line.begin(), line.end(), [](char c) {
    return std::isdigit(static_cast<unsigned char>(c)) || c == ',' || c == '.' || c == ' ' || c == '\r';
  });
}

// Of the first lines: enough to tell.
LineCounts count_lines(std::string_view text) {
  LineCounts counts;
  for (const std::string_view raw : split_lines(text.substr(0, 32768))) {
    const std::string_view line = trim(raw);
    if (line.empty() || line.starts_with("#")) continue;
    ++counts.lines;
    const std::size_t equals = line.find('=');
    const bool mapped = is_mapping(line.starts_with("- ") ? line.substr(2) : line);
    counts.yaml += mapped || line.starts_with("- ") ? 1 : 0;
    counts.section += line.front() == '[' && line.back() == ']' && is_key(line.substr(1, line.size() - 2)) ? 1 : 0;
    const bool assigned = equals != std::string_view::npos && is_key(trim(line.substr(0, equals)));
    counts.toml += assigned ? 1 : 0;
    counts.environment += assigned && equals + 1 < line.size() && line[equals - (equals > 0 ? 1 : 0)] != ' ' ? 1 : 0;
    counts.csv += is_csv_row(line) ? 1 : 0;
    counts.tabs += has(line, "\t") && std::isdigit(static_cast<unsigned char>(line.front())) ? 1 : 0;
  }
  return counts;
}

// A matrix whose header names devices.
bool is_topology(std::string_view text) {
  if (has(text, "<system") || has(text, "<graphs") || has(text, "<topology")) return true;
  for (const std::string_view line : split_lines(text)) {
    const std::string_view shown = trim(line);
    if ((shown.starts_with("GPU0") || shown.starts_with("\x1b[4mGPU0")) && has(shown, "GPU1")) return true;
  }
  return has(text, "Weight between two GPUs") || has(text, "Link Type between two GPUs");
}

constexpr std::array<std::string_view, 15> kLogWords = {"tokens per second",
                                                        "port_xmit_data",
                                                        "shmem_put_bw",
                                                        "Traceback (most recent",
                                                        "Error",
                                                        "WARN",
                                                        "INFO",
                                                        "timeout",
                                                        "Timeout",
                                                        "timed out",
                                                        "out of memory",
                                                        "iteration ",
                                                        "throughput",
                                                        "step",
                                                        "failed"};

Recognised recognise_text(std::string_view text) {
  if (is_topology(text)) return {InputKind::kTopology, {}};
  if (has(text, "# nThread") || (has(text, "algbw") && has(text, "busbw"))) return {InputKind::kBandwidth, {}};
  if (looks_like_nsight_table(text)) return {InputKind::kKernels, {}};
  if (looks_like_nvbandwidth(text)) return {InputKind::kHostLink, {}};
  if (has(text, "NCCL INFO")) return {InputKind::kNcclLog, {}};
  if (has(text, "RAS client status") || has(text, "Job summary") || has(text, "missing_ranks")) {
    return {InputKind::kRanks, {}};
  }
  if (has(text, "load_tensors: ") || has(text, "llama_model_loader: "))
    return {InputKind::kLog, {}};  // looks like YAML
  if (is_script(text)) return {InputKind::kScript, {}};
  const LineCounts counts = count_lines(text);
  if (has(text.substr(0, 200), "layer_id,expert_id") || (counts.tabs > 0 && counts.tabs == counts.lines) ||
      (counts.csv > 0 && counts.csv + 1 >= counts.lines)) {
    return {InputKind::kLoad, {}};
  }
  if (counts.section > 0 && counts.toml + counts.section == counts.lines) return {InputKind::kJobToml, {}};
  if (counts.environment > 0 && counts.environment == counts.lines) return {InputKind::kEnvironment, {}};
  if (counts.yaml >= 1 && counts.yaml * 10 >= counts.lines * 7 && !has(text, "Error")) return {InputKind::kJobYaml, {}};
  if (counts.section > 0 && counts.toml > 0 && counts.toml + counts.section >= counts.lines - counts.lines / 10) {
    return {InputKind::kJobToml, {}};
  }
  if (has_any(text, kLogWords)) return {InputKind::kLog, {}};
  std::vector<std::string> nearest;
  if (counts.toml > 0) nearest.emplace_back("shell script (no command that starts a job)");
  if (counts.yaml > 0) nearest.emplace_back("YAML configuration (few of its lines are keys)");
  const std::string_view head = text.substr(0, text.find('\n'));
  if (counts.tabs > 0 || counts.csv > 0 || has(head, ",")) {
    nearest.emplace_back("expert load (columns layer_id, expert_id and count)");
  }
  if (has(head, ",")) nearest.emplace_back("kernel table of Nsight Systems (columns Total Time and Name)");
  if (text.starts_with("<")) nearest.emplace_back("topology as XML (no <system> of NCCL, no <topology> of lstopo)");
  if (text.starts_with("[")) nearest.emplace_back("JSON (a list without objects)");
  if (nearest.empty())
    nearest = {"log (no line of it says what happened)", "launch script (no command that starts a job)"};
  return {InputKind::kUnknown, nearest};
}

}  // namespace

const char* to_string(InputKind kind) {
  switch (kind) {
    case InputKind::kModelConfig:
      return "model configuration";
    case InputKind::kDeepSpeed:
      return "DeepSpeed configuration";
    case InputKind::kJobJson:
      return "JSON configuration";
    case InputKind::kJobYaml:
      return "YAML configuration";
    case InputKind::kJobToml:
      return "TOML configuration";
    case InputKind::kScript:
      return "launch script";
    case InputKind::kEnvironment:
      return "environment";
    case InputKind::kTopology:
      return "topology";
    case InputKind::kNcclLog:
      return "NCCL log";
    case InputKind::kBandwidth:
      return "bandwidth table";
    case InputKind::kRanks:
      return "dump of what ranks wait in";
    case InputKind::kFlightDump:
      return "flight recorder dump";
    case InputKind::kInspector:
      return "NCCL inspector dump";
    case InputKind::kHostLink:
      return "nvbandwidth output";
    case InputKind::kKernels:
      return "kernel table of Nsight Systems";
    case InputKind::kLoad:
      return "expert load";
    case InputKind::kBill:
      return "bill";
    case InputKind::kMachineCosts:
      return "measured links";
    case InputKind::kTrace:
      return "profiler trace";
    case InputKind::kLog:
      return "log";
    case InputKind::kUnknown:
      break;
  }
  return "of no known kind";
}

Recognised recognise(std::string_view text) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  if (trim(text).empty() || text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    return {InputKind::kUnknown, {"an empty file"}};
  }
  // Before what follows: they are also binary, JSON, or nearly JSON.
  if (looks_like_flight_dump(text)) return {InputKind::kFlightDump, {}};
  if (looks_like_nccl_inspector(text)) return {InputKind::kInspector, {}};
  if (text.starts_with("SQLite format 3")) return {InputKind::kTrace, {}};
  if (text.starts_with("PK\x03\x04")) return {InputKind::kUnknown, {"a zip archive: unpack it and give the folder"}};
  if (text.substr(0, 4096).find('\0') != std::string_view::npos) {
    return {InputKind::kUnknown, {"a binary file: the doctor reads text, JSON, YAML, TOML and XML"}};
  }
  const char first = text[text.find_first_not_of(" \t\r\n")];
  // A log line may begin with a bracket too.
  if (first == '{' || (first == '[' && (has(text.substr(0, 64), "{") || has(text.substr(0, 64), "[[")))) {
    return recognise_json(text);
  }
  return recognise_text(text);
}

}  // namespace moetax::doctor
