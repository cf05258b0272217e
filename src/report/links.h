// Which node's link is slow, from the streams of rows between nodes.
#pragma once

#include <vector>

#include "moetax/meter/ledger.h"
#include "moetax/report/bill.h"

namespace moetax::report {

// By node; empty where no stream was seen.
std::vector<BillLink> find_links(const std::vector<RankLedger>& ledgers);

// The one that is slow; null: none.
const BillLink* slow_link(const Bill& bill);

}  // namespace moetax::report
