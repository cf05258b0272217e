#include "moetax/trace/chrome_trace.h"

#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>

namespace moetax {
namespace {

std::string quoted(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string quoted(const std::variant<std::int64_t, std::string>& value) {
  if (const auto* number = std::get_if<std::int64_t>(&value)) return fmt::format("{}", *number);
  return quoted(std::string_view(std::get<std::string>(value)));
}

// Microseconds with all digits of the nanoseconds; a double would lose them after a few days of uptime.
std::string microseconds(std::int64_t ns) {
  const bool negative = ns < 0;
  const std::uint64_t size =
      negative ? std::uint64_t{0} - static_cast<std::uint64_t>(ns) : static_cast<std::uint64_t>(ns);
  return fmt::format("{}{}.{:03}", negative ? "-" : "", size / 1000, size % 1000);
}

}  // namespace

ChromeTrace::ChromeTrace(std::int64_t origin_ns)
    : origin_ns_(origin_ns), out_("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[") {}

void ChromeTrace::open(const char* phase, std::string_view name, int process, int track) {
  out_ += out_.back() == '[' ? "\n" : ",\n";
  fmt::format_to(std::back_inserter(out_), R"({{"ph":"{}","name":{},"pid":{},"tid":{})", phase, quoted(name), process,
                 track);
}

void ChromeTrace::metadata(const char* kind, int process, int track, const std::string& args) {
  open("M", kind, process, track);
  fmt::format_to(std::back_inserter(out_), R"(,"args":{{{}}}}})", args);
}

void ChromeTrace::name_process(int process, std::string_view name) {
  metadata("process_name", process, 0, "\"name\":" + quoted(name));
  metadata("process_sort_index", process, 0, fmt::format("\"sort_index\":{}", process));
}

void ChromeTrace::name_track(int process, int track, std::string_view name) {
  metadata("thread_name", process, track, "\"name\":" + quoted(name));
  metadata("thread_sort_index", process, track, fmt::format("\"sort_index\":{}", track));
}

void ChromeTrace::slice(const TraceSlice& slice) {
  open("X", slice.name, slice.process, slice.track);
  fmt::format_to(std::back_inserter(out_), R"(,"cat":{},"ts":{},"dur":{})", quoted(std::string_view(slice.category)),
                 microseconds(slice.start_ns - origin_ns_), microseconds(slice.end_ns - slice.start_ns));
  const char* separator = ",\"args\":{";
  for (const TraceArg& arg : slice.args) {
    fmt::format_to(std::back_inserter(out_), "{}{}:{}", separator, quoted(std::string_view(arg.key)),
                   quoted(arg.value));
    separator = ",";
  }
  out_ += slice.args.empty() ? "}" : "}}";
}

void ChromeTrace::arrow(std::string_view name, TracePoint from, TracePoint to) {
  const std::int64_t id = num_arrows_++;
  open("s", name, from.process, from.track);
  fmt::format_to(std::back_inserter(out_), R"(,"cat":"flow","id":{},"ts":{}}})", id,
                 microseconds(from.at_ns - origin_ns_));
  open("f", name, to.process, to.track);
  fmt::format_to(std::back_inserter(out_), R"(,"cat":"flow","id":{},"bp":"e","ts":{}}})", id,
                 microseconds(to.at_ns - origin_ns_));
}

std::string ChromeTrace::finish() && {
  out_ += "\n]}\n";
  return std::move(out_);
}

}  // namespace moetax
