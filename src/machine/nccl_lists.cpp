#include "machine/nccl_lists.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "moetax/base/text.h"

namespace moetax {
namespace {

constexpr double kMostGbs = 1e5;
constexpr int kMostHeads = 256;
constexpr std::size_t kMostRanks = 4'096;
constexpr std::size_t kMostAdapters = 1'024;

// NCCL's names; NVB is NVLink through another GPU, C2C the NVLink to the processor.
std::optional<LinkKind> class_named(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, LinkKind>, 9> kNames{{{"NVL", LinkKind::kNvlink},
                                                                         {"NVB", LinkKind::kNvlink},
                                                                         {"PIX", LinkKind::kPix},
                                                                         {"PXB", LinkKind::kPxb},
                                                                         {"PHB", LinkKind::kPhb},
                                                                         {"SYS", LinkKind::kSys},
                                                                         {"XGMI", LinkKind::kXgmi},
                                                                         {"C2C", LinkKind::kPhb},
                                                                         {"NODE", LinkKind::kNode}}};
  for (const auto& [known, kind] : kNames) {
    if (name == known) return kind;
  }
  return std::nullopt;
}

// "0-4e000", "4e000": the address, without the host's number.
std::string_view address(std::string_view id) {
  id = id.substr(0, std::min(id.find_first_of(" ("), id.size()));
  const std::size_t dash = id.rfind('-');
  id = dash == std::string_view::npos ? id : id.substr(dash + 1);
  const bool hex =
      !id.empty() && id.size() <= 16 && id.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos;
  return hex ? id : std::string_view{};
}

}  // namespace

std::vector<NcclPath> parse_nccl_paths(std::string_view text) {
  std::vector<NcclPath> paths;
  constexpr std::string_view kGpu = "GPU/";
  const std::size_t colon = text.find(':');
  if (!text.starts_with(kGpu) || colon == std::string_view::npos) return paths;
  const std::string_view from = address(text.substr(kGpu.size(), colon - kGpu.size()));
  if (from.empty()) return paths;
  std::string_view rest = text.substr(colon + 1);
  for (std::size_t at = rest.find(kGpu); at != std::string_view::npos; at = rest.find(kGpu)) {
    rest.remove_prefix(at + kGpu.size());
    const std::size_t open = rest.find('('), close = rest.find(')');
    if (open == std::string_view::npos || close == std::string_view::npos || close < open) break;
    const std::string_view to = address(rest.substr(0, open));
    Splitter parts(rest.substr(open + 1, close - open - 1), '/');
    parts.next();  // how many steps
    const auto gbs = parse_number<double>(parts.next().value_or(""));
    const auto kind = class_named(parts.next().value_or(""));
    if (kind && gbs && *gbs >= 0 && *gbs <= kMostGbs && !to.empty() && to != from) {
      paths.push_back({.from = std::string(from), .to = std::string(to), .kind = *kind, .gbs = *gbs});
    }
    rest.remove_prefix(close);
  }
  return paths;
}

std::vector<NcclAdapter> parse_nccl_adapters(std::string_view text) {
  std::vector<NcclAdapter> adapters;
  constexpr std::string_view kUsing = ": Using ";
  const std::size_t at = text.find(kUsing);
  if (at == std::string_view::npos) return adapters;
  const bool socket = text.starts_with("NET/Socket");
  Splitter words(text.substr(at + kUsing.size(), text.find(';') - at - kUsing.size()), ' ');
  while (const auto word = words.next()) {
    const std::size_t close = word->find(']');
    if (!word->starts_with('[') || close == std::string_view::npos || adapters.size() == kMostAdapters) continue;
    const auto number = parse_number<int>(word->substr(1, close - 1));
    if (!number || *number < 0) continue;  // "[RO]"
    const std::string_view name = word->substr(close + 1);
    const std::size_t slash = name.rfind('/');
    const bool kind = !socket && slash != std::string_view::npos;
    adapters.push_back({.number = *number,
                        .name = std::string(name.substr(0, name.find(':'))),
                        .kind = kind ? std::string(name.substr(slash + 1)) : "Socket"});
  }
  return adapters;
}

std::optional<std::pair<std::size_t, std::vector<int>>> parse_nvls_head(std::string_view text) {
  constexpr std::string_view kHead = "NVLS Head";
  const std::size_t colon = text.find(':');
  if (!text.starts_with(kHead) || colon == std::string_view::npos) return std::nullopt;
  const auto number = parse_number<int>(text.substr(kHead.size(), colon - kHead.size()));
  if (!number || *number < 0 || *number >= kMostHeads) return std::nullopt;
  std::vector<int> ranks;
  Splitter words(text.substr(colon + 1), ' ');
  while (const auto word = words.next()) {
    if (const auto rank = parse_number<int>(*word); rank && ranks.size() < kMostRanks) ranks.push_back(*rank);
  }
  return std::pair(static_cast<std::size_t>(*number), std::move(ranks));
}

}  // namespace moetax
