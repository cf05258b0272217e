#include "moetax/machine/nccl_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "machine/nccl_communicators.h"
#include "machine/nccl_line.h"
#include "machine/nccl_lists.h"
#include "moetax/base/file.h"
#include "moetax/base/text.h"

namespace moetax {
namespace {

constexpr std::size_t kMaxLine = std::size_t{64} << 10;  // the rest of a longer one is not read
constexpr std::size_t kMaxMany = 65'536;                 // edges, paths
constexpr std::size_t kMaxFew = 4'096;                   // adapters, settings
constexpr std::size_t kMaxProblems = 256;
constexpr std::size_t kMaxText = 300;

}  // namespace

std::string_view nccl_transport_name(NcclTransport transport) {
  switch (transport) {
    case NcclTransport::kP2p:
      return "P2P";
    case NcclTransport::kShm:
      return "SHM";
    case NcclTransport::kNet:
      return "NET";
    case NcclTransport::kOther:
      break;
  }
  return "other";
}

class NcclLogReader::Impl {
 public:
  void take(std::string_view piece) {
    while (!piece.empty()) {
      const std::size_t end = piece.find('\n');
      if (end == std::string_view::npos) return keep(piece);
      if (kept_.empty()) {
        take_line(piece.substr(0, std::min(end, kMaxLine)));
      } else {
        keep(piece.substr(0, end));
        take_line(kept_);
        kept_.clear();
      }
      piece.remove_prefix(end + 1);
    }
  }

  NcclLog finish() {
    if (!kept_.empty()) take_line(kept_);
    log_.communicators = communicators_.result();
    log_.dropped += communicators_.dropped();
    return std::move(log_);
  }

 private:
  void keep(std::string_view part) { kept_.append(part.substr(0, kMaxLine - std::min(kept_.size(), kMaxLine))); }

  void take_line(std::string_view line) {
    ++log_.lines;
    // Most lines of a job are not NCCL's, and one search tells.
    if (line.find("CCL") == std::string_view::npos) {
      if (!begins_like_edge(trim(line))) return;
    } else {
      if (line.find("WorkNCCL(") != std::string_view::npos) take_timeout(line);
      if (line.find("CCL version") != std::string_view::npos) take_version(line);
    }
    for (const NcclMessage& message : nccl_messages(line)) take_message(message);
  }

  void take_message(const NcclMessage& message) {
    ++log_.messages;
    const std::string_view text = message.text;
    if (message.warning) return take_problem(message);
    // "Channel 00/02 :    0   1   2   3" lists the ranks of a ring.
    if (begins_like_edge(text) && text.find("->") != std::string_view::npos) return take_edge(message);
    if (text.find("comm 0x") != std::string_view::npos) return communicators_.take(message, log_.lines);
    if (text.starts_with("NET/") && text.find(": Using [") != std::string_view::npos) return take_adapters(message);
    if (text.starts_with("Using network ")) return take_network(text.substr(14));
    if (text.starts_with("NVLS Head")) return take_nvls_head(text);
    if (text.find(" set by environment to ") != std::string_view::npos) return take_setting(text);
    if (text.starts_with("GPU/")) return take_paths(message);
  }

  void take_problem(const NcclMessage& message) {
    const std::string text = printable(message.text, kMaxText);
    const auto found = problems_.find(text);
    if (found != problems_.end()) {
      ++log_.problems[found->second].count;
    } else if (log_.problems.size() == kMaxProblems) {
      ++log_.dropped;
    } else if (!text.empty()) {
      problems_[text] = log_.problems.size();
      log_.problems.push_back({text, printable(message.host, 64), log_.lines, 1});
    }
  }

  // The same edge comes once per channel, so a text that is known but for its channel is not taken apart again.
  void take_edge(const NcclMessage& message) {
    std::string text(message.host);
    text.append(message.text.substr(std::min(message.text.find(" : "), message.text.size())));
    if (const auto found = edge_texts_.find(text); found != edge_texts_.end()) {
      ++log_.edges[found->second].count;
      return;
    }
    auto edge = parse_nccl_edge(message.text);
    if (!edge) {
      ++log_.broken;
      return;
    }
    const std::string key =
        fmt::format("{} {} {} {} {} {}", message.host, edge->from, edge->from_at, edge->to, edge->to_at, edge->via);
    auto at = edges_.find(key);
    if (at != edges_.end()) {
      ++log_.edges[at->second].count;
    } else if (log_.edges.size() == kMaxMany) {
      ++log_.dropped;
      return;
    } else {
      at = edges_.emplace(key, log_.edges.size()).first;
      add_edge(std::move(*edge), message.host);
    }
    if (edge_texts_.size() < 2 * kMaxMany) edge_texts_.emplace(std::move(text), at->second);
  }

  void add_edge(NcclEdge edge, std::string_view host) {
    edge.via = printable(edge.via, edge.via.size());
    edge.network = printable(edge.network, edge.network.size());
    edge.host = printable(host, 64);
    edge.line = log_.lines;
    edge.count = 1;
    log_.edges.push_back(std::move(edge));
  }

  void take_adapters(const NcclMessage& message) {
    for (NcclAdapter& adapter : parse_nccl_adapters(message.text)) {
      if (!is_new(adapters_, fmt::format("{} {} {}", message.host, adapter.number, adapter.name), kMaxFew)) continue;
      log_.adapters.push_back({.host = printable(message.host, 64),
                               .number = adapter.number,
                               .name = printable(adapter.name, 64),
                               .kind = printable(adapter.kind, 16)});
    }
  }

  void take_network(std::string_view name) {
    const std::string network = printable(trim(name), 64);
    if (std::find(log_.networks.begin(), log_.networks.end(), network) != log_.networks.end()) return;
    if (log_.networks.size() < kMaxProblems)
      log_.networks.push_back(network);
    else
      ++log_.dropped;
  }

  void take_nvls_head(std::string_view text) {
    auto head = parse_nvls_head(text);
    if (!head) return;
    if (log_.nvls_heads.size() <= head->first) log_.nvls_heads.resize(head->first + 1);
    if (log_.nvls_heads[head->first].empty()) log_.nvls_heads[head->first] = std::move(head->second);
  }

  void take_setting(std::string_view text) {
    constexpr std::string_view kWords = " set by environment to ";
    const std::size_t at = text.find(kWords);
    const std::string name = printable(trim(text.substr(0, at)), 64);
    if (log_.settings.size() == kMaxFew && log_.settings.find(name) == log_.settings.end()) {
      ++log_.dropped;
      return;
    }
    std::string_view value = trim(text.substr(at + kWords.size()));
    if (value.ends_with('.')) value.remove_suffix(1);
    log_.settings[name] = printable(value, 200);
  }

  void take_paths(const NcclMessage& message) {
    for (NcclPath& path : parse_nccl_paths(message.text)) {
      if (!is_new(paths_, fmt::format("{} {} {}", message.host, path.from, path.to), kMaxMany)) continue;
      path.host = printable(message.host, 64);
      path.line = log_.lines;
      log_.paths.push_back(std::move(path));
    }
  }

  // Whether `key` comes for the first time and has room among `most`.
  bool is_new(std::unordered_set<std::string>& known, std::string key, std::size_t most) {
    if (known.count(key) > 0) return false;
    if (known.size() == most) {
      ++log_.dropped;
      return false;
    }
    known.insert(std::move(key));
    return true;
  }

  void take_timeout(std::string_view line) {
    auto timeout = parse_nccl_timeout(line);
    if (!timeout) return;
    ++log_.messages;
    // The same is said again when the process ends itself because of it.
    for (const NcclTimeout& known : log_.timeouts) {
      if (known.rank == timeout->rank && known.sequence == timeout->sequence && known.group == timeout->group) return;
    }
    if (log_.timeouts.size() == kMaxProblems * 4) {
      ++log_.dropped;
      return;
    }
    timeout->line = log_.lines;
    timeout->op = printable(timeout->op, 40);
    timeout->group = printable(timeout->group, 64);
    log_.timeouts.push_back(std::move(*timeout));
  }

  // "NCCL version 2.18.3+cuda12.1", "RCCL version : 2.18.3-HEAD:...".
  void take_version(std::string_view line) {
    const std::size_t at = line.find("CCL version");
    const bool rccl = at > 0 && line[at - 1] == 'R';
    std::string_view rest = line.substr(at + 11);
    rest.remove_prefix(std::min(rest.find_first_not_of(" :"), rest.size()));
    rest = rest.substr(0, std::min(rest.find_first_of(" \t\r"), rest.size()));
    if (rest.empty() || rest[0] < '0' || rest[0] > '9') return;
    ++log_.messages;
    log_.rccl = log_.rccl || rccl;
    if (log_.version.empty()) log_.version = printable(rest, 40);
  }

  NcclLog log_;
  NcclCommunicators communicators_;
  std::string kept_;                                                            // a line that has begun
  std::unordered_map<std::string, std::size_t> edges_, edge_texts_, problems_;  // where each is in log_
  std::unordered_set<std::string> adapters_, paths_;
};

NcclLogReader::NcclLogReader() : impl_(std::make_unique<Impl>()) {}
NcclLogReader::~NcclLogReader() = default;
NcclLogReader::NcclLogReader(NcclLogReader&&) noexcept = default;
NcclLogReader& NcclLogReader::operator=(NcclLogReader&&) noexcept = default;

void NcclLogReader::take(std::string_view piece) {
  impl_->take(piece);
}

NcclLog NcclLogReader::finish() {
  return impl_->finish();
}

namespace {

Result<NcclLog> of_nccl(NcclLog log, const std::string& origin) {
  if (log.messages > 0) return log;
  return fail(ErrorCode::kBadInput,
              fmt::format("{}: none of its {} lines is NCCL's; run the job with NCCL_DEBUG=INFO", origin, log.lines));
}

}  // namespace

Result<NcclLog> parse_nccl_log(std::string_view text, const std::string& origin) {
  NcclLogReader reader;
  reader.take(text);
  return of_nccl(reader.finish(), origin);
}

Result<NcclLog> read_nccl_log(const std::string& path) {
  NcclLogReader reader;
  MOETAX_TRY(read_text_pieces(path, [&](std::string_view piece) { reader.take(piece); }));
  return of_nccl(reader.finish(), path);
}

bool looks_like_nccl_log(std::string_view text) {
  return parse_nccl_log(text, "").has_value();
}

}  // namespace moetax
