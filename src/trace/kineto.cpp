#include "moetax/trace/kineto.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "moetax/base/byte_stream.h"
#include "moetax/base/text.h"
#include "trace/kineto_region.h"

namespace moetax {
namespace {

constexpr std::size_t kLongestEvent = std::size_t{256} << 20;
constexpr std::size_t kLongestValue = std::size_t{4} << 20;  // of a key beside the events that is looked at

// A window on the file that moves forward. One byte before and simdjson's padding behind may be written on.
class Window {
 public:
  Window(ByteStream& from, std::size_t chunk) : from_(from), chunk_(std::max<std::size_t>(chunk, 64)) {}

  char* begin() { return buffer_.data() + begin_; }
  char* end() { return buffer_.data() + end_; }
  bool at_file_end() const { return file_ended_; }
  std::size_t size() const { return end_ - begin_; }
  std::int64_t offset() const { return offset_; }
  void move_to(const char* at) {
    const auto n = static_cast<std::size_t>(at - begin());
    begin_ += n;
    offset_ += static_cast<std::int64_t>(n);
  }
  // Brings the window to `chunks` chunks, fewer only at the file's end.
  void fill(std::size_t chunks) {
    const std::size_t wanted = chunk_ * chunks;
    if (file_ended_ || size() >= wanted) return;
    if (buffer_.size() < 1 + wanted + simdjson::SIMDJSON_PADDING) {
      buffer_.resize(1 + wanted + simdjson::SIMDJSON_PADDING);
    }
    std::memmove(buffer_.data() + 1, begin(), size());
    end_ = 1 + size();
    begin_ = 1;
    const std::size_t room = 1 + wanted - end_;
    const std::size_t got = from_.read(end(), room);
    end_ += got;
    file_ended_ = got < room;
  }
  // The next byte, taken or not; -1 after the last.
  int peek() {
    if (begin_ == end_) fill(1);
    return begin_ == end_ ? -1 : static_cast<unsigned char>(buffer_[begin_]);
  }
  int next() {
    const int c = peek();
    if (c >= 0) ++begin_, ++offset_;
    return c;
  }

 private:
  ByteStream& from_;
  std::size_t chunk_;
  std::string buffer_ = std::string(1 + simdjson::SIMDJSON_PADDING, ' ');
  std::size_t begin_ = 1, end_ = 1;
  std::int64_t offset_ = 0;
  bool file_ended_ = false;
};

class KinetoFile {
 public:
  KinetoFile(ByteStream& bytes, const std::string& origin, const KinetoOptions& options)
      : bytes_(bytes), window_(bytes, options.chunk_bytes), regions_(trace_) {
    trace_.file = origin;
    trace_.kind = "pytorch-trace";
  }
  Result<GpuTrace> read();

 private:
  Unexpected not_a_trace(const std::string& why) const {
    return fail(ErrorCode::kBadInput, fmt::format("{}: {}", trace_.file, why));
  }
  int after_blanks();
  std::string string_text();
  std::string value_text();
  void read_keys();
  void read_events();
  void note_value(const std::string& key, const std::string& value);
  void note_job(const std::string& value);
  Result<void> check_events() const;
  std::string what_it_is() const;
  void cut(std::string why);

  ByteStream& bytes_;
  GpuTrace trace_;
  Window window_;
  KinetoRegions regions_;
  std::vector<std::string> keys_;
  bool has_events_ = false;
};

Result<GpuTrace> KinetoFile::read() {
  for (const char c : {'\xef', '\xbb', '\xbf'}) {
    if (window_.peek() == static_cast<unsigned char>(c)) window_.next();
  }
  const int first = after_blanks();
  if (first < 0 && !bytes_.trouble().empty()) return not_a_trace(bytes_.trouble());
  if (first < 0) return not_a_trace("is empty, expected a trace (torch.profiler's export_chrome_trace writes one)");
  if (first == '{') {
    window_.next();
    read_keys();
  } else if (first == '[') {
    window_.next();
    keys_.emplace_back("[");
    const int element = after_blanks();
    if (element == '{' || element == ']') read_events();
  } else {
    return not_a_trace(fmt::format(
        "begins with byte 0x{:02x}, expected JSON: a PyTorch trace begins with '{{' or '[' (also inside gzip or zstd)",
        first));
  }
  MOETAX_TRY(check_events());
  if (!bytes_.trouble().empty()) cut(bytes_.trouble());
  trace_.read.bytes = window_.offset();
  return std::move(trace_);
}

int KinetoFile::after_blanks() {
  int c = window_.peek();
  while (c == ' ' || c == '\n' || c == '\r' || c == '\t') {
    window_.next();
    c = window_.peek();
  }
  return c;
}

// The text of a string whose opening quote is next.
std::string KinetoFile::string_text() {
  std::string text;
  window_.next();
  for (int c = window_.next(); c >= 0 && c != '"'; c = window_.next()) {
    if (c == '\\') {
      text += '\\';
      c = window_.next();
    }
    if (c >= 0 && text.size() < kLongestValue) text += static_cast<char>(c);
  }
  return text;
}

// A value as it stands, up to the comma or brace behind it; what is longer than anybody needs comes back empty.
std::string KinetoFile::value_text() {
  std::string text;
  int depth = 0;
  bool in_string = false;
  for (;;) {
    const int c = window_.peek();
    if (c < 0) break;
    if (!in_string && depth == 0 && (c == ',' || c == '}' || c == ']')) break;
    window_.next();
    if (text.size() <= kLongestValue) text += static_cast<char>(c);
    if (c == '"') in_string = !in_string;
    if (in_string && c == '\\') {
      const int escaped = window_.next();
      if (escaped >= 0 && text.size() <= kLongestValue) text += static_cast<char>(escaped);
    }
    if (in_string) continue;
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
  }
  return text.size() > kLongestValue ? std::string() : text;
}

void KinetoFile::read_keys() {
  for (;;) {
    int c = after_blanks();
    if (c == '}') {
      window_.next();
      return;
    }
    if (c < 0) return cut("ends before the JSON does");
    if (c != '"') {
      window_.next();
      continue;
    }
    const std::string key = string_text();
    if (after_blanks() == ':') window_.next();
    c = after_blanks();
    if (keys_.size() < 64) keys_.push_back(key);
    if (key == "traceEvents" && c == '[') {
      window_.next();
      read_events();
    } else {
      note_value(key, value_text());
    }
  }
}

void KinetoFile::read_events() {
  has_events_ = true;
  std::size_t chunks = 1;
  for (;;) {
    int c = after_blanks();
    while (c == ',') {
      window_.next();
      c = after_blanks();
    }
    if (c < 0) return cut("ends inside the list of events");
    if (c == ']') {
      window_.next();
      return;
    }
    window_.fill(chunks);
    const bool last = window_.at_file_end();
    char* begin = window_.begin();
    char* end = window_.end();
    if (!last) end = const_cast<char*>(last_boundary(begin, end));
    const RegionEnd reached = end ? regions_.take(begin, end, last, window_.offset()) : RegionEnd{begin};
    window_.move_to(reached.at);
    if (reached.list_ended) return;
    if (last && window_.size() == 0) return cut("ends inside the list of events");
    chunks = reached.at == begin ? chunks * 2 : 1;
    if (window_.size() > kLongestEvent) return cut("has an event of more than 256 MiB; what follows it was not read");
  }
}

void KinetoFile::cut(std::string why) {
  trace_.read.cut = true;
  if (trace_.read.cut_why.empty()) trace_.read.cut_why = std::move(why);
}

void KinetoFile::note_value(const std::string& key, const std::string& value) {
  if (key == "distributedInfo") return note_job(value);
  const auto text = [&] {
    const auto json = nlohmann::json::parse(value, nullptr, false);
    return json.is_string() ? json.get<std::string>() : std::string();
  };
  if (key == "host_name" || key == "hostname") trace_.host = text();
  if (key == "trace_id" || key == "job_id") trace_.job = text();
  if (key != "deviceProperties") return;
  const auto json = nlohmann::json::parse(value, nullptr, false);
  if (!json.is_array()) return;
  for (const auto& device : json) {
    if (device.is_object() && device.contains("name") && device["name"].is_string()) {
      trace_.devices.push_back(device["name"].get<std::string>());
    }
  }
}

void KinetoFile::note_job(const std::string& value) {
  const auto json = nlohmann::json::parse(value, nullptr, false);
  if (!json.is_object()) return;
  const auto whole = [&](const char* key) {
    const auto at = json.find(key);
    const bool fits = at != json.end() && at->is_number_unsigned() && at->get<std::uint64_t>() < (1u << 24);
    return fits ? at->get<int>() : -1;
  };
  trace_.rank = whole("rank");
  trace_.world_size = whole("world_size");
  if (json.contains("backend") && json["backend"].is_string()) trace_.backend = json["backend"].get<std::string>();
}

Result<void> KinetoFile::check_events() const {
  if (has_events_ && (regions_.saw_phase() || trace_.read.events == trace_.read.damaged) &&
      (trace_.read.events == 0 || trace_.read.events > trace_.read.damaged)) {
    return {};
  }
  return not_a_trace(what_it_is());
}

std::string KinetoFile::what_it_is() const {
  const auto has = [&](const char* key) { return std::find(keys_.begin(), keys_.end(), key) != keys_.end(); };
  if (has_events_)
    return "has no event that can be read, expected those of a trace (\"ph\", \"ts\", \"dur\", \"name\")";
  if (has("[")) return "is a list without events, as a raw memory timeline is; expected a trace with \"traceEvents\"";
  if (has("nodes") && has("schema")) {
    return "is an execution trace, which has a graph but not when kernels ran; expected what torch.profiler's "
           "export_chrome_trace writes";
  }
  if (has("segments") || has("device_traces")) return "is a memory snapshot; expected a trace with \"traceEvents\"";
  std::string keys;
  for (std::size_t i = 0; i < std::min<std::size_t>(keys_.size(), 5); ++i) {
    keys += (i > 0 ? ", " : "") + in_quotes(keys_[i]);
  }
  return fmt::format("has no \"traceEvents\", expected a trace; its keys are {}", keys.empty() ? "none" : keys);
}

}  // namespace

Result<GpuTrace> read_kineto(const std::string& path, const KinetoOptions& options) {
  MOETAX_ASSIGN(const auto bytes, open_bytes(path));
  return KinetoFile(*bytes, path, options).read();
}

Result<GpuTrace> parse_kineto(std::string_view text, const std::string& origin, const KinetoOptions& options) {
  const auto bytes = bytes_of(text);
  return KinetoFile(*bytes, origin, options).read();
}

}  // namespace moetax
