// Every rule, each in the file of its id.
#pragma once

#include "doctor/price.h"
#include "doctor/rule.h"

namespace moetax::doctor {

extern const Rule kAuxLossInert;
extern const Rule kBufferBelowConcurrency;
extern const Rule kCollectiveMismatch;
extern const Rule kEpCrossNode;
extern const Rule kEpInert;
extern const Rule kGraphDropless;
extern const Rule kJitSkewTimeout;
extern const Rule kRecomputeRerouted;
extern const Rule kZero3ExpertModules;

}  // namespace moetax::doctor
