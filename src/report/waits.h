// Why ranks waited: each wait is explained by how its two ranks came to the same exchange.
#pragma once

#include <cstdint>
#include <vector>

#include "moetax/report/bill.h"
#include "report/load.h"

namespace moetax::report {

// Fills waited_for of every rank of the bill, from the waits of the first `steps` steps.
void explain_waits(const std::vector<RankLedger>& ledgers, std::size_t steps, const ExpertLoad& load, Bill& bill);

const char* cause_id(WaitCause cause);    // "planted-delay": in JSON and, after "wait-", in finding ids
const char* cause_text(WaitCause cause);  // "planted delay"

}  // namespace moetax::report
