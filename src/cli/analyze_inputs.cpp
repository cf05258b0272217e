#include "cli/analyze_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>
#include <mutex>
#include <thread>

#include "moetax/base/file.h"
#include "moetax/trace/kineto.h"
#include "moetax/trace/nsight.h"

namespace moetax::cli {
namespace {

namespace fs = std::filesystem;

// Folders give the files below them, in the order of their names.
Result<std::vector<std::string>> list_files(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
      files.push_back(path);
      continue;
    }
    std::vector<std::string> found;
    fs::recursive_directory_iterator at(path, fs::directory_options::skip_permission_denied, error);
    for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
      if (at->is_regular_file(error)) found.push_back(at->path().string());
    }
    if (error) return fail(ErrorCode::kBadInput, fmt::format("{}: cannot be read: {}", path, error.message()));
    if (found.empty()) return fail(ErrorCode::kBadInput, path + ": the folder holds no files, expected traces");
    std::sort(found.begin(), found.end());
    files.insert(files.end(), found.begin(), found.end());
  }
  return files;
}

using Read = std::optional<Result<GpuTrace>>;

std::vector<Read> read_all(const std::vector<std::string>& files, FunctionRef<void(const std::string&)> progress) {
  std::vector<Read> read(files.size());
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  const auto work = [&] {
    for (std::size_t i = next++; i < files.size(); i = next++) {
      read[i].emplace(is_sqlite(files[i]) ? read_nsight(files[i]) : read_kineto(files[i]));
      const std::lock_guard lock(mutex);
      progress(fmt::format("moetax: {} of {} files read", std::min(next.load(), files.size()), files.size()));
    }
  };
  const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::jthread> threads;
  for (std::size_t i = 1; i < std::min(cores, files.size()); ++i) threads.emplace_back(work);
  work();
  threads.clear();
  return read;
}

BillSource source_of(const GpuTrace& trace) {
  BillSource source{trace.file, trace.kind, trace.rank};
  source.used = static_cast<std::int64_t>(trace.events.size());
  source.skipped = trace.read.events - source.used;
  if (trace.read.damaged > 0) {
    source.why = fmt::format("{} of {} events are damaged, the first at byte {}", trace.read.damaged, trace.read.events,
                             trace.read.first_damage);
  }
  if (trace.read.cut) source.why += (source.why.empty() ? "" : "; ") + trace.read.cut_why;
  return source;
}

// Ranks of one job agree on these.
std::string job_of(const GpuTrace& trace) {
  const std::string size = trace.world_size < 0 ? "ranks of unknown number" : fmt::format("{} ranks", trace.world_size);
  return fmt::format("{} on {}", size, trace.devices.empty() ? "unknown devices" : trace.devices.front());
}

bool same_events(const GpuTrace& a, const GpuTrace& b) {
  if (a.events.size() != b.events.size()) return false;
  for (std::size_t i = 0; i < a.events.size(); ++i) {
    const GpuEvent &x = a.events[i], &y = b.events[i];
    if (x.start_ns != y.start_ns || x.duration_ns != y.duration_ns) return false;
  }
  return true;
}

class JobPicker {
 public:
  JobPicker(std::vector<Rank> ranks, const KernelRules& rules) : ranks_(std::move(ranks)), rules_(rules) {}

  Result<TraceInputs> pick(const std::vector<std::string>& files, std::vector<Read> read) {
    const std::string job = largest_job(read);
    for (std::size_t i = 0; i < files.size(); ++i) {
      if (*read[i]) {
        take(std::move(**read[i]), job);
      } else if (!take_table(files[i])) {
        BillSource source{files[i], ""};
        source.why = read[i]->error().message;
        if (source.why.starts_with(files[i] + ": ")) source.why.erase(0, files[i].size() + 2);
        inputs_.sources.push_back(std::move(source));
      }
    }
    if (!inputs_.traces.empty() || !inputs_.tables.empty()) return std::move(inputs_);
    return fail(ErrorCode::kBadInput, fmt::format("{}: {}", inputs_.sources.front().file, inputs_.sources.front().why));
  }

 private:
  static std::string largest_job(const std::vector<Read>& read) {
    std::map<std::string, int> files;
    for (const Read& each : read) {
      if (*each) ++files[job_of(**each)];
    }
    const auto most =
        std::max_element(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    return most == files.end() ? std::string() : most->first;
  }

  bool take_table(const std::string& file) {
    constexpr std::size_t kWholeBytes = std::size_t{64} << 20;
    const auto ends = read_text_ends(file, kWholeBytes);
    auto table = ends ? describe_table(ends->text, file, rules_) : Result<TableText>(Unexpected(ends.error()));
    if (!table) return false;
    BillSource source{file, table->kind};
    source.why = table->text.substr(0, table->text.find('\n'));
    if (ends->left_out_bytes > 0) {
      table->text += fmt::format("{} bytes in its middle were not read.\n", ends->left_out_bytes);
    }
    if (!ends->trouble.empty()) table->text += "Not all of it was read: " + ends->trouble + ".\n";
    inputs_.sources.push_back(std::move(source));
    inputs_.tables.push_back({file, std::move(*table)});
    return true;
  }

  void take(GpuTrace trace, const std::string& job) {
    BillSource source = source_of(trace);
    const std::string why = why_not(trace, job);
    if (!why.empty()) {
      source.skipped += source.used;
      source.used = 0;
      source.why = why;
    } else {
      inputs_.traces.push_back(std::move(trace));
    }
    inputs_.sources.push_back(std::move(source));
  }

  std::string why_not(const GpuTrace& trace, const std::string& job) const {
    if (job_of(trace) != job) {
      return fmt::format("is of another job ({}, this one has {}); analyze it on its own", job_of(trace), job);
    }
    if (!ranks_.empty() && std::find(ranks_.begin(), ranks_.end(), trace.rank) == ranks_.end()) {
      return "is of a rank that was not asked for";
    }
    for (const GpuTrace& other : inputs_.traces) {
      if (same_events(trace, other)) return "holds the same events as " + other.file;
      if (trace.rank != kNoRank && trace.rank == other.rank) {
        return fmt::format("is of rank {} as {} is, at another time; analyze it on its own", trace.rank, other.file);
      }
    }
    return "";
  }

  std::vector<Rank> ranks_;
  const KernelRules& rules_;
  TraceInputs inputs_;
};

}  // namespace

Result<TraceInputs> read_inputs(const std::vector<std::string>& paths, const std::vector<Rank>& ranks,
                                const KernelRules& rules, FunctionRef<void(const std::string&)> progress) {
  MOETAX_ASSIGN(const auto files, list_files(paths));
  return JobPicker(ranks, rules).pick(files, read_all(files, progress));
}

}  // namespace moetax::cli
