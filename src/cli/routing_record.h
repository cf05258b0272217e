// A recording of routes in a file: it takes the place of an earlier one only when it is complete.
#pragma once

#include <span>
#include <string>

#include "moetax/base/result.h"
#include "moetax/route/routing_table.h"

namespace moetax::cli {

// Before the run: kUsage when `path` cannot become a recording, because it is something else than a file or its folder
// takes no new ones. Changes nothing.
Result<void> check_recordable(const std::string& path);

// Writes the tables one after the other, first to a file beside `path`, which is then renamed. On an error (kBadInput
// naming the file) what was at `path` is as it was. A symbolic link stays one.
Result<void> write_recording(const std::string& path, std::span<const RoutingTable> tables);

}  // namespace moetax::cli
