// Dispatch + combine between nodes: every exchange algorithm and the plain MPI_Alltoallv way, in turn, on the same
// routes. Started by an MPI launcher, best on a cluster whose links have a known rate (docs/cluster.md):
//
//   exchange_over_nodes [--rate BYTES_PER_S] [--rounds N] [--tokens T[,T...]] [--hot] [--json]
//
// --rate is what a node's link carries in each direction: times are then held to the bytes that must cross it. --hot
// sends every token to one expert first. Rank 0 prints; medians of N rounds, times of the slowest rank.
#include <fmt/format.h>
#include <mpi.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>

#include "alltoallv_exchange.h"
#include "moetax/exchange/exchange.h"
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

// The time of the slowest rank. Those that are done wait asleep: inside MPI they would take cores from the others.
template <class Body>
double timed_us(Collectives& collectives, Body body) {
  MPI_Barrier(MPI_COMM_WORLD);
  const std::int64_t start = now_ns();
  body();
  const double us = static_cast<double>(now_ns() - start) * 1e-3;
  take(collectives.barrier("all done", Deadline::in_seconds(60)));
  return slowest(us);
}

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

  void round(Collectives& collectives, const RoutingTable& routing, int salt) {
    refresh(hidden_.data(), hidden_.size(), static_cast<std::uint16_t>(salt));
    Dispatched sent;
    const double there = timed_us(collectives, [&] {
      sent = take(exchange_.dispatch({hidden_.data(), DType::kBf16, tokens_, kNodeHidden}, routing));
    });
    bench::run_experts(sent.batch.rows.data, sent.batch.out.data, sent.batch.rows.bytes());
    const double back = timed_us(collectives, [&] {
      take(exchange_.combine(std::move(sent.handle), routing, {}, {out_.data(), DType::kBf16, tokens_, kNodeHidden}));
    });
    if (salt < 0) return;
    dispatch_us.push_back(there);
    combine_us.push_back(back);
    total_us.push_back(there + back);
  }

  std::vector<double> dispatch_us, combine_us, total_us;
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

std::string json_row(const std::string& name, std::int64_t tokens, bool hot, std::vector<double> us,
                     const std::string& more) {
  std::sort(us.begin(), us.end());
  const std::size_t last = us.size() - 1;
  return fmt::format(R"({{"name":"{}","tokens":{},"hot":{},"us":{:.1f},"p10_us":{:.1f},"p90_us":{:.1f}{}}})", name,
                     tokens, hot, us[us.size() / 2], us[last / 10], us[last - last / 10], more);
}

void print(const Arguments& arguments, const std::string& name, std::int64_t tokens, const std::vector<double>& us,
           const std::vector<double>& there_us, const NodeBytes& there, const NodeBytes& back) {
  const double bytes = static_cast<double>(there.most + back.most);
  if (arguments.json) {
    std::puts(json_row(name, tokens, arguments.hot, us,
                       fmt::format(R"(,"dispatch_bytes":{},"combine_bytes":{},"most_bytes":{:.0f})", there.all,
                                   back.all, bytes))
                  .c_str());
    return;
  }
  std::string bound;
  if (arguments.rate > 0 && bytes > 0) {
    bound = fmt::format(", {:.0f} % of the link", 100 * bytes / arguments.rate / (median(us) * 1e-6));
  }
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
  std::vector<double> plain_us, plain_there_us;
  for (int round = -2; round < arguments.rounds; ++round) {
    for (const auto& contestant : contestants) contestant->round(collectives, routing, round);
    plain.refresh_tokens(static_cast<std::uint16_t>(round));
    const double there = timed_us(collectives, [&] { plain.dispatch(); });
    plain.run_experts();
    const double back = timed_us(collectives, [&] { plain.combine(); });
    if (round < 0) continue;
    plain_us.push_back(there + back);
    plain_there_us.push_back(there);
  }
  for (const auto& contestant : contestants) {
    const NodeBytes there = node_bytes(comm, collectives, contestant->counter_.of("dispatch"));
    const NodeBytes back = node_bytes(comm, collectives, contestant->counter_.of("combine"));
    if (comm.rank() == 0)
      print(arguments, contestant->name(), tokens, contestant->total_us, contestant->dispatch_us, there, back);
  }
  if (comm.rank() == 0) print(arguments, "alltoallv", tokens, plain_us, plain_there_us, {}, {});
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
    for (const std::int64_t tokens : arguments.tokens) moetax::bench::compare(*comm, arguments, tokens);
  }
  MPI_Finalize();
  return fine ? 0 : 2;
}
