// A ledger as bytes, for the way to rank 0. Both ends are the same build on the same kind of machine; still nothing
// that arrives is trusted.
#include <fmt/core.h>

#include <cmath>
#include <cstring>
#include <type_traits>

#include "moetax/meter/ledger.h"

namespace moetax {
namespace {

constexpr std::uint64_t kMagic = 0x32726764656c786dULL;  // "mxledgr2"
constexpr std::int64_t kMaxTime = std::int64_t{1} << 60;
constexpr std::int64_t kMaxSize = std::int64_t{1} << 48;

// One description of each record serves writing, reading and checking. `io` is a Writer, a Reader or a counter of
// fields; time(), size(), index() differ in the range that a reader accepts.
template <class Io, class T>
void parts(Io& io, T& times) {
  for (auto& t : times) io.time(t);
}
template <class Io, class T>
requires std::is_same_v<std::remove_const_t<T>, StepRecord>
void fields(Io& io, T& r) {
  io.interval(r.start_ns, r.end_ns);
  parts(io, r.part_ns);
  io.time(r.hidden_ns);
}
template <class Io, class T>
requires std::is_same_v<std::remove_const_t<T>, SpanRecord>
void fields(Io& io, T& r) {
  io.index(r.name, io.num_names);
  io.part(r.part);
  io.interval(r.start_ns, r.end_ns);
}
template <class Io, class T>
requires std::is_same_v<std::remove_const_t<T>, LedgerExchange>
void fields(Io& io, T& r) {
  io.index(r.name, io.num_names);
  io.index(r.phase, io.num_names);
  io.index(r.family, io.num_names);
  io.index(r.step, io.num_steps);
  io.plain(r.number);
  io.interval(r.start_ns, r.end_ns);
  io.size(r.logical_bytes);
  io.size(r.physical_bytes);
  io.size(r.internode_bytes);
  io.time(r.wait_ns);
  io.time(r.transfer_ns);
  io.plain(r.last_rank);
  parts(io, r.part_ns);
  io.time(r.off_cpu_ns);
  io.clock(r.approach.start_ns);
  parts(io, r.approach.part_ns);
  io.time(r.approach.off_cpu_ns);
  io.time(r.approach.planted_ns);
}
template <class Io, class T>
requires std::is_same_v<std::remove_const_t<T>, LedgerWait>
void fields(Io& io, T& r) {
  io.index(r.step, io.num_steps);
  io.index_or_none(r.exchange, io.num_exchanges);
  io.plain(r.peer);
  io.interval(r.start_ns, r.end_ns);
  io.time(r.idle_ns);
  io.time(r.off_cpu_ns);
}
template <class Io, class T>
requires std::is_same_v<std::remove_const_t<T>, LedgerFlow>
void fields(Io& io, T& r) {
  io.plain(r.peer);
  io.size(r.bytes);
  io.time(r.ns);
}
template <class Io, class T>
requires std::is_same_v<std::remove_const_t<T>, std::int64_t>
void fields(Io& io, T& count) {
  io.size(count);
}
template <class Io, class T>
requires std::is_same_v<std::remove_const_t<T>, std::string>
void fields(Io& io, T& text) {
  io.text(text);
}
template <class Io, class T>
requires std::is_same_v<std::remove_const_t<T>, std::vector<std::int64_t>>
void fields(Io& io, T& counts) {
  io.list(counts);
}

template <class Io, class T>
void ledger_fields(Io& io, T& ledger) {
  io.plain(ledger.rank);
  io.plain(ledger.node);
  io.clock(ledger.clock_offset_ns);
  io.list(ledger.names);
  io.num_names = ledger.names.size();
  io.list(ledger.steps);
  io.num_steps = ledger.steps.size();
  io.list(ledger.exchanges);
  io.num_exchanges = ledger.exchanges.size();
  io.list(ledger.waits);
  io.list(ledger.flows);
  io.list(ledger.spans);
  io.size(ledger.spans_dropped);
  io.size(ledger.records_dropped);
  io.list(ledger.expert_tokens);
  io.text(ledger.pinning);
  io.size(ledger.rows_reserved_bytes);
  io.size(ledger.rows_touched_bytes);
  io.size(ledger.weight_bytes);
  io.finite(ledger.flops);
}

class Writer {
 public:
  std::size_t num_names = 0, num_steps = 0, num_exchanges = 0;
  std::vector<std::byte> bytes;

  template <class T>
  void plain(const T& value) {
    const auto* data = reinterpret_cast<const std::byte*>(&value);
    bytes.insert(bytes.end(), data, data + sizeof(T));
  }
  void time(std::int64_t ns) { plain(ns); }
  void clock(std::int64_t ns) { plain(ns); }
  void size(std::int64_t count) { plain(count); }
  void finite(double value) { plain(value); }
  void part(Part part) { plain(part); }
  void index(std::int32_t i, std::size_t) { plain(i); }
  void index_or_none(std::int32_t i, std::size_t) { plain(i); }
  void interval(std::int64_t start, std::int64_t end) {
    plain(start);
    plain(end);
  }
  void text(const std::string& text) {
    plain(static_cast<std::uint64_t>(text.size()));
    const auto* data = reinterpret_cast<const std::byte*>(text.data());
    bytes.insert(bytes.end(), data, data + text.size());
  }
  template <class T>
  void list(const std::vector<T>& items) {
    plain(static_cast<std::uint64_t>(items.size()));
    for (const T& item : items) fields(*this, item);
  }
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::size_t num_names = 0, num_steps = 0, num_exchanges = 0;

  // The first thing wrong, and where; reading goes on harmlessly with zeros after it.
  const char* wrong() const { return wrong_; }
  std::size_t wrong_at() const { return wrong_at_; }
  std::size_t left() const { return bytes_.size() - at_; }
  void expect(bool ok, const char* what) {
    if (ok || wrong_) return;
    wrong_ = what;
    wrong_at_ = at_;
  }

  template <class T>
  void plain(T& value) {
    expect(left() >= sizeof(T), "it ends early");
    if (wrong_) {
      value = T{};
      return;
    }
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
  }
  void time(std::int64_t& ns) { bounded(ns, 0, kMaxTime, "a duration is out of range"); }
  void clock(std::int64_t& ns) { bounded(ns, -kMaxTime, kMaxTime, "a time is out of range"); }
  void size(std::int64_t& count) { bounded(count, 0, kMaxSize, "a size is out of range"); }
  void index(std::int32_t& i, std::size_t end) { bounded(i, 0, last(end), "an index is out of range"); }
  void index_or_none(std::int32_t& i, std::size_t end) { bounded(i, -1, last(end), "an index is out of range"); }
  void finite(double& value) {
    plain(value);
    expect(std::isfinite(value) && value >= 0, "a number is negative or not finite");
  }
  void part(Part& part) {
    std::uint8_t value = 0;
    plain(value);
    expect(value < kNumParts, "a part is unknown");
    part = wrong_ ? Part::kOther : static_cast<Part>(value);
  }
  void interval(std::int64_t& start, std::int64_t& end) {
    clock(start);
    clock(end);
    expect(start <= end, "an interval ends before it starts");
  }
  void text(std::string& text) {
    const std::size_t length = count(1);
    text.assign(reinterpret_cast<const char*>(bytes_.data()) + at_, length);
    at_ += length;
  }
  template <class T>
  void list(std::vector<T>& items) {
    // Every item takes at least 8 bytes, so a false count cannot make this allocate more than was sent.
    items.resize(count(sizeof(std::uint64_t)));
    for (T& item : items) {
      if (wrong_) return;
      fields(*this, item);
    }
  }

 private:
  static std::int64_t last(std::size_t end) { return static_cast<std::int64_t>(end) - 1; }
  template <class T>
  void bounded(T& value, std::int64_t low, std::int64_t high, const char* what) {
    plain(value);
    expect(value >= low && value <= high, what);
  }
  std::size_t count(std::size_t bytes_each) {
    std::uint64_t count = 0;
    plain(count);
    expect(count <= left() / bytes_each, "a count exceeds the bytes that follow");
    return wrong_ ? 0 : static_cast<std::size_t>(count);
  }

  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  const char* wrong_ = nullptr;
  std::size_t wrong_at_ = 0;
};

}  // namespace

std::vector<std::byte> RankLedger::to_bytes() const {
  Writer writer;
  writer.plain(kMagic);
  ledger_fields(writer, *this);
  return std::move(writer.bytes);
}

Result<RankLedger> RankLedger::from_bytes(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  std::uint64_t magic = 0;
  reader.plain(magic);
  reader.expect(magic == kMagic, "it does not start with a ledger's mark");
  RankLedger ledger;
  if (!reader.wrong()) ledger_fields(reader, ledger);
  reader.expect(reader.left() == 0, "bytes follow its end");
  if (reader.wrong()) {
    return fail(ErrorCode::kBadInput, fmt::format("a rank's ledger of {} bytes is damaged at byte {}: {}; all ranks "
                                                  "must run the same build",
                                                  bytes.size(), reader.wrong_at(), reader.wrong()));
  }
  return ledger;
}

}  // namespace moetax
