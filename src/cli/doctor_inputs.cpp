#include "cli/doctor_inputs.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string_view>

#include "moetax/base/file.h"

namespace moetax::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kWholeBytes = std::size_t{64} << 20;  // up to here a file is read whole
constexpr std::size_t kAllBytes = std::size_t{1} << 30;     // of all files; as that fills up less is read of each
constexpr std::size_t kLeastBytes = std::size_t{1} << 18;
constexpr std::size_t kMaxFiles = 10'000;

std::size_t bytes_for_next(const DoctorInputs& inputs) {
  std::size_t held = 0;
  for (const doctor::Input& input : inputs.read) held += input.text.size();
  return std::clamp((kAllBytes - std::min(held, kAllBytes)) / 4, kLeastBytes, kWholeBytes);
}

void read_one(const std::string& path, DoctorInputs& inputs) {
  auto ends = read_text_ends(path, bytes_for_next(inputs));
  if (!ends) {
    std::string_view why = ends.error().message;
    if (why.starts_with(path)) why.remove_prefix(std::min(why.size(), path.size() + 2));
    inputs.unreadable.push_back({path, std::string(why)});
    return;
  }
  inputs.read.push_back({path == "/dev/stdin" ? "standard input" : path, std::move(ends->text), {}});
  if (ends->left_out_bytes > 0) {
    inputs.read.back().left_out =
        fmt::format("{} bytes in its middle were not read; beginning and end were", ends->left_out_bytes);
  }
  if (!ends->trouble.empty()) {
    std::string& left_out = inputs.read.back().left_out;
    left_out += (left_out.empty() ? "" : "; ") + ends->trouble;
  }
}

void read_folder(const std::string& folder, DoctorInputs& inputs) {
  std::vector<std::string> found;
  std::error_code error;
  for (auto it = fs::recursive_directory_iterator(folder, fs::directory_options::skip_permission_denied, error);
       !error && it != fs::recursive_directory_iterator() && found.size() < kMaxFiles; it.increment(error)) {
    std::error_code ignored;
    if (it->is_regular_file(ignored) && !it->path().filename().string().starts_with(".")) {
      found.push_back(it->path().string());
    }
  }
  if (error) inputs.unreadable.push_back({folder, error.message()});
  if (found.size() == kMaxFiles) {
    inputs.unreadable.push_back({folder, fmt::format("more than {} files, the others were not read", kMaxFiles)});
  }
  std::sort(found.begin(), found.end());
  for (const std::string& path : found) read_one(path, inputs);
}

// ---- this machine ---------------------------------------------------------------------------------------------------

// Only what steers communication: an environment holds secrets too.
bool of_interest(std::string_view name) {
  for (const std::string_view prefix :
       {"NCCL_", "RCCL_", "NVSHMEM_", "UCX_", "FI_", "CUDA_", "HIP_", "OMP_", "TORCH_NCCL_", "SGLANG_DEEPEP",
        "SGLANG_JIT", "VLLM_ALL2ALL", "DEEP_EP", "OMPI_MCA_", "WORLD_SIZE", "NNODES", "SLURM_NNODES", "PYTORCH_"}) {
    if (name.starts_with(prefix)) return true;
  }
  return false;
}

std::string environment_text() {
  std::string text;
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string_view line(*entry);
    if (of_interest(line.substr(0, line.find('=')))) text += std::string(line) + "\n";
  }
  struct statvfs shm {};
  if (statvfs("/dev/shm", &shm) == 0) {
    text += fmt::format("DEV_SHM_BYTES={}\n", static_cast<unsigned long long>(shm.f_blocks) * shm.f_frsize);
  }
  struct rlimit locked {};
  if (getrlimit(RLIMIT_MEMLOCK, &locked) == 0) {
    text += locked.rlim_cur == RLIM_INFINITY ? "LOCKED_MEMORY_BYTES=unlimited\n"
                                             : fmt::format("LOCKED_MEMORY_BYTES={}\n", locked.rlim_cur);
  }
  return text;
}

// The output of a tool, nothing when it is not there or fails.
std::string output_of(const char* command) {
  std::string text;
  std::FILE* pipe = popen(fmt::format("{} 2>/dev/null", command).c_str(), "r");
  if (!pipe) return text;
  char buffer[4096];
  std::size_t got = 0;
  while (text.size() < kWholeBytes && (got = std::fread(buffer, 1, sizeof buffer, pipe)) > 0) text.append(buffer, got);
  return pclose(pipe) == 0 ? text : "";
}

void look_here(DoctorInputs& inputs) {
  inputs.read.push_back({"this machine's environment", environment_text(), {}});
  bool found = false;
  for (const char* command : {"nvidia-smi topo -m", "rocm-smi --showtopo"}) {
    std::string text = output_of(command);
    if (text.empty()) continue;
    inputs.read.push_back({command, std::move(text), {}});
    found = true;
  }
  if (!found)
    inputs.unreadable.push_back({"topology", "neither nvidia-smi topo -m nor rocm-smi --showtopo works here"});
}

}  // namespace

DoctorInputs read_inputs(const std::vector<std::string>& files, bool here) {
  DoctorInputs inputs;
  for (const std::string& file : files) {
    std::error_code ignored;
    if (file == "-") {
      read_one("/dev/stdin", inputs);
    } else if (fs::is_directory(file, ignored)) {
      read_folder(file, inputs);
    } else {
      read_one(file, inputs);
    }
  }
  if (here) look_here(inputs);
  return inputs;
}

}  // namespace moetax::cli
