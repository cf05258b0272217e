// Reading traces, against a bare walk over the same text: on demand, six keys of every event, nothing kept.
//
//   bench_trace                      a generated text in memory
//   bench_trace FILE                 the same of a file (unpacked), which is read whole for the walk
//   bench_trace --generate N FILE    writes a trace of N events and reads it in chunks
#include <fmt/format.h>
#include <simdjson.h>
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "harness.h"
#include "moetax/trace/kineto.h"
#include "trace_text.h"

namespace moetax::bench {
namespace {

namespace json = simdjson::ondemand;

// What the walk found, so that it is not optimised away.
struct Walked {
  std::int64_t events = 0;
  std::size_t bytes = 0;
};

Walked walk(json::parser& parser, const simdjson::padded_string& text) {
  Walked walked;
  json::document document;
  json::array events;
  if (parser.iterate(text).get(document) || document["traceEvents"].get_array().get(events)) return walked;
  for (auto element : events) {
    json::object event;
    if (element.get_object().get(event)) return walked;
    for (const char* key : {"cat", "name", "pid", "tid", "ts", "dur"}) {
      json::value value;
      if (!event.find_field_unordered(key).get(value)) walked.bytes += value.raw_json_token().size();
    }
    ++walked.events;
  }
  return walked;
}

bool compare(const std::string& what, const std::string& text) {
  const simdjson::padded_string padded(text);
  json::parser parser;
  Walked walked;
  std::int64_t read = 0;
  const auto ours = [&] {
    const auto trace = parse_kineto(text, what);
    read = trace ? trace->read.events : -1;
  };
  const auto bare = [&] { walked = walk(parser, padded); };
  const auto timings = interleave({{"read", ours}, {"walk", bare}});
  if (read < 0 || read != walked.events) {
    std::fprintf(stderr, "%s: read %lld events, walked over %lld\n", what.c_str(), static_cast<long long>(read),
                 static_cast<long long>(walked.events));
    return false;
  }
  const auto megabytes = static_cast<double>(text.size()) * 1e-6;
  print_row(fmt::format("trace {}: {:.0f} MB, {} events, {:.0f} MB/s", what, megabytes, read,
                        megabytes / timings[0].median_us * 1e6),
            timings[0], "bare walk", timings[1], timings[1].median_us / timings[0].median_us,
            "of the walk's speed; reach 0.60 and 500 MB/s");
  return true;
}

bool generate(std::int64_t events, const char* path) {
  {
    std::ofstream file(path, std::ios::binary);
    std::string text = trace_head();
    for (std::int64_t i = 0; i < events; ++i) {
      append_event(i, text);
      if (text.size() < (1 << 20)) continue;
      file << text;
      text.clear();
    }
    file << text << trace_tail();
    if (!file.flush()) return false;
  }
  const std::int64_t start = now_ns();
  const auto trace = read_kineto(path);
  const double seconds = static_cast<double>(now_ns() - start) * 1e-9;
  if (!trace) {
    std::fprintf(stderr, "%s\n", trace.error().message.c_str());
    return false;
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto kept = static_cast<double>(trace->events.size()) * sizeof(GpuEvent) / (1 << 20);
  std::printf(
      "trace of %lld events, %.2f GB: %.2f s, %.0f MB/s; %.0f MiB of events kept, %.0f MiB at the most "
      "(reach 1.5 times the events and 256 MiB: %.0f)\n",
      static_cast<long long>(events), static_cast<double>(trace->read.bytes) * 1e-9, seconds,
      static_cast<double>(trace->read.bytes) * 1e-6 / seconds, kept, static_cast<double>(usage.ru_maxrss) / 1024,
      1.5 * kept + 256);
  return true;
}

}  // namespace
}  // namespace moetax::bench

int main(int argc, char** argv) {
  using namespace moetax::bench;
  if (argc == 4 && std::string(argv[1]) == "--generate") return generate(std::atoll(argv[2]), argv[3]) ? 0 : 1;
  std::string text;
  if (argc > 1) {
    std::ifstream file(argv[1], std::ios::binary);
    text.assign(std::istreambuf_iterator<char>(file), {});
  } else {
    text = trace_head();
    for (std::int64_t i = 0; i < 200'000; ++i) append_event(i, text);
    text += trace_tail();
  }
  return compare(argc > 1 ? argv[1] : "generated", text) ? 0 : 1;
}
