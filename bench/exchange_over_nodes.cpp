// Dispatch + combine between nodes: every exchange algorithm and the plain MPI_Alltoallv way, in turn, on the same
// routes. Started by an MPI launcher, best on a cluster whose links have a known rate (docs/cluster.md):
//
//   exchange_over_nodes [--rate BYTES_PER_S] [--rounds N] [--tokens T[,T...]] [--hot] [--machine FILE] [--json]
//
// --rate is what a node's link carries in each direction: times are then held to the bytes that must cross it. --hot
// sends every token to one expert first. --machine is what moetax calibrate wrote: its predictions are printed too.
// Rank 0 prints; medians of N rounds, from when all ranks have begun
// until all are done.
#include <fmt/format.h>
#include <mpi.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "alltoallv_exchange.h"
#include "moetax/cost/exchange_cost.h"
#include "moetax/exchange/exchange.h"
#include "moetax/machine/host.h"
#include "moetax/transport/collectives.h"
#include "moetax/transport/mpi.h"
#include "moetax/transport/node_map.h"

namespace moetax::bench {
namespace {

constexpr int kNodeExperts = 64, kNodeTopK = 6;
constexpr std::int64_t kNodeHidden = 2048;

struct Arguments {
  double rate = 0;  // bytes per second; 0: not known
  int rounds = 15;
  std::vector<std::int64_t> tokens{512};
  bool hot = false, json = false;
  std::optional<MachineCosts> machine;
};

// Adds up what an exchange counted.
class ByteCounter final : public Observer {
 public:
  void enter(Part, const char*) override {}
  void leave() override {}
  void waited(const WaitRecord&) override {}
  void exchanged(const ExchangeRecord& record) override { bytes_[record.name] = record.internode_bytes; }
  std::int64_t of(const char* name) const { return bytes_.at(name); }

 private:
  std::map<std::string, std::int64_t> bytes_;
};

RoutingTable routes(Rank rank, std::int64_t tokens, bool hot) {
  std::vector<double> weights(kNodeExperts, 1.0);
  if (hot) weights.back() = 1e6;
  RoutingTable table;
  sample_routing(weights, kNodeTopK, 1, rank * tokens, tokens, table);
  return table;
}

void require(bool fine, const Error* error) {
  if (fine) return;
  std::fprintf(stderr, "exchange_over_nodes: %s\n", error->message.c_str());
  _exit(5);
}
template <class T>
T take(Result<T> result) {
  require(result.has_value(), result ? nullptr : &result.error());
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

// Calls one after the other, as in a layer, and what each took from when the last rank began it until the last was
// done.
class Clock {
 public:
  template <class Body>
  void time(Body body) {
    const std::int64_t start = now_ns();
    body();
    periods_.push_back({start, now_ns()});
  }
  void forget() { periods_.clear(); }

  // Collective. In the order of the calls.
  std::vector<double> spans_us(Communicator& comm) const {
    std::vector<Period> mine = periods_, all(mine.size() * static_cast<std::size_t>(comm.size()));
    for (Period& period : mine) {
      period.start_ns -= comm.clock_offset_ns(0);
      period.end_ns -= comm.clock_offset_ns(0);
    }
    const auto bytes = static_cast<int>(mine.size() * sizeof(Period));
    MPI_Allgather(mine.data(), bytes, MPI_BYTE, all.data(), bytes, MPI_BYTE, MPI_COMM_WORLD);
    std::vector<double> us;
    for (std::size_t i = 0; i < mine.size(); ++i) {
      std::vector<Period> call;
      for (std::size_t at = i; at < all.size(); at += mine.size()) call.push_back(all[at]);
      us.push_back(span_us(call));
    }
    return us;
  }

 private:
  std::vector<Period> periods_;
};

// Medians over rounds want the sum of each round's calls.
struct Times {
  std::vector<double> there_us, us;  // of a dispatch; of it and its combine

  Times(Communicator& comm, const Clock& clock) {
    const std::vector<double> calls = clock.spans_us(comm);
    for (std::size_t i = 0; i + 1 < calls.size(); i += 2) {
      there_us.push_back(calls[i]);
      us.push_back(calls[i] + calls[i + 1]);
    }
  }
};

// One algorithm with its buffers.
class Contestant {
 public:
  Contestant(Communicator& comm, ExchangeAlgorithm algorithm, std::int64_t tokens)
      : algorithm_(algorithm),
        exchange_(take(Exchange::create(comm, {.max_tokens = tokens,
                                               .hidden = kNodeHidden,
                                               .experts = kNodeExperts,
                                               .topk = kNodeTopK,
                                               .algorithm = algorithm,
                                               .deadline_s = 60,
                                               .observer = &counter_}))),
        hidden_(take(PageBuffer::reserve(static_cast<std::size_t>(tokens * kNodeHidden) * 2))),
        out_(take(PageBuffer::reserve(hidden_.size()))),
        tokens_(tokens) {}

  std::string name() const { return to_string(algorithm_); }
  ExchangeAlgorithm algorithm() const { return algorithm_; }

  void round(const RoutingTable& routing, int salt) {
    refresh(hidden_.data(), hidden_.size(), static_cast<std::uint16_t>(salt));
    if (salt == 0) clock_.forget();
    Dispatched sent;
    clock_.time([&] {
      sent = take(exchange_.dispatch({hidden_.data(), DType::kBf16, tokens_, kNodeHidden}, routing));
    });
    bench::run_experts(sent.batch.rows.data, sent.batch.out.data, sent.batch.rows.bytes());
    clock_.time([&] {
      take(exchange_.combine(std::move(sent.handle), routing, {}, {out_.data(), DType::kBf16, tokens_, kNodeHidden}));
    });
  }

  Clock clock_;
  ByteCounter counter_;

 private:
  ExchangeAlgorithm algorithm_;
  Exchange exchange_;
  PageBuffer hidden_, out_;
  std::int64_t tokens_;
};

// Sums over all ranks, and the most of any node.
struct NodeBytes {
  std::int64_t all = 0, most = 0;
};
NodeBytes node_bytes(Communicator& comm, Collectives& collectives, std::int64_t mine) {
  std::vector<std::int64_t> each(static_cast<std::size_t>(comm.size()));
  take(collectives.all_gather("bytes", std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(each)),
                              Deadline::in_seconds(60)));
  const NodeMap nodes(comm);
  NodeBytes bytes;
  for (int node = 0; node < nodes.num_nodes(); ++node) {
    std::int64_t of_node = 0;
    for (const Rank rank : nodes.ranks_of(node)) of_node += each[static_cast<std::size_t>(rank)];
    bytes.all += of_node;
    bytes.most = std::max(bytes.most, of_node);
  }
  return bytes;
}

// What all ranks bring, from their routes.
Traffic traffic_of(Communicator& comm, Collectives& collectives, const RoutingTable& routing) {
  std::vector<int> node;
  for (const Rank rank : comm.everyone()) node.push_back(comm.node_of(rank));
  const RankPlaces places(std::move(node), comm.size());
  std::vector<Rank> owner;
  for (int e = 0; e < kNodeExperts; ++e) owner.push_back(ExpertPlacement{kNodeExperts, comm.size()}.owner(e));
  const auto mine = count_source(places, owner, routing.expert());
  std::vector<std::int64_t> all(mine.size() * static_cast<std::size_t>(comm.size()));
  take(collectives.all_gather("traffic", std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)),
                              Deadline::in_seconds(60)));
  return Traffic::of_sources(places, kNodeExperts, kNodeTopK, all);
}

std::string json_row(const std::string& name, std::int64_t tokens, bool hot, std::vector<double> us,
                     const std::string& more) {
  std::sort(us.begin(), us.end());
  const std::size_t last = us.size() - 1;
  return fmt::format(R"({{"name":"{}","tokens":{},"hot":{},"us":{:.1f},"p10_us":{:.1f},"p90_us":{:.1f}{}}})", name,
                     tokens, hot, us[us.size() / 2], us[last / 10], us[last - last / 10], more);
}

struct Predicted {
  double dispatch_us = 0, combine_us = 0;
};

void print(const Arguments& arguments, const std::string& name, std::int64_t tokens, const Times& times,
           const NodeBytes& there, const NodeBytes& back, const std::optional<Predicted>& predicted) {
  const std::vector<double>&us = times.us, &there_us = times.there_us;
  const double bytes = static_cast<double>(there.most + back.most);
  if (arguments.json) {
    std::string more =
        fmt::format(R"(,"dispatch_us":{:.1f},"dispatch_bytes":{},"combine_bytes":{},"most_bytes":{:.0f})",
                    median(there_us), there.all, back.all, bytes);
    if (predicted) {
      more += fmt::format(R"(,"predicted_us":{:.1f},"predicted_dispatch_us":{:.1f})",
                          predicted->dispatch_us + predicted->combine_us, predicted->dispatch_us);
    }
    std::puts(json_row(name, tokens, arguments.hot, us, more).c_str());
    return;
  }
  std::string bound;
  if (arguments.rate > 0 && bytes > 0) {
    bound = fmt::format(", {:.0f} % of the link", 100 * bytes / arguments.rate / (median(us) * 1e-6));
  }
  if (predicted) bound += fmt::format(", predicted {:.0f} us", predicted->dispatch_us + predicted->combine_us);
  std::printf("T=%-5lld %-10s %9.0f us (%.0f there), %.2f + %.2f MB between nodes%s\n", static_cast<long long>(tokens),
              name.c_str(), median(us), median(there_us), 1e-6 * static_cast<double>(there.all),
              1e-6 * static_cast<double>(back.all), bound.c_str());
  std::fflush(stdout);
}

void compare(Communicator& comm, const Arguments& arguments, std::int64_t tokens) {
  Collectives collectives = take(Collectives::create(comm, Deadline::in_seconds(60)));
  const RoutingTable routing = routes(comm.rank(), tokens, arguments.hot);
  std::vector<std::unique_ptr<Contestant>> contestants;
  contestants.reserve(kNumExchangeAlgorithms);
  for (int i = 0; i < kNumExchangeAlgorithms; ++i) {
    contestants.push_back(std::make_unique<Contestant>(comm, static_cast<ExchangeAlgorithm>(i), tokens));
  }
  AlltoallvExchange plain({comm.size(), kNodeExperts, kNodeTopK, kNodeHidden}, routing);
  Clock plain_clock;
  for (int round = -2; round < arguments.rounds; ++round) {
    for (const auto& contestant : contestants) contestant->round(routing, round);
    if (round == 0) plain_clock.forget();
    plain.refresh_tokens(static_cast<std::uint16_t>(round));
    plain_clock.time([&] { plain.dispatch(); });
    plain.run_experts();
    plain_clock.time([&] { plain.combine(); });
  }
  const Traffic traffic = traffic_of(comm, collectives, routing);
  for (const auto& contestant : contestants) {
    const NodeBytes there = node_bytes(comm, collectives, contestant->counter_.of("dispatch"));
    const NodeBytes back = node_bytes(comm, collectives, contestant->counter_.of("combine"));
    const Times times(comm, contestant->clock_);
    if (comm.rank() != 0) continue;
    std::optional<Predicted> predicted;
    if (arguments.machine) {
      const auto us = [&](ExchangeCall call) {
        return predict_call(*arguments.machine, traffic, call, contestant->algorithm(), 2.0 * kNodeHidden).total_us();
      };
      predicted = {us(ExchangeCall::kDispatch), us(ExchangeCall::kCombine)};
    }
    print(arguments, contestant->name(), tokens, times, there, back, predicted);
  }
  const Times plain_times(comm, plain_clock);
  if (comm.rank() == 0) print(arguments, "alltoallv", tokens, plain_times, {}, {}, {});
}

bool parse(int argc, char** argv, Arguments& arguments) {
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--hot" || name == "--json") {
      (name == "--hot" ? arguments.hot : arguments.json) = true;
      continue;
    }
    if (++i == argc) return false;
    if (name == "--rate") {
      arguments.rate = std::atof(argv[i]);
    } else if (name == "--rounds") {
      arguments.rounds = std::atoi(argv[i]);
    } else if (name == "--machine") {
      arguments.machine = take(read_machine_costs(argv[i]));
    } else if (name == "--tokens") {
      arguments.tokens.clear();
      for (char* at = argv[i]; *at != '\0'; at += *at == ',') arguments.tokens.push_back(std::strtoll(at, &at, 10));
    } else {
      return false;
    }
  }
  return arguments.rounds > 0;
}

}  // namespace
}  // namespace moetax::bench

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  moetax::bench::Arguments arguments;
  const bool fine = moetax::bench::parse(argc, argv, arguments);
  if (fine) {
    const auto comm = moetax::bench::take(moetax::join_mpi(MPI_COMM_WORLD));
    // As moetax places the ranks of a node, and calibrate measured them.
    const moetax::NodeMap nodes(*comm);
    moetax::pin_rank(nodes.place_of(comm->rank()), static_cast<int>(nodes.near().size()), 1);
    for (const std::int64_t tokens : arguments.tokens) moetax::bench::compare(*comm, arguments, tokens);
  }
  MPI_Finalize();
  return fine ? 0 : 2;
}
