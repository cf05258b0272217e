#include "doctor/stories.h"

#include <algorithm>
#include <set>

#include "doctor/memory.h"

namespace moetax::doctor {
namespace {

std::string_view base_name(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

// A file as a command may name it: its name, or the folder of a config.json.
bool names(const Launch& launch, std::string_view file) {
  std::string_view name = base_name(file);
  if (name == "config.json") {
    const std::string_view folder = file.substr(0, file.size() - std::min(file.size(), name.size() + 1));
    name = base_name(folder);
  }
  if (name.empty()) return false;
  return std::any_of(launch.words.begin(), launch.words.end(),
                     [&](const std::string& word) { return word.find(name) != std::string::npos; });
}

class Teller {
 public:
  explicit Teller(Pool& pool) : pool_(pool), one_(is_one_story()) {}

  std::vector<Facts> run() {
    for (const Pool::Started& started : pool_.launches) add(job_of(started));
    if (one_ && pool_.launches.empty() && !pool_.configs.empty()) {
      JobFacts job;
      for (const Pool::Config& config : pool_.configs) join(config, job);
      add(std::move(job));
    }
    if (!one_) lone_configs();
    leftovers();
    return std::move(stories_);
  }

 private:
  bool is_one_story() const {
    std::set<std::string_view> files;
    for (const Pool::Started& started : pool_.launches) files.insert(started.file);
    std::set<InputKind> kinds;
    for (const Pool::Config& config : pool_.configs) {
      if (config.kind != InputKind::kEnvironment && !kinds.insert(config.kind).second) return false;
    }
    return files.size() <= 1 && pool_.models.size() <= 1;
  }

  static void join(const Pool::Config& config, JobFacts& job) {
    job.settings.add(config.settings);
    job.files.push_back(config.file);
  }

  JobFacts job_of(const Pool::Started& started) {
    JobFacts job;
    for (std::size_t i = 0; i < pool_.configs.size(); ++i) {
      const Pool::Config& config = pool_.configs[i];
      if (!one_ && config.kind != InputKind::kEnvironment && !names(started.launch, config.file)) continue;
      join(config, job);
      used_.insert(i);
    }
    job.settings.add(started.launch.settings);
    job.variables = started.variables;
    job.at = started.launch.at;
    for (const std::string& word : started.launch.words) job.command += word + " ";
    job.files.push_back(started.file);
    return job;
  }

  void lone_configs() {
    for (std::size_t i = 0; i < pool_.configs.size(); ++i) {
      if (used_.count(i)) continue;
      JobFacts job;
      join(pool_.configs[i], job);
      add(std::move(job));
    }
  }

  void add(JobFacts job) {
    derive_job(job);
    Facts facts;
    facts.model = model_for(job);
    if (!job.engine.empty() || job.ep || job.tp) pool_.understood.push_back(describe(job));
    facts.gpu = gpu_of(job);
    facts.job = std::move(job);
    if (one_) join_results(facts);
    if (!one_) facts.log = &nothing();
    if (const auto memory = memory_of(facts)) pool_.understood.push_back(describe(*memory));
    stories_.push_back(std::move(facts));
  }

  void join_results(Facts& facts) {
    facts.log = &pool_.log;
    facts.loads = &pool_.loads;
    facts.bills = &pool_.bills;
    facts.topologies = &pool_.topologies;
    facts.nccl_logs = &pool_.nccl_logs;
    facts.bandwidths = &pool_.bandwidths;
    facts.flights = &pool_.flights;
    facts.inspectors = &pool_.inspectors;
    facts.host_links = &pool_.host_links;
    facts.kernel_tables = &pool_.kernel_tables;
    if (pool_.measured) facts.measured = &*pool_.measured;
  }

  const ModelFacts* model_for(const JobFacts& job) {
    if (one_ && !pool_.models.empty()) return &pool_.models[0];
    for (const ModelFacts& model : pool_.models) {
      const std::string_view name = base_name(model.at.file);
      if (!name.empty() && name != "config.json" && job.command.find(name) != std::string::npos) return &model;
    }
    auto told = model_of_job(job);
    if (!told) return nullptr;
    told_.push_back(std::make_unique<ModelFacts>(std::move(*told)));
    if (std::find(pool_.understood.begin(), pool_.understood.end(), describe(*told_.back())) ==
        pool_.understood.end()) {
      pool_.understood.push_back(describe(*told_.back()));
    }
    return told_.back().get();
  }

  // Said in the settings, or by a log of this one job.
  Maybe<GpuFacts> gpu_of(const JobFacts& job) const {
    const Settings::Names kNames = {"xpu_spec.model", "gpu", "gpu_type", "GPU_TYPE", "constraint"};
    if (const auto value = job.settings.word(kNames)) {
      if (const auto gpu = find_gpu(*value)) return Known<GpuFacts>{*gpu, job.settings.where(kNames)};
    }
    if (!one_) return std::nullopt;
    for (const LogEvent* event : pool_.log.of(LogKind::kGpuName)) {
      if (const auto gpu = find_gpu(event->at.text)) return Known<GpuFacts>{*gpu, event->at};
    }
    return std::nullopt;
  }

  // Models, logs, loads and bills that no job took.
  void leftovers() {
    for (const ModelFacts& model : pool_.models) pool_.understood.push_back(describe(model));
    if (one_ && !stories_.empty()) return;
    Facts facts;
    join_results(facts);
    facts.gpu = gpu_of({});
    if (pool_.models.size() == 1) facts.model = &pool_.models[0];
    stories_.push_back(std::move(facts));
  }

  static const LogFacts& nothing() {
    static const LogFacts kNothing;
    return kNothing;
  }

  Pool& pool_;
  bool one_;
  std::set<std::size_t> used_;
  std::vector<Facts> stories_;
  std::vector<std::unique_ptr<ModelFacts>>& told_ = pool_.told;
};

}  // namespace

std::vector<Facts> tell_stories(Pool& pool) {
  return Teller(pool).run();
}

}  // namespace moetax::doctor
