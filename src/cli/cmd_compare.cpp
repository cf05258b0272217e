// moetax compare: two bills side by side, of runs or of traces.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "cli/analyze_inputs.h"
#include "cli/cli.h"
#include "cli/output_file.h"
#include "moetax/base/file.h"
#include "moetax/base/text.h"
#include "moetax/report/compare.h"
#include "moetax/version.h"

namespace moetax::cli {
namespace {

struct CompareOptions {
  std::string before, after, json;
};

Result<std::optional<CompareOptions>> parse(int argc, char** argv) {
  CompareOptions options;
  CLI::App app("What changed between two jobs, what did not, and whether it is more than noise.", "moetax compare");
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_option("before", options.before, "a bill (bench --json, analyze --json), a trace, or a folder of traces")
      ->required();
  app.add_option("after", options.after, "the same")->required();
  app.add_option("--json", options.json, "write the comparison as JSON (- for standard output, instead of the text)");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return std::optional<CompareOptions>();
  } catch (const CLI::ParseError& error) {
    return fail(ErrorCode::kUsage, fmt::format("compare: {} (moetax compare --help lists the options)", error.what()));
  }
  return std::optional(std::move(options));
}

// The text of a file that says it is a bill; nothing for what may be a trace.
Result<std::optional<std::string>> bill_text(const std::string& path) {
  constexpr std::size_t kMaxBillBytes = std::size_t{64} << 20;
  std::error_code failed;
  if (std::filesystem::is_directory(path, failed)) return std::optional<std::string>();
  const auto size = std::filesystem::file_size(path, failed);
  if (failed || size > kMaxBillBytes) return std::optional<std::string>();  // whatever is wrong is told by who reads it
  MOETAX_ASSIGN(std::string text, read_text_file(path, kMaxBillBytes));
  constexpr std::size_t kHead = 4096;
  if (std::string_view(text).substr(0, kHead).find("moetax.bill/") == std::string_view::npos) {
    return std::optional<std::string>();
  }
  return std::optional(std::move(text));
}

Result<ComparedBill> read_side(const std::string& path) {
  MOETAX_ASSIGN(const auto text, bill_text(path));
  if (text) return parse_compared(*text, path);
  const KernelRules rules;
  const bool shows = isatty(STDERR_FILENO) != 0;
  const auto say = [&](const std::string& what) {
    if (shows) std::fprintf(stderr, "\r\033[K%s", what.c_str());
  };
  auto inputs = read_inputs({path}, {}, rules, say);
  say("");
  if (!inputs) return Unexpected(std::move(inputs.error()));
  if (inputs->traces.empty()) {
    return fail(ErrorCode::kBadInput,
                fmt::format("{}: holds no time line: bills and traces can be compared, not tables", in_quotes(path)));
  }
  Bill bill = bill_of_traces(inputs->traces, analyze(inputs->traces, rules));
  bill.tool_version = MOETAX_VERSION_STRING;
  return parse_compared(to_json(bill), path);
}

Result<int> run(const CompareOptions& options) {
  MOETAX_TRY(check_writable(options.json));
  MOETAX_ASSIGN(ComparedBill before, read_side(options.before));
  MOETAX_ASSIGN(ComparedBill after, read_side(options.after));
  const Comparison comparison = compare(std::move(before), std::move(after));
  if (options.json != "-") MOETAX_TRY(write_text("-", to_text(comparison)));
  if (!options.json.empty()) MOETAX_TRY(write_text(options.json, to_json(comparison)));
  return 0;
}

}  // namespace

int cmd_compare(int argc, char** argv) {
  const auto options = parse(argc, argv);
  if (!options) return report_error(options.error());
  if (!*options) return 0;
  const auto status = run(**options);
  return status ? *status : report_error(status.error());
}

}  // namespace moetax::cli
