// Why the ranks of a bench stopped, out of what each of them said.
#pragma once

#include <optional>
#include <vector>

#include "moetax/base/result.h"
#include "moetax/transport/local.h"

namespace moetax::cli {

// The error that explains the others: one of a rank's own comes before one about a peer; a rank that a signal ended
// speaks only through the others, or through its outcome. Nothing if all ended as they should.
std::optional<Error> cause_of(const std::vector<RankOutcome>& outcomes);

}  // namespace moetax::cli
