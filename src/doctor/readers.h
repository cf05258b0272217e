// Files of settings -> Settings. All are tolerant: what cannot be read is left out and said in `trouble`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "doctor/settings.h"

namespace moetax::doctor {

struct SettingsFile {
  Settings settings;
  std::string trouble;  // "line 12: ...", empty: all of it was read
};

// JSON with comments allowed. A list of plain values is one value, its items separated by blanks.
SettingsFile read_json_settings(std::string_view text, const std::string& file);
// Keys that are flags ("--tensor-model-parallel-size: 2") are read as if they had been typed.
SettingsFile read_yaml_settings(std::string_view text, const std::string& file);
SettingsFile read_toml_settings(std::string_view text, const std::string& file);
// "NAME=value" a line, as `env` prints them.
SettingsFile read_environment(std::string_view text, const std::string& file);

// One command that starts a job.
struct Launch {
  std::string program;  // "torchrun", "vllm serve", "python -m sglang.launch_server", ...
  Settings settings;    // #SBATCH lines, exported variables, those before the command, its flags
  std::vector<std::string> words;
  Evidence at;
};

// A shell script, or a command line pasted from one. Variables are expanded where their value is known, with defaults
// of ${NAME:-default}; what an `if` may or may not have changed is unknown.
struct Script {
  std::vector<Launch> launches;
  Settings exported;   // #SBATCH lines and exported variables, of use when no command starts a job
  Settings variables;  // all others that are assigned
};
Script read_script(std::string_view text, const std::string& file);

// "--a 1 --b=2 c=3 -d" -> settings. `lines` gives each word's line.
struct Word {
  std::string text;
  int line = 0;
};
void read_flags(const std::vector<Word>& words, const std::string& file, const std::vector<std::string_view>& lines,
                Settings& out);

// Evidence text: the line without blanks around it, short and printable.
std::string shown_line(std::string_view line);
std::vector<std::string_view> split_lines(std::string_view text);

}  // namespace moetax::doctor
