// NCCL's messages that list several things each.
#pragma once

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "moetax/machine/nccl_log.h"

namespace moetax {

// NCCL_DEBUG_SUBSYS=GRAPH: "GPU/50000 :GPU/0-4e000 (4/24.0/PHB) GPU/0-50000 (0/5000.0/LOC) ... CPU/0-0 (2/24.0/PHB)".
// The ways to other GPUs, without host and line.
std::vector<NcclPath> parse_nccl_paths(std::string_view text);

// "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>", "NET/Socket : Using
// [0]eth0:10.0.0.1<0>". Without host.
std::vector<NcclAdapter> parse_nccl_adapters(std::string_view text);

// "NVLS Head  1:  2 10": its number, below 256, and its ranks.
std::optional<std::pair<std::size_t, std::vector<int>>> parse_nvls_head(std::string_view text);

}  // namespace moetax
