// Shell scripts: which commands start jobs, and with what settings.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "doctor/readers.h"
#include "doctor/shell_words.h"
#include "moetax/base/text.h"

namespace moetax::doctor {
namespace {

std::string_view base_name(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

// The length of NAME in "NAME=..." or "NAME+=...", 0 where it is no assignment.
std::size_t assigned_name(std::string_view word) {
  std::size_t length = 0;
  while (length < word.size() && (std::isalnum(static_cast<unsigned char>(word[length])) || word[length] == '_')) {
    ++length;
  }
  if (length == 0 || std::isdigit(static_cast<unsigned char>(word[0]))) return 0;
  return word.substr(length).starts_with("=") || word.substr(length).starts_with("+=") ? length : 0;
}

bool is_capital(std::string_view name) {
  return std::none_of(name.begin(), name.end(), [](char c) { return c >= 'a' && c <= 'z'; });
}

// "key=value" as configuration tools take it: trainer.nnodes=2, +model.moe=true.
bool is_override(std::string_view word) {
  const std::size_t equals = word.find('=');
  if (equals == std::string_view::npos || equals == 0) return false;
  return std::all_of(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(equals), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '+' || c == '-';
  });
}

bool is_flag(std::string_view word) {
  return word.size() >= 2 && word[0] == '-' && !std::isdigit(static_cast<unsigned char>(word[1])) && word[1] != '.';
}

// ---- what starts a job ----------------------------------------------------------------------------------------------

constexpr std::array<std::string_view, 9> kLaunchers = {"torchrun",         "deepspeed",  "trtllm-serve",
                                                        "llama-server",     "llama-cli",  "llama-bench",
                                                        "llamafactory-cli", "torchtitan", "megatron"};
constexpr std::array<std::string_view, 12> kModules = {"torch.distributed.run",
                                                       "torch.distributed.launch",
                                                       "vllm.entrypoints.openai.api_server",
                                                       "vllm.entrypoints.api_server",
                                                       "sglang.launch_server",
                                                       "accelerate.commands.launch",
                                                       "verl.trainer",
                                                       "axolotl.cli",
                                                       "openrlhf.cli",
                                                       "tensorrt_llm.commands.serve",
                                                       "nemo_automodel",
                                                       "dynamo."};
constexpr std::array<std::string_view, 9> kRunners = {"python", "python3", "bash",    "sh",   "sbatch",
                                                      "srun",   "mpirun",  "mpiexec", "swift"};
constexpr std::array<std::string_view, 6> kTalkers = {"echo", "printf", "cat", "pip", "git", "export"};
// A command of a general runner starts a job when it says how many ranks share what.
constexpr std::array<std::string_view, 20> kParallel = {"tp",
                                                        "pp",
                                                        "ep",
                                                        "TP",
                                                        "PP",
                                                        "EP",
                                                        "ep_size",
                                                        "ep_world_size",
                                                        "tensor_model_parallel_size",
                                                        "tensor_parallel_size",
                                                        "expert_model_parallel_size",
                                                        "expert_parallel_size",
                                                        "expert_parallel_degree",
                                                        "deepspeed",
                                                        "num_experts",
                                                        "tp_size",
                                                        "expert_tensor_parallel_size",
                                                        "pipeline_model_parallel_size",
                                                        "moe",
                                                        "fmoefy"};

// What starts the job, empty: nothing does.
std::string program_of(const std::vector<Word>& words, const Settings& settings) {
  if (words.empty()) return "";
  const std::string_view first = base_name(words[0].text);
  if (std::find(kTalkers.begin(), kTalkers.end(), first) != kTalkers.end()) return "";
  bool runner = false;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = base_name(words[i].text);
    const std::string_view next = i + 1 < words.size() ? std::string_view(words[i + 1].text) : std::string_view();
    if (word == "accelerate" && next == "launch") return "accelerate launch";
    if (word == "axolotl" && next == "train") return "axolotl train";
    if ((word == "vllm" || word == "sglang") && next == "serve") return fmt::format("{} serve", word);
    if (std::find(kLaunchers.begin(), kLaunchers.end(), word) != kLaunchers.end()) return std::string(word);
    if (word == "-m" && std::any_of(kModules.begin(), kModules.end(),
                                    [&](std::string_view module) { return next.starts_with(module); })) {
      return fmt::format("python -m {}", next);
    }
    if (word == "-m") return "";  // another module: a client, a benchmark
    runner = runner || std::find(kRunners.begin(), kRunners.end(), word) != kRunners.end();
  }
  if (!runner) return "";
  const bool parallel =
      std::any_of(kParallel.begin(), kParallel.end(), [&](std::string_view name) { return settings.find({name}); });
  return parallel ? std::string(first) : "";
}

// The model of "vllm serve MODEL": its first positional argument.
void positional_model(const Launch& launch, Settings& out) {
  if (launch.program != "vllm serve" && launch.program != "trtllm-serve") return;
  const auto& words = launch.words;
  const std::string_view last = launch.program == "vllm serve" ? "serve" : "trtllm-serve";
  const auto it = std::find_if(words.begin(), words.end(), [&](const auto& word) { return base_name(word) == last; });
  if (it == words.end() || it + 1 == words.end() || is_flag(*(it + 1))) return;
  out.set({"model", *(it + 1), launch.at});
}

// ---- flags ----------------------------------------------------------------------------------------------------------

class FlagReader {
 public:
  FlagReader(const std::vector<Word>& words, const std::string& file, const std::vector<std::string_view>& lines,
             Settings& out)
      : words_(words), file_(file), lines_(lines), out_(out) {}

  void run() {
    for (at_ = 0; at_ < words_.size(); ++at_) {
      const Word& word = words_[at_];
      if (is_flag(word.text)) {
        flag(word);
      } else if (is_override(word.text)) {
        set_override(word);
      }
    }
  }

 private:
  Evidence evidence(const Word& word) const {
    const auto line = static_cast<std::size_t>(std::max(word.line, 0));
    return {file_, word.line, line >= 1 && line <= lines_.size() ? shown_line(lines_[line - 1]) : ""};
  }

  void set_override(const Word& word) {
    const std::size_t equals = word.text.find('=');
    const std::size_t begin = std::min(word.text.find_first_not_of('+'), equals);
    out_.set({word.text.substr(begin, equals - begin), word.text.substr(equals + 1), evidence(word)});
  }

  void flag(const Word& word) {
    const std::size_t equals = word.text.find('=');
    std::string key = flag_key(std::string_view(word.text).substr(0, equals));
    std::string value = equals == std::string::npos ? values_after(key) : word.text.substr(equals + 1);
    if (key == "x" && is_override(value)) return set_override({value, word.line});  // mpirun -x NAME=VALUE
    if (value.starts_with("{")) {
      const SettingsFile inside = read_json_settings(value, file_);
      for (const Setting& inner : inside.settings.all()) {
        out_.set({fmt::format("{}.{}", key, inner.key), inner.value, evidence(word)});
      }
    }
    if (key.starts_with("no_") && value == "true") out_.set({key.substr(3), "false", evidence(word)});
    out_.set({std::move(key), std::move(value), evidence(word)});
  }

  // "true" when none follows.
  std::string values_after(const std::string& key) {
    std::string joined;
    const bool assigns = key == "x";
    while (at_ + 1 < words_.size() && !is_flag(words_[at_ + 1].text)) {
      const std::string& next = words_[at_ + 1].text;
      if (is_override(next) && !assigns) break;
      joined += (joined.empty() ? "" : " ") + next;
      ++at_;
      if (assigns) break;
    }
    return joined.empty() ? "true" : joined;
  }

  const std::vector<Word>& words_;
  const std::string& file_;
  const std::vector<std::string_view>& lines_;
  Settings& out_;
  std::size_t at_ = 0;
};

// ---- a script, command by command -----------------------------------------------------------------------------------

class ScriptReader {
 public:
  ScriptReader(std::string_view text, const std::string& file) : text_(text), lines_(split_lines(text)), file_(file) {}

  Script run() {
    directives();
    for (const RawCommand& command : split_commands(text_)) take(command);
    for (const auto& [name, variable] : variables_.all()) {
      if (!variable.known || variable.words.size() != 1) continue;
      script_.variables.set({name, variable.words[0].text, at(variable.words[0].line)});
    }
    return std::move(script_);
  }

 private:
  Evidence at(int line) const {
    const bool there = line >= 1 && static_cast<std::size_t>(line) <= lines_.size();
    return {file_, line, there ? shown_line(lines_[static_cast<std::size_t>(line) - 1]) : ""};
  }

  void directives() {
    int number = 0;
    for (std::string_view line : lines_) {
      ++number;
      line = trim(line);
      if (!line.starts_with("#SBATCH")) continue;
      std::vector<Word> words;
      Splitter parts(line.substr(7), ' ');
      while (const auto part = parts.next()) {
        if (!trim(*part).empty() && !part->starts_with("#")) words.push_back({std::string(trim(*part)), number});
      }
      read_flags(words, file_, lines_, script_.exported);
    }
  }

  void take(const RawCommand& command) {
    std::size_t first = 0;
    const auto& words = command.words;
    const std::string& head = words[0].text;
    const bool exports = head == "export" || head == "declare" || head == "typeset" || head == "local" ||
                         head == "readonly" || head == "set";
    if (exports) first = 1;
    Settings prefix;
    while (first < words.size() && (assigned_name(words[first].text) > 0 || (exports && is_flag(words[first].text)))) {
      assign(words[first], command.depth == 0, head == "export", prefix);
      ++first;
    }
    if (exports) return export_names(words, first);
    if (first == words.size()) return;
    launch(command, first, prefix);
  }

  void assign(const Word& word, bool certain, bool exported, Settings& prefix) {
    const std::size_t length = assigned_name(word.text);
    if (length == 0) return;
    const std::string name = word.text.substr(0, length);
    const bool append = word.text[length] == '+';
    Word value{word.text.substr(length + (append ? 2 : 1)), word.line};
    std::vector<Word> words;
    if (value.text.starts_with("(")) {
      words = array(value);
    } else {
      words = split_value(expand_joined(value, variables_), value.line);
    }
    variables_.assign(name, words, append, certain);
    const Variable* variable = variables_.find(name);
    if (!variable->known || !is_capital(name)) return;
    std::string joined;
    for (const Word& part : variable->words) joined += (joined.empty() ? "" : " ") + part.text;
    (exported ? script_.exported : prefix).set({name, joined, at(word.line)});
  }

  // "export A B" of variables that have been assigned before.
  void export_names(const std::vector<Word>& words, std::size_t first) {
    for (; first < words.size(); ++first) {
      const Variable* variable = variables_.find(words[first].text);
      if (!variable || !variable->known || variable->words.empty()) continue;
      script_.exported.set({words[first].text, variable->words[0].text, at(variable->words[0].line)});
    }
  }

  // "( a b\n c )"
  std::vector<Word> array(const Word& value) {
    std::vector<Word> words;
    const std::string_view inside = std::string_view(value.text).substr(1, value.text.size() - 2);
    for (const RawCommand& command : split_commands(inside)) {
      for (const Word& word : command.words) {
        for (Word& part : expand({word.text, word.line + value.line - 1}, variables_)) words.push_back(std::move(part));
      }
    }
    return words;
  }

  static std::vector<Word> split_value(const std::string& text, int line) {
    std::vector<Word> words;
    std::string current;
    for (const char c : text) {
      if (c != ' ' && c != '\t' && c != '\n' && c != '\r') {
        current += c;
        continue;
      }
      if (!current.empty()) words.push_back({std::move(current), line});
      current.clear();
      line += c == '\n' ? 1 : 0;
    }
    if (!current.empty()) words.push_back({std::move(current), line});
    return words;
  }

  void launch(const RawCommand& command, std::size_t first, const Settings& prefix) {
    std::vector<Word> words;
    for (std::size_t i = first; i < command.words.size(); ++i) {
      for (Word& word : expand(command.words[i], variables_)) words.push_back(std::move(word));
    }
    Settings flags;
    flags.add(prefix);
    read_flags(words, file_, lines_, flags);
    Launch launch;
    launch.program = program_of(words, flags);
    if (launch.program.empty()) return;
    launch.at = at(command.words[0].line);
    for (const Word& word : words) launch.words.push_back(word.text);
    launch.settings.add(script_.exported);
    positional_model(launch, launch.settings);
    launch.settings.add(flags);
    script_.launches.push_back(std::move(launch));
  }

  std::string_view text_;
  std::vector<std::string_view> lines_;
  std::string file_;
  Variables variables_;
  Script script_;
};

}  // namespace

void read_flags(const std::vector<Word>& words, const std::string& file, const std::vector<std::string_view>& lines,
                Settings& out) {
  FlagReader(words, file, lines, out).run();
}

Script read_script(std::string_view text, const std::string& file) {
  return ScriptReader(text, file).run();
}

}  // namespace moetax::doctor
