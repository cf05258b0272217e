// Which inputs belong to the same job.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "doctor/facts.h"
#include "doctor/readers.h"
#include "doctor/recognise.h"

namespace moetax::doctor {

// All that was read.
struct Pool {
  struct Config {
    std::string file;
    InputKind kind;
    Settings settings;
  };
  struct Started {
    std::string file;
    Launch launch;
    Settings variables;
  };
  std::vector<Config> configs;
  std::vector<Started> launches;
  std::vector<ModelFacts> models;
  LogFacts log;
  std::vector<LoadFacts> loads;
  std::vector<BillFacts> bills;
  std::vector<TopologyFacts> topologies;
  std::vector<NcclLogFacts> nccl_logs;
  std::vector<BandwidthFacts> bandwidths;
  std::vector<FlightFacts> flights;
  std::vector<InspectorFacts> inspectors;
  std::vector<HostLinkFacts> host_links;
  std::vector<KernelTableFacts> kernel_tables;
  std::optional<MeasuredFacts> measured;
  // Filled by tell_stories().
  std::vector<std::string> understood;
  std::vector<std::unique_ptr<ModelFacts>> told;  // models that only a job's flags tell of
};

// One job for every command that starts one, with the configurations it names. With one script and one configuration of
// each kind at most, they all belong together. What no job names is looked at by itself. The facts point into the pool.
std::vector<Facts> tell_stories(Pool& pool);

}  // namespace moetax::doctor
