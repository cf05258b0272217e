#include "cli/launched.h"

#include <fmt/format.h>

#include <cstdlib>

namespace moetax::cli {
namespace {

std::optional<int> number(const char* name) {
  const char* text = std::getenv(name);
  if (!text) return std::nullopt;
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  if (end == text || *end != '\0' || value < 0) return std::nullopt;
  return static_cast<int>(value);
}

}  // namespace

// A variable of the scheduler alone (SLURM_PROCID) is no proof: batch scripts have it too.
std::optional<LaunchedRank> launched_rank() {
  if (const auto rank = number("OMPI_COMM_WORLD_RANK")) {
    return LaunchedRank{*rank, number("OMPI_COMM_WORLD_SIZE").value_or(0)};
  }
  if (const auto rank = number("PMI_RANK")) return LaunchedRank{*rank, number("PMI_SIZE").value_or(0)};
  if (const auto rank = number("PMIX_RANK")) {
    return LaunchedRank{*rank, number("SLURM_STEP_NUM_TASKS").value_or(number("SLURM_NTASKS").value_or(0))};
  }
  return std::nullopt;
}

Result<int> resolve_ranks(const std::optional<int>& typed, const std::optional<LaunchedRank>& launched) {
  if (!launched) return typed.value_or(2);
  if (launched->ranks == 0 && !typed) {
    return fail(ErrorCode::kUsage, "the launcher does not say how many ranks it started: give --ranks");
  }
  if (launched->ranks == 0 || !typed || *typed == launched->ranks) return typed.value_or(launched->ranks);
  return fail(ErrorCode::kUsage, fmt::format("--ranks {}: the launcher started {}; leave it out, or make them agree",
                                             *typed, launched->ranks));
}

}  // namespace moetax::cli
