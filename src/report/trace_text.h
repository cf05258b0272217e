// The text of a bill made from traces.
#pragma once

#include <string>

#include "moetax/report/bill.h"

namespace moetax::report {

std::string trace_text(const Bill& bill);

}  // namespace moetax::report
