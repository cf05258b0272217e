// A line of a job's output taken apart into NCCL's messages, and a message into what it says.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "machine/words.h"
#include "moetax/machine/nccl_log.h"

namespace moetax {

struct NcclMessage {
  std::string_view host;  // empty where the prefix is not in the line
  std::string_view text;  // without blanks around it; empty where another process broke in right behind the prefix
  bool warning = false;
};
// The messages in `line`: "host:pid:tid [dev] NCCL INFO text", where text ends at the next such prefix or the line's
// end. What stands before the first prefix is a message without host when it begins like an edge: the end of a line
// that another process broke into.
std::vector<NcclMessage> nccl_messages(std::string_view line);

// "Ring 04 : 3[3] -> 2[2] via P2P/IPC" and its later forms. `edge` lacks host, line and count.
bool begins_like_edge(std::string_view text);
std::optional<NcclEdge> parse_nccl_edge(std::string_view text);

// "... Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, ...) ran for 5 milliseconds".
std::optional<NcclTimeout> parse_nccl_timeout(std::string_view line);

// "... key value ...": the word behind the first whole word `key`, or "".
std::string_view value_after(std::string_view text, std::string_view key);

}  // namespace moetax
