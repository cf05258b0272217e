#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "cli/cli.h"
#include "moetax/version.h"

namespace {

struct Verb {
  const char* name;
  const char* what;
  int (*run)(int argc, char** argv);
};

constexpr Verb kVerbs[] = {
    {"analyze", "the bill of a job from the traces of its ranks", moetax::cli::cmd_analyze},
    {"bench", "run a Mixture-of-Experts layer under expert parallelism here and print its bill",
     moetax::cli::cmd_bench},
    {"calibrate", "measure what moving bytes between ranks costs, for machine.json", moetax::cli::cmd_calibrate},
    {"compare", "what changed between two jobs, from their bills or traces", moetax::cli::cmd_compare},
    {"doctor", "what is wrong with a job, from its configurations, launch scripts, topologies and logs",
     moetax::cli::cmd_doctor},
    {"info", "what this machine and this build can do, and why not", moetax::cli::cmd_info},
};

int usage(std::FILE* to) {
  std::fprintf(to, "moetax measures, explains and cuts the synchronisation tax of Mixture-of-Experts models.\n\n");
  std::fprintf(to, "usage: moetax <verb> [options]      moetax <verb> --help\n\n");
  for (const Verb& verb : kVerbs) std::fprintf(to, "  %-10s %s\n", verb.name, verb.what);
  return to == stdout ? 0 : 2;
}

// Where one of them is closed, the next file opened would take its place, and what is printed would end up in there.
// Open the wrong way round, they still fail on use.
void hold_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) < 0) open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

// What was printed and could not be written is an error too.
int flushed(int status) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
  std::fprintf(stderr, "moetax: cannot write standard output: %s\n", std::strerror(errno));
  return status != 0 ? status : moetax::cli::exit_code(moetax::ErrorCode::kUnavailable);
}

int run(int argc, char** argv) {
  if (argc < 2) return usage(stderr);
  const char* name = argv[1];
  if (std::strcmp(name, "--help") == 0 || std::strcmp(name, "-h") == 0 || std::strcmp(name, "help") == 0) {
    return usage(stdout);
  }
  if (std::strcmp(name, "--version") == 0) {
    std::printf("moetax %s\n", MOETAX_VERSION_STRING);
    return 0;
  }
  for (const Verb& verb : kVerbs) {
    if (std::strcmp(name, verb.name) == 0) return verb.run(argc - 1, argv + 1);
  }
  std::fprintf(stderr, "moetax: there is no verb '%s'\n\n", name);
  return usage(stderr);
}

}  // namespace

int main(int argc, char** argv) {
  hold_standard_streams();
  // A reader that went away is a failed write with a message, not a rank that died.
  std::signal(SIGPIPE, SIG_IGN);
  return flushed(run(argc, argv));
}
