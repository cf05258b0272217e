// Any text read as each of the files that hold settings gives settings with names, or says what was wrong.

#include "doctor/readers.h"
#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moetax::doctor;  // NOLINT(google-build-using-namespace)
  const std::string_view text = moetax::fuzz::as_text(data, size);
  for (const auto read : {read_json_settings, read_yaml_settings, read_toml_settings, read_environment}) {
    const SettingsFile file = read(text, "f");
    for (const Setting& setting : file.settings.all()) moetax::fuzz::require(setting.at.line >= 0);
  }
  const Script script = read_script(text, "f");
  for (const Launch& launch : script.launches) moetax::fuzz::require(!launch.program.empty() && !launch.words.empty());
  return 0;
}
