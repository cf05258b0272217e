#include "machine/nccl_line.h"

#include <algorithm>
#include <array>

#include "moetax/base/text.h"

namespace moetax {
namespace {

constexpr int kMaxRank = 1 << 24;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// The last word of `before`, which is then shortened to what stands in front of it.
std::string_view take_last_word(std::string_view& before) {
  const std::size_t end = before.find_last_not_of(" \t");
  if (end == std::string_view::npos) return {};
  const std::size_t blank = before.find_last_of(" \t", end);
  const std::size_t begin = blank == std::string_view::npos ? 0 : blank + 1;
  const std::string_view word = before.substr(begin, end + 1 - begin);
  before = before.substr(0, begin);
  return word;
}

bool is_device(std::string_view word) {
  return word.size() > 2 && word.front() == '[' && word.back() == ']' &&
         std::all_of(word.begin() + 1, word.end() - 1, is_digit);
}

// "host:pid:tid"; the host's length, 0 when it is something else.
std::size_t host_length(std::string_view word) {
  const std::size_t tid = word.rfind(':');
  if (tid == std::string_view::npos || tid == 0) return 0;
  const std::size_t pid = word.rfind(':', tid - 1);
  if (pid == std::string_view::npos || pid + 1 == tid || tid + 1 == word.size()) return 0;
  const auto all_digits = [](std::string_view text) { return std::all_of(text.begin(), text.end(), is_digit); };
  return all_digits(word.substr(pid + 1, tid - pid - 1)) && all_digits(word.substr(tid + 1)) ? pid : 0;
}

struct Prefix {
  std::size_t begin = 0, end = 0;  // within the line
  std::string_view host;
  bool warning = false;
};

// The next prefix at or after `from`. Where "NCCL INFO" has no process in front of it, it begins with these words.
std::optional<Prefix> next_prefix(std::string_view line, std::size_t from) {
  for (std::size_t at = line.find("NCCL ", from); at != std::string_view::npos; at = line.find("NCCL ", at + 5)) {
    const std::string_view level = line.substr(at + 5, 4);
    if (level != "INFO" && level != "WARN") continue;
    Prefix prefix{.begin = at, .end = at + 9, .host = {}, .warning = level == "WARN"};
    std::string_view before = line.substr(from, at - from);
    std::string_view word = take_last_word(before);
    if (!is_device(word)) word = take_last_word(before);  // warnings have "transport.cc:384" in between
    if (!is_device(word)) return prefix;
    word = take_last_word(before);
    if (const std::size_t length = host_length(word); length > 0) {
      prefix.begin = from + before.size();
      prefix.host = word.substr(0, length);
      if (prefix.host.find('/') != std::string_view::npos) prefix.host = {};  // another line's end has grown on to it
    }
    return prefix;
  }
  return std::nullopt;
}

// Takes a number off the front of `rest`, blanks before it aside.
std::optional<int> take_number(std::string_view& rest) {
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  const auto digits = static_cast<std::size_t>(std::find_if_not(rest.begin(), rest.end(), is_digit) - rest.begin());
  const auto number = parse_number<int>(rest.substr(0, digits));
  if (!number || *number > kMaxRank) return std::nullopt;
  rest.remove_prefix(digits);
  return number;
}

bool take(std::string_view& rest, std::string_view text) {
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  if (!rest.starts_with(text)) return false;
  rest.remove_prefix(text.size());
  return true;
}

// "15[b2000]", "30".
bool take_rank(std::string_view& rest, int& rank, std::string& at) {
  const auto number = take_number(rest);
  if (!number) return false;
  rank = *number;
  if (!rest.starts_with('[')) return true;
  const std::size_t end = rest.find(']');
  if (end == std::string_view::npos || end > 20) return false;
  at = rest.substr(1, end - 1);
  rest.remove_prefix(end + 1);
  return at.find_first_not_of("0123456789abcdefABCDEF:.") == std::string::npos;
}

// "NET/IBext_v8/5(2)/GDRDMA": network, adapter, proxy, how.
void read_net(std::string_view via, NcclEdge& edge) {
  Splitter parts(via, '/');
  parts.next();
  edge.network = parts.next().value_or("");
  std::string_view adapter = parts.next().value_or("");
  if (const auto number = take_number(adapter)) edge.adapter = *number;
  if (adapter.starts_with('(')) {
    adapter.remove_prefix(1);
    if (const auto proxy = take_number(adapter)) edge.proxy_rank = *proxy;
  }
  while (const auto part = parts.next()) edge.gpu_direct = edge.gpu_direct || part->starts_with("GDRDMA");
}

NcclTransport transport_of(std::string_view via) {
  if (via.starts_with("P2P")) return NcclTransport::kP2p;
  if (via.starts_with("SHM")) return NcclTransport::kShm;
  return via.starts_with("NET/") ? NcclTransport::kNet : NcclTransport::kOther;
}

// The number of `key` in "SeqNum=5, OpType=...".
std::int64_t field(std::string_view text, std::string_view key) {
  const std::size_t at = text.find(key);
  if (at == std::string_view::npos) return -1;
  std::string_view rest = text.substr(at + key.size());
  rest = rest.substr(0, std::min(rest.find_first_of(",) "), rest.size()));
  return std::max<std::int64_t>(parse_number<std::int64_t>(rest).value_or(-1), -1);
}

// "[Rank 3]", "[rank3]:", "[PG 0 Rank 3]": the last before the work.
int rank_in(std::string_view before) {
  for (const std::string_view key : {"Rank ", "rank"}) {
    const std::size_t at = before.rfind(key);
    if (at == std::string_view::npos) continue;
    std::string_view rest = before.substr(at + key.size());
    if (const auto rank = take_number(rest); rank && rest.starts_with(']')) return *rank;
  }
  return -1;
}

}  // namespace

std::vector<NcclMessage> nccl_messages(std::string_view line) {
  std::vector<NcclMessage> messages;
  auto prefix = next_prefix(line, 0);
  const std::string_view before = trim(line.substr(0, prefix ? prefix->begin : line.size()));
  if (begins_like_edge(before)) messages.push_back({.host = {}, .text = before});
  while (prefix) {
    const auto next = next_prefix(line, prefix->end);
    const std::size_t end = next ? next->begin : line.size();
    messages.push_back({prefix->host, trim(line.substr(prefix->end, end - prefix->end)), prefix->warning});
    prefix = next;
  }
  return messages;
}

bool begins_like_edge(std::string_view text) {
  if (!text.starts_with("Ring ") && !text.starts_with("Channel ")) return false;
  text.remove_prefix(text.find(' ') + 1);
  return !text.empty() && is_digit(text.front());
}

std::optional<NcclEdge> parse_nccl_edge(std::string_view text) {
  if (!begins_like_edge(text)) return std::nullopt;
  text.remove_prefix(text.find(' '));
  NcclEdge edge;
  if (!take_number(text)) return std::nullopt;
  if (text.starts_with('/')) {
    text.remove_prefix(1);
    if (!take_number(text)) return std::nullopt;
  }
  if (!take(text, ":") || !take_rank(text, edge.from, edge.from_at) || !take(text, "->")) return std::nullopt;
  if (!take_rank(text, edge.to, edge.to_at)) return std::nullopt;
  if (!take(text, "[send]")) take(text, "[receive]");
  if (!take(text, "via ")) return std::nullopt;
  // RCCL goes on: "via P2P/IPC comm 0xaa09f20 nRanks 08".
  text = trim(text.substr(0, text.find(" comm ")));
  if (text.empty() || text.size() > 64) return std::nullopt;
  edge.via = text;
  edge.transport = transport_of(text);
  if (edge.transport == NcclTransport::kNet) read_net(text, edge);
  return edge;
}

std::optional<NcclTimeout> parse_nccl_timeout(std::string_view line) {
  const std::size_t work = line.find("WorkNCCL(");
  if (work == std::string_view::npos || line.find("timeout") == std::string_view::npos) return std::nullopt;
  const std::string_view before = line.substr(0, work);
  const std::string_view rest = line.substr(work);
  NcclTimeout timeout{.rank = rank_in(before),
                      .sequence = field(rest, "SeqNum="),
                      .elements_in = field(rest, "NumelIn="),
                      .elements_out = field(rest, "NumelOut="),
                      .limit_ms = field(rest, "Timeout(ms)="),
                      .ran_ms = field(rest, "ran for ")};
  if (const std::size_t op = rest.find("OpType="); op != std::string_view::npos) {
    const std::string_view name = rest.substr(op + 7);
    timeout.op = name.substr(0, std::min({name.find_first_of(",) "), name.size(), std::size_t{40}}));
  }
  if (const std::size_t group = before.rfind("[PG "); group != std::string_view::npos) {
    const std::string_view name = before.substr(group + 4);
    timeout.group = trim(name.substr(0, std::min({name.find(" Rank"), name.find(']'), std::size_t{64}})));
  }
  return timeout;
}

std::string_view value_after(std::string_view text, std::string_view key) {
  for (std::size_t at = text.find(key); at != std::string_view::npos; at = text.find(key, at + 1)) {
    const std::size_t end = at + key.size();
    if ((at > 0 && text[at - 1] != ' ') || end >= text.size() || text[end] != ' ') continue;
    std::string_view rest = text.substr(end);
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    return rest.substr(0, rest.find(' '));
  }
  return {};
}

}  // namespace moetax
