// The readers behind parse_topologies, one per format. Each returns the machines of its format in what it is given,
// none when there are none.
#pragma once

#include <string_view>
#include <vector>

#include "moetax/machine/topology.h"

namespace moetax {

struct XmlText;

std::vector<Topology> parse_nvidia_smi(std::string_view text);
std::vector<Topology> parse_rocm_smi(std::string_view text);
std::vector<Topology> parse_nccl_xml(const XmlText& xml);
std::vector<Topology> parse_lstopo_xml(const XmlText& xml);

}  // namespace moetax
