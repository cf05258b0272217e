// Every rule, each in the file of its id.
#pragma once

#include "doctor/price.h"
#include "doctor/rule.h"

namespace moetax::doctor {

extern const Rule kAlltoallBandwidth;
extern const Rule kAlltoallBelowAllreduce;
extern const Rule kAttentionMoeGroups;
extern const Rule kAuxLossInert;
extern const Rule kBandwidthDropNodes;
extern const Rule kBillFinding;
extern const Rule kBufferBelowConcurrency;
extern const Rule kBufferOversized;
extern const Rule kCapacityDrops;
extern const Rule kCapacityPadding;
extern const Rule kCollectiveMismatch;
extern const Rule kCollectiveOrder;
extern const Rule kCombineFp8;
extern const Rule kCompileOverExperts;
extern const Rule kConnectionsSerialise;
extern const Rule kDebugLeftOn;
extern const Rule kDeepepSingleNode;
extern const Rule kDefaultMoeConfig;
extern const Rule kDeviceMapAuto;
extern const Rule kDispatcherAllgather;
extern const Rule kDtypeMismatch;
extern const Rule kDtypeOfJob;
extern const Rule kDynamicCapacity;
extern const Rule kEfaBackend;
extern const Rule kEpCrossNode;
extern const Rule kEpInert;
extern const Rule kEpNotNeeded;
extern const Rule kEpSlowLink;
extern const Rule kEplbNoGain;
extern const Rule kEplbTooOften;
extern const Rule kExchangeDominates;
extern const Rule kExpertGradNorm;
extern const Rule kExpertsNeverChosen;
extern const Rule kForcedBalance;
extern const Rule kGeminiExpertModules;
extern const Rule kGenerateNotSynced;
extern const Rule kGpuSendFallback;
extern const Rule kGraphBetweenNodes;
extern const Rule kGraphDpPadding;
extern const Rule kGraphDropless;
extern const Rule kHotExpert;
extern const Rule kHotRankMemory;
extern const Rule kIbDisabled;
extern const Rule kJitNotPrecompiled;
extern const Rule kJitSkewTimeout;
extern const Rule kLazyCommunicator;
extern const Rule kLockedMemorySmall;
extern const Rule kLoraExpertTp;
extern const Rule kLowMfu;
extern const Rule kMissingPeer;
extern const Rule kNicShared;
extern const Rule kNvshmemNicMapping;
extern const Rule kOffloadLeftOn;
extern const Rule kOffloadSelectiveUseless;
extern const Rule kOffloadUnpinned;
extern const Rule kOomFirst;
extern const Rule kOverlapIncompatible;
extern const Rule kP2pDisabled;
extern const Rule kPipelineWorldExchange;
extern const Rule kRankBehind;
extern const Rule kRankImbalance;
extern const Rule kRankLeft;
extern const Rule kRankWaits;
extern const Rule kRanksMissing;
extern const Rule kRecomputeExchange;
extern const Rule kRecomputeRerouted;
extern const Rule kReplicatedEp;
extern const Rule kRoceEcmp;
extern const Rule kRolloutRouterMismatch;
extern const Rule kRouterLowPrecision;
extern const Rule kSamplerEpKind;
extern const Rule kSharedMemorySmall;
extern const Rule kShmBetweenGpus;
extern const Rule kSilentGap;
extern const Rule kSizesDoNotFit;
extern const Rule kSocketTransport;
extern const Rule kSpareAdapters;
extern const Rule kSplitsNotTransposed;
extern const Rule kStraggler;
extern const Rule kThreadsStarve;
extern const Rule kTraceCacheInvalid;
extern const Rule kTwoLevelSmall;
extern const Rule kUnequalBatches;
extern const Rule kUnevenExperts;
extern const Rule kUnevenLastBatch;
extern const Rule kZero2IdleExperts;
extern const Rule kZero3ExpertModules;
extern const Rule kZeroTokenRank;

}  // namespace moetax::doctor
