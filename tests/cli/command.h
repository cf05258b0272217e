// Runs the built `moetax` as a user would and looks at what comes back.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace moetax::testing {

struct CommandResult {
  int exit_code = -1;  // 128 + signal when a signal ended it
  std::string out, err;
  std::size_t peak_bytes = 0;  // resident, of the largest process among the command and its ranks
};

// How a command is started, where that is not the ordinary way.
struct CommandSetup {
  std::string out = {};           // standard output goes here, not to the result
  std::vector<int> closed = {};   // these descriptors are closed
  std::size_t address_space = 0;  // ulimit -v, bytes; 0: none
};

// A started command; its output goes to files of a folder of its own, removed at the end.
class Command {
 public:
  explicit Command(const std::vector<std::string>& arguments, const CommandSetup& setup = {});
  ~Command();
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  pid_t pid() const { return pid_; }
  // The ranks: child processes of the command, in the order they were started. Waits until there are `count`.
  std::vector<pid_t> wait_for_children(std::size_t count) const;
  CommandResult wait();

 private:
  std::filesystem::path folder_;
  pid_t pid_ = -1;
  bool reaped_ = false;
};

CommandResult run_command(const std::vector<std::string>& arguments, const CommandSetup& setup = {});

// A path in a folder for this test program's files.
std::string temporary_path(const std::string& name);
std::string write_file(const std::string& name, const std::string& text);

// Lines of text, without the last newline.
std::vector<std::string> lines_of(const std::string& text);

}  // namespace moetax::testing
