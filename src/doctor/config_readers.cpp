// JSON, YAML and TOML files of settings.
#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "doctor/readers.h"
#include "doctor/toml.h"
#include "moetax/base/text.h"

namespace moetax::doctor {
namespace {

constexpr std::size_t kMaxSettings = 20'000;  // aliases of YAML can multiply without end
constexpr std::size_t kMaxDepth = 64;

// Collects settings of one file.
class Collector {
 public:
  Collector(std::string_view text, const std::string& file) : lines_(split_lines(text)), file_(file) {}

  // `line` from 1; 0: unknown.
  void put(const std::string& path, std::string value, int line) {
    if (full()) return;
    std::string text;
    if (line >= 1 && static_cast<std::size_t>(line) <= lines_.size()) {
      text = shown_line(lines_[static_cast<std::size_t>(line) - 1]);
    }
    out_.settings.set({key_of(path), std::move(value), {file_, line, std::move(text)}});
  }
  bool full() const { return out_.settings.all().size() >= kMaxSettings; }
  void trouble(std::string what) {
    if (out_.trouble.empty()) out_.trouble = std::move(what);
  }
  SettingsFile take() {
    if (full()) trouble(fmt::format("more than {} settings, the rest was left out", kMaxSettings));
    return std::move(out_);
  }

 private:
  // A flag written as a key stands for itself, wherever it is.
  static std::string key_of(const std::string& path) {
    const std::size_t flag = path.rfind("--");
    if (flag != std::string::npos && (flag == 0 || path[flag - 1] == '.')) return flag_key(path.substr(flag));
    std::string key = path;
    std::replace(key.begin(), key.end(), '-', '_');
    return key;
  }

  std::vector<std::string_view> lines_;
  std::string file_;
  SettingsFile out_;
};

std::string below(const std::string& path, std::string_view key) {
  return path.empty() ? std::string(key) : fmt::format("{}.{}", path, key);
}

// ---- JSON -----------------------------------------------------------------------------------------------------------

// Counts lines as the parser goes through the text.
class LineCounter {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  LineCounter(const char* at, int* line) : at_(at), line_(line) {}
  const char& operator*() const { return *at_; }
  LineCounter& operator++() {
    if (*at_ == '\n') ++*line_;
    ++at_;
    return *this;
  }
  LineCounter operator++(int) {
    LineCounter before = *this;
    ++*this;
    return before;
  }
  bool operator==(const LineCounter& other) const { return at_ == other.at_; }
  bool operator!=(const LineCounter& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  int* line_;
};

using nlohmann::json;

// Takes the parser's events, so that nesting costs neither stack nor memory.
class JsonEvents : public nlohmann::json_sax<json> {
 public:
  JsonEvents(Collector& out, const int& line) : out_(out), line_(line) {}

  bool null() override { return value("null"); }
  bool boolean(bool v) override { return value(v ? "true" : "false"); }
  bool number_integer(number_integer_t v) override { return value(fmt::to_string(v)); }
  bool number_unsigned(number_unsigned_t v) override { return value(fmt::to_string(v)); }
  bool number_float(number_float_t v, const string_t&) override { return value(fmt::format("{:g}", v)); }
  bool string(string_t& v) override { return value(v); }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return open(false); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(true); }
  bool end_array() override {
    if (!levels_.empty() && !levels_.back().items.empty()) {
      out_.put(levels_.back().path, levels_.back().items, levels_.back().line);
    }
    return close();
  }
  bool key(string_t& v) override {
    key_ = v;
    key_line_ = line_;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    out_.trouble(fmt::format("line {}: not JSON from here on", line_));
    return false;
  }

 private:
  struct Level {
    std::string path;
    bool list = false;
    int line = 0;
    std::string items = {};
  };

  std::string path() const {
    if (levels_.empty()) return "";
    return levels_.back().list ? levels_.back().path : below(levels_.back().path, key_);
  }
  bool open(bool list) {
    if (levels_.size() >= kMaxDepth) {
      out_.trouble(fmt::format("line {}: nested deeper than {} levels", line_, kMaxDepth));
      return false;
    }
    levels_.push_back({path(), list, key_line_});
    return true;
  }
  bool close() {
    levels_.pop_back();
    return true;
  }
  bool value(const std::string& text) {
    if (levels_.empty()) return true;
    if (!levels_.back().list) {
      out_.put(path(), text, key_line_);
    } else if (std::string& items = levels_.back().items; items.size() < 4096) {
      items += (items.empty() ? "" : " ") + text;
    }
    return !out_.full();
  }

  Collector& out_;
  const int& line_;
  std::vector<Level> levels_;
  std::string key_;
  int key_line_ = 1;
};

// ---- YAML -----------------------------------------------------------------------------------------------------------

bool all_scalars(const YAML::Node& list) {
  return std::all_of(list.begin(), list.end(), [](const YAML::Node& item) { return item.IsScalar() || item.IsNull(); });
}

void walk(const YAML::Node& node, const std::string& path, int line, std::size_t depth, Collector& out) {
  if (depth > kMaxDepth || out.full()) return;
  if (node.IsScalar() || node.IsNull()) {
    out.put(path, node.IsNull() ? "null" : node.Scalar(), line);
  } else if (node.IsSequence() && all_scalars(node)) {
    std::string items;
    for (const YAML::Node& item : node) items += (items.empty() ? "" : " ") + (item.IsScalar() ? item.Scalar() : "");
    out.put(path, std::move(items), line);
  } else if (node.IsSequence()) {
    for (const YAML::Node& item : node) walk(item, path, item.Mark().line + 1, depth + 1, out);
  } else if (node.IsMap()) {
    for (const auto& entry : node) {
      if (!entry.first.IsScalar()) continue;
      walk(entry.second, below(path, entry.first.Scalar()), entry.first.Mark().line + 1, depth + 1, out);
    }
  }
}

// ---- TOML -----------------------------------------------------------------------------------------------------------

std::string toml_text(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
  if (const auto* whole = node.as_integer()) return fmt::to_string(whole->get());
  if (const auto* number = node.as_floating_point()) return fmt::format("{:g}", number->get());
  return "";
}

void walk(const toml::node& node, const std::string& path, std::size_t depth, Collector& out) {
  if (depth > kMaxDepth || out.full()) return;
  if (const auto* table = node.as_table()) {
    for (const auto& [key, value] : *table) walk(value, below(path, key.str()), depth + 1, out);
  } else if (const auto* list = node.as_array()) {
    std::string items;
    for (const toml::node& item : *list) {
      if (item.is_table()) walk(item, path, depth + 1, out);
      if (item.is_table()) continue;
      if (!items.empty()) items += ' ';
      items += toml_text(item);
    }
    if (!items.empty()) out.put(path, std::move(items), static_cast<int>(node.source().begin.line));
  } else {
    out.put(path, toml_text(node), static_cast<int>(node.source().begin.line));
  }
}

}  // namespace

SettingsFile read_json_settings(std::string_view text, const std::string& file) {
  Collector out(text, file);
  int line = 1;
  JsonEvents events(out, line);
  try {
    json::sax_parse(LineCounter(text.data(), &line), LineCounter(text.data() + text.size(), &line), &events,
                    nlohmann::detail::input_format_t::json, false, true);
  } catch (const json::exception&) {
    out.trouble(fmt::format("line {}: a number out of range", line));
  }
  return out.take();
}

SettingsFile read_yaml_settings(std::string_view text, const std::string& file) {
  Collector out(text, file);
  try {
    walk(YAML::Load(std::string(text)), "", 0, 0, out);
  } catch (const YAML::Exception& error) {
    out.trouble(fmt::format("line {}: not YAML: {}", error.mark.line + 1, error.msg));
  }
  return out.take();
}

SettingsFile read_toml_settings(std::string_view text, const std::string& file) {
  Collector out(text, file);
  // toml++ reaches undefined behaviour at some code points; no setting has any beyond ASCII.
  std::string ascii(text);
  std::replace_if(
      ascii.begin(), ascii.end(), [](char c) { return static_cast<unsigned char>(c) > 127; }, '?');
  try {
    walk(toml::parse(ascii, file), "", 0, out);
  } catch (const toml::parse_error& error) {
    out.trouble(fmt::format("line {}: not TOML: {}", error.source().begin.line, error.description()));
  }
  return out.take();
}

SettingsFile read_environment(std::string_view text, const std::string& file) {
  Collector out(text, file);
  int number = 0;
  for (const std::string_view line : split_lines(text)) {
    ++number;
    const std::size_t equals = line.find('=');
    if (equals != std::string_view::npos && equals > 0) {
      out.put(std::string(trim(line.substr(0, equals))), std::string(trim(line.substr(equals + 1))), number);
    }
  }
  return out.take();
}

std::string shown_line(std::string_view line) {
  constexpr std::size_t kLongest = 160;
  std::string shown(trim(line).substr(0, kLongest));
  for (char& c : shown) {
    if (static_cast<unsigned char>(c) < ' ' || c == 127) c = ' ';
  }
  return shown + (trim(line).size() > kLongest ? ".." : "");
}

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  Splitter rest(text, '\n');
  while (const auto line = rest.next()) lines.push_back(*line);
  return lines;
}

}  // namespace moetax::doctor
