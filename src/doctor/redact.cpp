// Makes a report fit to be shown: what names a person, a place or a machine becomes a stand-in that stays the same
// throughout the report.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "moetax/doctor/doctor.h"

namespace moetax::doctor {
namespace {

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.' || c == '/' || c == '~' ||
         c == '@' || c == '+' || c == ':';
}

bool is_address(std::string_view word) {
  const std::string_view host = word.substr(0, word.find(':'));
  return std::count(host.begin(), host.end(), '.') == 3 && std::all_of(host.begin(), host.end(), [](char c) {
           return std::isdigit(static_cast<unsigned char>(c)) || c == '.';
         });
}

// "node017:123:456" at the beginning of log lines, "user@host", "gpu-node-3.cluster.local".
bool is_host(std::string_view word) {
  if (word.find('@') != std::string_view::npos) return true;
  if (word.ends_with(".local") || word.ends_with(".internal") || word.ends_with(".com")) return true;
  const std::size_t colon = word.find(':');
  return colon != std::string_view::npos && colon > 0 && std::isalpha(static_cast<unsigned char>(word[0])) &&
         std::count(word.begin(), word.end(), ':') >= 2 && std::isdigit(static_cast<unsigned char>(word[colon + 1]));
}

bool is_path(std::string_view word) {
  const bool rate = word == "GB/s" || word == "MB/s" || word.starts_with("tok") || word.starts_with("NET/");
  return !rate && (word.starts_with("/") || word.starts_with("~/") || word.starts_with("./") ||
                   word.starts_with("../") || std::count(word.begin(), word.end(), '/') >= 2);
}

class Redactor {
 public:
  std::string file(const std::string& name) {
    if (name.empty()) return name;
    // Models are called by the folder of their config.json.
    const std::size_t slash = name.rfind('/');
    const std::string folder = slash == std::string::npos ? "" : name.substr(0, slash);
    const std::string last = folder.substr(folder.rfind('/') + 1);
    if (last.size() > 2) stand_in("folder", last, folders_);
    return stand_in("file", name, files_);
  }

  std::string text(std::string_view text) {
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
      if (!is_word(text[at])) {
        out += text[at++];
        continue;
      }
      std::size_t end = at;
      while (end < text.size() && is_word(text[end])) ++end;
      out += word(text.substr(at, end - at));
      at = end;
    }
    return out;
  }

 private:
  std::string word(std::string_view word) {
    if (const auto it = files_.find(std::string(word)); it != files_.end()) return it->second;
    if (const auto it = folders_.find(std::string(word)); it != folders_.end()) return it->second;
    if (is_address(word)) return stand_in("address", std::string(word.substr(0, word.find(':'))), addresses_);
    if (is_host(word)) {
      const std::size_t colon = std::min(word.find(':'), word.size());
      return stand_in("host", std::string(word.substr(0, colon)), hosts_) + std::string(word.substr(colon));
    }
    if (is_path(word)) return stand_in("path", std::string(word), paths_);
    return std::string(word);
  }

  static std::string stand_in(const char* kind, const std::string& name, std::map<std::string, std::string>& known) {
    const auto [it, fresh] = known.try_emplace(name);
    if (fresh) it->second = fmt::format("{}-{}", kind, known.size());
    return it->second;
  }

  std::map<std::string, std::string> files_, folders_, addresses_, hosts_, paths_;
};

void redact(Finding& finding, Redactor& redactor) {
  for (Evidence& evidence : finding.evidence) {
    evidence.file = redactor.file(evidence.file);
    evidence.text = redactor.text(evidence.text);
  }
  for (std::string* text : {&finding.title, &finding.cause, &finding.cost.text, &finding.fix})
    *text = redactor.text(*text);
}

}  // namespace

void redact(Examination& examination) {
  Redactor redactor;
  for (Checked& checked : examination.checked) checked.file = redactor.file(checked.file);
  for (Skipped& skipped : examination.skipped) {
    skipped.file = redactor.file(skipped.file);
    skipped.why = redactor.text(skipped.why);
  }
  for (const Finding& finding : examination.findings) {
    for (const Evidence& evidence : finding.evidence) redactor.file(evidence.file);
  }
  for (std::string& line : examination.understood) line = redactor.text(line);
  for (Finding& finding : examination.findings) redact(finding, redactor);
  for (Ignored& ignored : examination.ignored) {
    redact(ignored.finding, redactor);
    ignored.reason = redactor.text(ignored.reason);
  }
}

}  // namespace moetax::doctor
