// Runs a fuzzer without libFuzzer: on every file of the folders given, on every beginning of it, and with every byte
// replaced by a few others. Fails when a folder holds no file, so that a lost corpus does not pass.

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "fuzz.h"

namespace {

// A copy of exactly the right size on the heap, so that the address sanitizer sees a read beyond the end.
void run(const std::string& text) {
  const std::vector<std::uint8_t> bytes(text.begin(), text.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

void run_damaged(const std::string& text) {
  for (std::size_t size = 0; size < text.size(); ++size) run(text.substr(0, size));
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string damaged = text;
    for (const char replacement : {'\0', '9', '-', '"', '[', ',', '\n', '\xff'}) {
      damaged[i] = replacement;
      run(damaged);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    int files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      std::ifstream file(entry.path(), std::ios::binary);
      const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
      run(text);
      run_damaged(text);
      ++files;
    }
    std::printf("%s: %d files\n", argv[i], files);
    if (files == 0) return 1;
  }
  return argc > 1 ? 0 : 1;
}
