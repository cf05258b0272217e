// What there is to choose from where ranks meet: one table of transports, one of exchanges. `bench` starts what they
// say and `info` prints them; a new one is a line in registry.cpp and nothing else here.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "moetax/base/result.h"
#include "moetax/exchange/exchange.h"
#include "moetax/transport/communicator.h"
#include "moetax/transport/local.h"

namespace moetax::cli {

struct TransportEntry {
  const char* name;  // as Communicator::transport() and the bill spell it
  const char* what;
  // What was found, in a few words, if there is something to say; an error: it cannot be used here, and why. Starts
  // nothing.
  Result<std::string> (*probe)();
  // Runs body(comm) on every rank; see run_processes(). Null if another program starts ranks.
  Result<std::vector<RankOutcome>> (*start)(const LocalOptions&, const std::function<int(Communicator&)>& body);
};

struct ExchangeEntry {
  ExchangeAlgorithm algorithm;
  const char* name;  // as the bill and --exchange spell it
  const char* what;
  Result<std::string> (*probe)();
};

// In the order shown to users; `bench` takes the first, or what it was launched by.
std::span<const TransportEntry> transports();
std::span<const ExchangeEntry> exchanges();
const TransportEntry& mpi_transport();
const ExchangeEntry& exchange_entry(ExchangeAlgorithm algorithm);

}  // namespace moetax::cli
