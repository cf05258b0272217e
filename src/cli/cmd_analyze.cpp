// moetax analyze: the bill of a job from the traces of its ranks.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <optional>

#include "cli/analyze_inputs.h"
#include "cli/cli.h"
#include "cli/output_file.h"
#include "moetax/base/file.h"
#include "moetax/report/bill.h"
#include "moetax/version.h"

namespace moetax::cli {
namespace {

struct AnalyzeOptions {
  std::vector<std::string> paths;
  std::vector<Rank> ranks;
  std::string json, trace, rules;
  bool redact = false;
};

Result<std::optional<AnalyzeOptions>> parse(int argc, char** argv) {
  AnalyzeOptions options;
  CLI::App app("The bill of a job from traces of its ranks: exposed and hidden communication, waiting and transfer.",
               "moetax analyze");
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_option(
         "paths", options.paths,
         "PyTorch profiler traces (JSON, gzip, zstd), SQLite exports of Nsight Systems, tables and dumps of NCCL and "
         "PyTorch, or folders of them")
      ->required()
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--json", options.json, "write the bill as JSON (- for standard output, instead of the text)");
  app.add_option("--trace", options.trace, "write the kernels of all ranks on one clock, for ui.perfetto.dev");
  app.add_option("--rules", options.rules, "more rules on names of kernels, tried before those built in");
  app.add_option("--rank", options.ranks, "only these ranks")
      ->delimiter(',')
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_flag("--redact", options.redact, "no names of files in what is printed");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return std::optional<AnalyzeOptions>();
  } catch (const CLI::ParseError& error) {
    return fail(ErrorCode::kUsage, fmt::format("analyze: {} (moetax analyze --help lists the options)", error.what()));
  }
  return std::optional(std::move(options));
}

void replace_all(std::string& text, const std::string& what, const std::string& by) {
  for (std::size_t at = text.find(what); !what.empty() && at != std::string::npos;
       at = text.find(what, at + by.size())) {
    text.replace(at, what.size(), by);
  }
}

// Reasons name other files too; of names that begin alike the longer ones go first.
void redact(Bill& bill) {
  std::vector<std::pair<std::string, std::string>> names;
  for (BillSource& source : bill.sources) {
    names.emplace_back(source.file, fmt::format("file {}", names.size() + 1));
    source.file = names.back().second;
  }
  std::sort(names.begin(), names.end(), [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
  for (BillSource& source : bill.sources) {
    for (const auto& [name, shown] : names) replace_all(source.why, name, shown);
  }
}

// What has no time line, each below its file's name.
std::string tables_text(const std::vector<TableInput>& tables, bool redacted) {
  std::string text;
  for (std::size_t i = 0; i < tables.size(); ++i) {
    const std::string name = redacted ? fmt::format("table {}", i + 1) : tables[i].file;
    text += fmt::format("{}{}: {}\n{}", i > 0 ? "\n" : "", name, tables[i].table.kind, tables[i].table.text);
  }
  return text;
}

Result<int> show_tables(const AnalyzeOptions& options, const TraceInputs& inputs) {
  if (!options.json.empty() || !options.trace.empty()) {
    return fail(ErrorCode::kBadInput,
                fmt::format("{}: is a {} without times of day; no bill and no timeline can be made "
                            "of it, only the text",
                            inputs.tables.front().file, inputs.tables.front().table.kind));
  }
  MOETAX_TRY(write_text("-", tables_text(inputs.tables, options.redact)));
  return 0;
}

Result<int> run(const AnalyzeOptions& options) {
  MOETAX_TRY(check_writable(options.json));
  MOETAX_TRY(check_writable(options.trace));
  KernelRules rules;
  if (!options.rules.empty()) {
    MOETAX_ASSIGN(const std::string text, read_text_file(options.rules, std::size_t{1} << 20));
    MOETAX_TRY(rules.add(text, options.rules));
  }
  const bool shows = isatty(STDERR_FILENO) != 0;
  const auto say = [&](const std::string& what) {
    if (shows) std::fprintf(stderr, "\r\033[K%s", what.c_str());
  };
  auto inputs = read_inputs(options.paths, options.ranks, rules, say);
  say("");
  if (!inputs) return Unexpected(std::move(inputs.error()));
  if (inputs->traces.empty()) return show_tables(options, *inputs);
  const Analysis analysis = analyze(inputs->traces, rules);
  Bill bill = bill_of_traces(inputs->traces, analysis);
  bill.tool_version = MOETAX_VERSION_STRING;
  bill.sources = std::move(inputs->sources);
  if (options.redact) redact(bill);
  if (options.json != "-") {
    const std::string tables = tables_text(inputs->tables, options.redact);
    MOETAX_TRY(write_text("-", to_text(bill) + (tables.empty() ? "" : "\n" + tables)));
  }
  if (!options.json.empty()) MOETAX_TRY(write_text(options.json, to_json(bill)));
  if (!options.trace.empty()) MOETAX_TRY(write_text(options.trace, to_chrome_trace(inputs->traces, analysis, rules)));
  return 0;
}

}  // namespace

int cmd_analyze(int argc, char** argv) {
  const auto options = parse(argc, argv);
  if (!options) return report_error(options.error());
  if (!*options) return 0;
  const auto status = run(**options);
  return status ? *status : report_error(status.error());
}

}  // namespace moetax::cli
