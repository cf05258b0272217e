// What the verbs share. Each verb is one cmd_<verb>.cpp with one function; main.cpp is the table of them.
#pragma once

#include <cstdio>

#include "moetax/base/result.h"

namespace moetax::cli {

// Exit codes: 0 fine, 1 a --fail-on threshold was crossed, 2 usage, 3 bad input, 4 this machine cannot, 5 a peer
// failed.
inline constexpr int kThresholdCrossed = 1;

constexpr int exit_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUsage:
      return 2;
    case ErrorCode::kBadInput:
      return 3;
    case ErrorCode::kUnavailable:
      return 4;
    case ErrorCode::kPeerFailed:
      return 5;
    case ErrorCode::kInternal:
      return 4;
  }
  return 4;
}

// One line on standard error; returns the exit code.
inline int report_error(const Error& error) {
  if (error.where.empty()) {
    std::fprintf(stderr, "moetax: %s\n", error.message.c_str());
  } else {
    std::fprintf(stderr, "moetax: %s: %s\n", error.where.c_str(), error.message.c_str());
  }
  return exit_code(error.code);
}

int cmd_analyze(int argc, char** argv);
int cmd_bench(int argc, char** argv);
int cmd_calibrate(int argc, char** argv);
int cmd_compare(int argc, char** argv);
int cmd_doctor(int argc, char** argv);
int cmd_info(int argc, char** argv);

}  // namespace moetax::cli
