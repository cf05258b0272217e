#include "moetax/machine/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <iterator>
#include <tuple>
#include <utility>

#include "machine/topology_readers.h"
#include "machine/xml_text.h"
#include "moetax/base/file.h"

namespace moetax {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{64} << 20;

auto slowness(const Link& link) {
  return std::tuple(link.kind, link.hops, -link.lanes);
}

bool is_xml(std::string_view text) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && text[first] == '<';
}

std::vector<Topology> joined(std::vector<Topology> all, std::vector<Topology> more) {
  std::move(more.begin(), more.end(), std::back_inserter(all));
  return all;
}

Unexpected no_topology(const std::string& origin) {
  return fail(
      ErrorCode::kBadInput,
      fmt::format("{}: holds no topology; expected the output of `nvidia-smi topo -m` or `rocm-smi --showtopo`, "
                  "NCCL's topology XML, or lstopo's XML",
                  origin));
}

Result<std::vector<Topology>> parse_xml(std::string_view text, const std::string& origin) {
  const XmlText xml(text);
  std::vector<Topology> found = joined(parse_nccl_xml(xml), parse_lstopo_xml(xml));
  const int broken = xml.parsed ? 0 : xml.line_at(xml.parsed.offset);
  if (!found.empty()) {
    if (!xml.parsed) found.back().skip(broken, "the XML breaks off here; what comes before is used");
    return found;
  }
  if (looks_like_nccl_graph(text)) {
    return fail(
        ErrorCode::kBadInput,
        fmt::format("{}: is NCCL's graph XML, the channels NCCL chose; expected a topology, which NCCL writes to "
                    "NCCL_TOPO_DUMP_FILE",
                    origin));
  }
  if (!xml.parsed && looks_like_topology(text)) {
    return fail(ErrorCode::kBadInput, fmt::format("{}:{}: the XML breaks off here, before any GPU or adapter ({})",
                                                  origin, broken, xml.parsed.description()));
  }
  return no_topology(origin);
}

}  // namespace

bool slower(const Link& a, const Link& b) {
  return slowness(a) > slowness(b);
}

std::string_view link_kind_name(LinkKind kind) {
  switch (kind) {
    case LinkKind::kNvlink:
      return "NVLink";
    case LinkKind::kXgmi:
      return "XGMI";
    case LinkKind::kPix:
      return "PIX";
    case LinkKind::kPxb:
      return "PXB";
    case LinkKind::kPhb:
      return "PHB";
    case LinkKind::kNode:
      return "NODE";
    case LinkKind::kSys:
      return "SYS";
    case LinkKind::kUnknown:
      break;
  }
  return "unknown";
}

std::string link_text(const Link& link) {
  if (link.kind == LinkKind::kNvlink) return link.lanes > 0 ? fmt::format("NV{}", link.lanes) : "NVLink";
  std::string text(link_kind_name(link.kind));
  if (link.kind == LinkKind::kXgmi && link.hops > 1) text += fmt::format(" {} hops", link.hops);
  if (link.kind == LinkKind::kXgmi && link.lanes > 1) text += fmt::format(" x{}", link.lanes);
  return text;
}

std::string_view topology_format_name(TopologyFormat format) {
  switch (format) {
    case TopologyFormat::kNvidiaSmi:
      return "nvidia-smi topo -m";
    case TopologyFormat::kRocmSmi:
      return "rocm-smi --showtopo";
    case TopologyFormat::kNcclXml:
      return "NCCL topology XML";
    case TopologyFormat::kLstopoXml:
      return "lstopo XML";
  }
  return "unknown";
}

Topology::Topology(TopologyFormat format, int line, std::vector<Device> devices)
    : format_(format), line_(line), devices_(std::move(devices)) {
  const auto is_gpu = [](const Device& device) { return device.kind == DeviceKind::kGpu; };
  assert(devices_.size() <= static_cast<std::size_t>(kMaxDevices));
  assert(std::is_partitioned(devices_.begin(), devices_.end(), is_gpu));
  gpus_ = static_cast<int>(std::count_if(devices_.begin(), devices_.end(), is_gpu));
  links_.resize(devices_.size() * devices_.size());
}

void Topology::set_link(int a, int b, const Link& link) {
  assert(a != b);
  links_[slot(a, b)] = links_[slot(b, a)] = link;
}

Link Topology::fastest() const {
  Link best;
  for (int a = 0; a < gpus_; ++a) {
    for (int b = a + 1; b < gpus_; ++b) {
      if (slower(best, link(a, b))) best = link(a, b);
    }
  }
  return best;
}

Link Topology::slowest() const {
  if (gpus_ < 2) return {};
  Link worst = link(0, 1);
  for (int a = 0; a < gpus_; ++a) {
    for (int b = a + 1; b < gpus_; ++b) {
      if (slower(link(a, b), worst)) worst = link(a, b);
    }
  }
  return worst;
}

int Topology::unknown_gpu_pairs() const {
  int count = 0;
  for (int a = 0; a < gpus_; ++a) {
    for (int b = a + 1; b < gpus_; ++b) count += link(a, b).kind == LinkKind::kUnknown;
  }
  return count;
}

void Topology::skip(int line, std::string why) {
  if (skipped_count_++ < kMaxSkipped) skipped_.push_back({line, std::move(why)});
}

void Topology::note_unknown_pairs() {
  const int unknown = unknown_gpu_pairs();
  if (unknown == 0) return;
  skip(0, fmt::format("{} of {} pairs of GPUs are in no row that could be read; their links are unknown", unknown,
                      gpus_ * (gpus_ - 1) / 2));
}

Result<std::vector<Topology>> parse_topologies(std::string_view text, const std::string& origin) {
  if (is_xml(text)) return parse_xml(text, origin);
  std::vector<Topology> found = joined(parse_nvidia_smi(text), parse_rocm_smi(text));
  if (found.empty()) return no_topology(origin);
  return found;
}

Result<std::vector<Topology>> read_topologies(const std::string& path) {
  MOETAX_ASSIGN(const std::string text, read_text_file(path, kMaxFileBytes));
  return parse_topologies(text, path);
}

bool looks_like_topology(std::string_view text) {
  if (!is_xml(text)) return !parse_nvidia_smi(text).empty() || !parse_rocm_smi(text).empty();
  return text.find("<system") != std::string_view::npos || text.find("<topology") != std::string_view::npos;
}

bool looks_like_nccl_graph(std::string_view text) {
  return is_xml(text) && text.find("<graphs") != std::string_view::npos;
}

}  // namespace moetax
