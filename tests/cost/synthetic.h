// Machines and traffic that are made up, so that every time can be told beforehand.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "moetax/base/random.h"
#include "moetax/cost/exchange_cost.h"
#include "moetax/cost/machine_costs.h"
#include "moetax/cost/traffic.h"

namespace moetax::test {

inline RankPlaces places_of(int ranks, int per_node, int group = 0) {
  std::vector<int> node;
  for (Rank r = 0; r < ranks; ++r) node.push_back(r / per_node);
  return {std::move(node), group > 0 ? group : ranks};
}

// A link that is one line, sampled without error.
inline MeasuredLink line(LinkClass link, double start_up_us, double bytes_per_us) {
  MeasuredLink made{link, to_string(link), {}, {}};
  for (double bytes = 16; bytes <= 16 << 20; bytes *= 4) {
    made.samples.push_back({bytes, start_up_us + bytes / bytes_per_us});
  }
  made.cost = fit_link(made.samples);
  return made;
}

// Links of 100 MB/s that two ranks share, with 20 us to the first peer and 2 us to each further one; memory so fast
// that it takes nothing.
inline MachineCosts synthetic_machine(int ranks, int per_node) {
  MachineCosts machine;
  machine.tool_version = "test";
  machine.cpu = machine.isa = machine.kernel = "made up";
  machine.transport = "mpi";
  machine.cores = 64;
  machine.l2_bytes = 2 << 20;
  machine.ranks = ranks;
  machine.nodes = (ranks + per_node - 1) / per_node;
  const double of_rank = 100.0 / per_node, to_all = 20 + 2 * (ranks - per_node - 1);
  machine.links = {line(LinkClass::kCopy, 0, 1e8),
                   line(LinkClass::kSum, 0, 1e8),
                   line(LinkClass::kMemory, 1, 1e8),
                   line(LinkClass::kMemoryShared, 1, 1e8),
                   line(LinkClass::kLink, 20, 100),
                   line(LinkClass::kLinkShared, 20, of_rank),
                   line(LinkClass::kLinkStream, to_all, of_rank),
                   line(LinkClass::kLinkDirect, to_all, of_rank / 2),
                   line(LinkClass::kLinkRelay, to_all, of_rank),
                   line(LinkClass::kLinkTwoLevel, 20 + 2 * (machine.nodes - 2), of_rank)};
  machine.calls = {.dispatch_us = 30, .combine_us = 25, .node_dispatch_us = 3, .node_combine_us = 2, .node_push_us = 5};
  return machine;
}

// Each token of each rank chooses `topk` of the experts, which lie in equal blocks over the ranks of its group.
inline Traffic random_traffic(const RankPlaces& places, int experts_per_rank, int topk, std::int64_t tokens,
                              std::uint64_t seed) {
  Traffic traffic = Traffic::none(places);
  const int ranks = places.ranks(), nodes = places.nodes(), experts = experts_per_rank * places.group();
  traffic.experts = experts;
  traffic.topk = topk;
  const RandomStream random(seed, 0);
  std::uint64_t next = 0;
  for (Rank source = 0; source < ranks; ++source) {
    traffic.tokens[static_cast<std::size_t>(source)] = tokens;
    for (std::int64_t t = 0; t < tokens; ++t) {
      std::vector<char> chosen(static_cast<std::size_t>(experts)), ranks_hit(static_cast<std::size_t>(ranks)),
          nodes_hit(static_cast<std::size_t>(nodes));
      for (int k = 0; k < topk;) {
        const auto expert = static_cast<std::size_t>(random.uniform(next++) * experts);
        if (expert >= chosen.size() || chosen[expert]) continue;
        chosen[expert] = 1;
        ++k;
        const Rank owner = places.first_of_group(source) + static_cast<Rank>(expert) / experts_per_rank;
        ++traffic.choices[static_cast<std::size_t>(source * ranks + owner)];
        ranks_hit[static_cast<std::size_t>(owner)] = 1;
        nodes_hit[static_cast<std::size_t>(places.node_of(owner))] = 1;
      }
      for (int r = 0; r < ranks; ++r)
        traffic.rows[static_cast<std::size_t>(source * ranks + r)] += ranks_hit[static_cast<std::size_t>(r)];
      for (int n = 0; n < nodes; ++n)
        traffic.node_rows[static_cast<std::size_t>(source * nodes + n)] += nodes_hit[static_cast<std::size_t>(n)];
    }
  }
  return traffic;
}

}  // namespace moetax::test
