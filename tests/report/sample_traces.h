// A small job's traces with planted waits, as the reader would give them.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "moetax/analyze/analysis.h"
#include "moetax/report/bill.h"
#include "moetax/trace/kineto.h"

namespace moetax::sample {

// Rank 1 computes 3 ms longer before the exchange, which takes 0.5 ms; rank 0 hides 0.1 ms of it.
inline Bill trace_bill(int ranks) {
  const auto kernel = [](const char* name, int stream, int ts, int dur) {
    return fmt::format(R"({{"ph":"X","cat":"kernel","name":"{}","pid":0,"tid":{},"ts":{},"dur":{},"args":{{}}}},)",
                       name, stream, ts, dur);
  };
  std::vector<GpuTrace> traces;
  for (int r = 0; r < ranks; ++r) {
    std::string text =
        fmt::format(R"({{"distributedInfo":{{"rank":{},"world_size":2}},"deviceProperties":[{{"name":"G"}}],)"
                    R"("traceEvents":[)",
                    r);
    const int arrival = r == 1 ? 4000 : 1000;
    text += kernel("gemm(int)", 7, 0, arrival);
    text += kernel("void ep::intranode::dispatch<8>(int)", 20, arrival, 4500 - arrival);
    text += kernel("my_all_to_all_helper(int)", 7, 4400, 100);
    text += kernel("gemm(int)", 7, 5000, 1000);
    text += R"({"ph":"X","cat":"user_annotation","name":"ProfilerStep#3","pid":1,"tid":1,"ts":0,"dur":5800}]})";
    traces.push_back(parse_kineto(text, fmt::format("rank{}.json", r)).value());
  }
  Bill bill = bill_of_traces(traces, analyze(traces, KernelRules()));
  bill.tool_version = "0.0.0";
  for (const GpuTrace& trace : traces) bill.sources.push_back({trace.file, trace.kind, trace.rank, 5, 0});
  bill.sources.push_back({"notes.txt", "", kNoRank, 0, 0, "is empty, expected a trace"});
  return bill;
}

}  // namespace moetax::sample
