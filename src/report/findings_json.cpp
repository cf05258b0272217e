// moetax.findings/1.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "moetax/report/findings.h"
#include "moetax/version.h"

namespace moetax {
namespace {

using Json = nlohmann::ordered_json;

Json number(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? Json(*value) : Json(nullptr);
}

Json finding_json(const doctor::Finding& finding) {
  Json evidence = Json::array();
  for (const doctor::Evidence& seen : finding.evidence) {
    evidence.push_back(
        {{"file", seen.file}, {"line", seen.line > 0 ? Json(seen.line) : Json(nullptr)}, {"text", seen.text}});
  }
  return {{"id", finding.id},
          {"severity", doctor::to_string(finding.severity)},
          {"title", finding.title},
          {"cause", finding.cause},
          {"evidence", evidence},
          {"cost",
           {{"text", finding.cost.text},
            {"us", number(finding.cost.us)},
            {"bytes", number(finding.cost.bytes)},
            {"share", number(finding.cost.share)}}},
          {"fix", finding.fix},
          {"confidence", doctor::to_string(finding.confidence)},
          {"fingerprint", fingerprint(finding)}};
}

}  // namespace

std::string to_json(const doctor::Examination& examination) {
  Json checked = Json::array(), skipped = Json::array(), findings = Json::array(), ignored = Json::array();
  for (const auto& item : examination.checked) checked.push_back({{"file", item.file}, {"kind", item.kind}});
  for (const auto& item : examination.skipped) skipped.push_back({{"file", item.file}, {"why", item.why}});
  for (const auto& item : examination.findings) findings.push_back(finding_json(item));
  for (const auto& item : examination.ignored) {
    ignored.push_back({{"finding", finding_json(item.finding)}, {"reason", item.reason}});
  }
  const Json json = {{"schema", "moetax.findings/1"},
                     {"tool_version", MOETAX_VERSION_STRING},
                     {"checked", checked},
                     {"skipped", skipped},
                     {"understood", examination.understood},
                     {"findings", findings},
                     {"ignored", ignored}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

// FNV-1a, of what stays when a file grows or lines move.
std::string fingerprint(const doctor::Finding& finding) {
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto mix = [&](std::string_view text) {
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    hash = (hash ^ 0xff) * 0x100000001b3;
  };
  mix(finding.id);
  if (!finding.evidence.empty()) {
    mix(finding.evidence.front().file);
    mix(finding.evidence.front().text);
  }
  return fmt::format("{:016x}", hash);
}

Result<std::set<std::string>> parse_baseline(std::string_view text, const std::string& name) {
  const auto bad = [&] {
    return fail(ErrorCode::kBadInput, name + ": expected moetax.findings/1, as moetax doctor --json writes it");
  };
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("schema") || json["schema"] != "moetax.findings/1") return bad();
  std::set<std::string> accepted;
  const auto take = [&](const Json& finding) {
    if (finding.is_object() && finding.contains("fingerprint") && finding["fingerprint"].is_string()) {
      accepted.insert(finding["fingerprint"].get<std::string>());
    }
  };
  if (!json.contains("findings") || !json["findings"].is_array()) return bad();
  for (const Json& finding : json["findings"]) take(finding);
  if (json.contains("ignored") && json["ignored"].is_array()) {
    for (const Json& item : json["ignored"]) {
      if (item.is_object() && item.contains("finding")) take(item["finding"]);
    }
  }
  return accepted;
}

}  // namespace moetax
