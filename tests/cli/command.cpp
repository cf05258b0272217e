#include "cli/command.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

namespace moetax::testing {
namespace {

namespace fs = std::filesystem;

fs::path fresh_folder() {
  std::string name = (fs::temp_directory_path() / "moetax-test-XXXXXX").string();
  if (!mkdtemp(name.data())) std::abort();
  return name;
}

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// The folder of this test program, removed when it ends.
const fs::path& program_folder() {
  static const struct Folder {
    fs::path path = fresh_folder();
    ~Folder() {
      std::error_code ignored;
      fs::remove_all(path, ignored);
    }
  } folder;
  return folder.path;
}

void redirect(const fs::path& path, int fd) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (file < 0 || dup2(file, fd) < 0) _exit(127);
  close(file);
}

// The parent of a process, from /proc/PID/stat; -1 when it is gone.
pid_t parent_of(pid_t pid) {
  const std::string stat = read_file("/proc/" + std::to_string(pid) + "/stat");
  const std::size_t after_name = stat.rfind(')');
  if (after_name == std::string::npos) return -1;
  char state = 0;
  int parent = -1;
  if (std::sscanf(stat.c_str() + after_name + 1, " %c %d", &state, &parent) != 2) return -1;
  return parent;
}

}  // namespace

Command::Command(const std::vector<std::string>& arguments, const CommandSetup& setup) : folder_(fresh_folder()) {
  std::vector<std::string> all = {MOETAX_COMMAND};
  all.insert(all.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& argument : all) argv.push_back(argument.data());
  argv.push_back(nullptr);
  pid_ = fork();
  if (pid_ == 0) {
    redirect(setup.out.empty() ? folder_ / "out" : fs::path(setup.out), STDOUT_FILENO);
    redirect(folder_ / "err", STDERR_FILENO);
    for (const int fd : setup.closed) close(fd);
    const rlimit limit{setup.address_space, setup.address_space};
    if (setup.address_space > 0 && setrlimit(RLIMIT_AS, &limit) != 0) _exit(127);
    execv(argv[0], argv.data());
    _exit(127);
  }
}

Command::~Command() {
  if (!reaped_) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

std::vector<pid_t> Command::wait_for_children(std::size_t count) const {
  for (int attempt = 0; attempt < 2000; ++attempt) {
    std::vector<pid_t> children;
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const pid_t pid = static_cast<pid_t>(std::atoi(entry.path().filename().c_str()));
      if (pid > 0 && parent_of(pid) == pid_) children.push_back(pid);
    }
    std::sort(children.begin(), children.end());
    if (children.size() >= count) return children;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return {};
}

CommandResult Command::wait() {
  int status = 0;
  rusage used{};
  wait4(pid_, &status, 0, &used);
  reaped_ = true;
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_file(folder_ / "out"),
          read_file(folder_ / "err"), static_cast<std::size_t>(used.ru_maxrss) * 1024};
}

CommandResult run_command(const std::vector<std::string>& arguments, const CommandSetup& setup) {
  return Command(arguments, setup).wait();
}

std::string temporary_path(const std::string& name) {
  return (program_folder() / name).string();
}

std::string write_file(const std::string& name, const std::string& text) {
  const std::string path = temporary_path(name);
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace moetax::testing
