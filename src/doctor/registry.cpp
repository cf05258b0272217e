// The table of rules, and looking one up.
#include <algorithm>
#include <array>

#include "doctor/rule.h"
#include "doctor/rules/rules.h"
#include "moetax/doctor/doctor.h"

namespace moetax::doctor {
namespace {

constexpr std::array kRules = {
    &kAdapterIdle,
    &kAlltoallBandwidth,
    &kAlltoallBelowAllreduce,
    &kAttentionMoeGroups,
    &kAuxLossInert,
    &kBandwidthDropNodes,
    &kBillFinding,
    &kBufferBelowConcurrency,
    &kBufferOversized,
    &kCapacityDrops,
    &kCapacityPadding,
    &kCollectiveMismatch,
    &kCollectiveOrder,
    &kCombineFp8,
    &kCompileOverExperts,
    &kConnectionsSerialise,
    &kDebugLeftOn,
    &kDeepepSingleNode,
    &kDefaultMoeConfig,
    &kDeviceMapAuto,
    &kDispatcherAllgather,
    &kDtypeMismatch,
    &kDtypeOfJob,
    &kDynamicCapacity,
    &kEfaBackend,
    &kEpCrossNode,
    &kEpFewRequests,
    &kEpInert,
    &kEpNotNeeded,
    &kEpSlowLink,
    &kEplbIgnoresLinks,
    &kEplbNoGain,
    &kEplbTooOften,
    &kExchangeBelowRaw,
    &kExchangeDominates,
    &kExchangeFewBlocks,
    &kExpertCacheMisses,
    &kExpertGradNorm,
    &kExpertsNeverChosen,
    &kForcedBalance,
    &kGateSimt,
    &kGeminiExpertModules,
    &kGenerateNotSynced,
    &kGpuSendFallback,
    &kGraphBetweenNodes,
    &kGraphDpPadding,
    &kGraphDropless,
    &kHostLinkSlow,
    &kHotExpert,
    &kHotRankMemory,
    &kIbDisabled,
    &kJitNotPrecompiled,
    &kJitSkewTimeout,
    &kLayersTooSmall,
    &kLazyCommunicator,
    &kLockedMemorySmall,
    &kLoraExpertTp,
    &kLowMfu,
    &kMissingPeer,
    &kNicShared,
    &kNvshmemNicMapping,
    &kOffloadLeftOn,
    &kOffloadMovesWeights,
    &kOffloadSelectiveUseless,
    &kOffloadUnpinned,
    &kOomFirst,
    &kOverlapIncompatible,
    &kOverlapPossible,
    &kOverlapWithoutEffect,
    &kP2pDisabled,
    &kPipelineWorldExchange,
    &kRankBehind,
    &kRankImbalance,
    &kRankLeft,
    &kRankWaits,
    &kRanksMissing,
    &kRecomputeExchange,
    &kRecomputeRerouted,
    &kReplicatedEp,
    &kRoceEcmp,
    &kRolloutRouterMismatch,
    &kRouterLowPrecision,
    &kSamplerEpKind,
    &kSharedMemorySmall,
    &kShmBetweenGpus,
    &kSilentGap,
    &kSizesDoNotFit,
    &kSocketTransport,
    &kSpareAdapters,
    &kSplitsNotTransposed,
    &kStepMostlyExchange,
    &kStraggler,
    &kThreadsStarve,
    &kTraceCacheInvalid,
    &kTwoLevelSmall,
    &kUnequalBatches,
    &kUnevenExperts,
    &kUnevenLastBatch,
    &kZero2IdleExperts,
    &kZero3ExpertModules,
    &kZeroTokenRank,
};

RuleText text_of(const Rule& rule) {
  return {rule.id, rule.severity, rule.title, rule.explanation, rule.source};
}

// Letters to insert, delete or replace to come from one word to the other.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

}  // namespace

std::span<const Rule* const> rules() {
  return kRules;
}

Finding& Findings::add(const Rule& rule, std::string title) {
  Finding finding;
  finding.id = rule.id;
  finding.severity = rule.severity;
  finding.title = std::move(title);
  found_.push_back(std::move(finding));
  return found_.back();
}

std::vector<RuleText> rule_texts() {
  std::vector<RuleText> texts;
  for (const Rule* rule : kRules) texts.push_back(text_of(*rule));
  return texts;
}

RuleSearch find_rule_text(std::string_view id) {
  RuleSearch search;
  std::vector<std::pair<std::size_t, std::string_view>> near;
  for (const Rule* rule : kRules) {
    if (rule->id == id) search.found.push_back(text_of(*rule));
    near.emplace_back(rule->id.find(id) != std::string_view::npos ? 0 : distance(rule->id, id.substr(0, 64)), rule->id);
  }
  std::stable_sort(near.begin(), near.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (std::size_t i = 0; i < std::min<std::size_t>(3, near.size()); ++i) search.nearest.push_back(near[i].second);
  return search;
}

const char* to_string(Severity severity) {
  switch (severity) {
    case Severity::kError:
      return "error";
    case Severity::kWarning:
      return "warning";
    case Severity::kNote:
      break;
  }
  return "note";
}

const char* to_string(Confidence confidence) {
  switch (confidence) {
    case Confidence::kCertain:
      return "certain";
    case Confidence::kLikely:
      return "likely";
    case Confidence::kPossible:
      break;
  }
  return "possible";
}

}  // namespace moetax::doctor
