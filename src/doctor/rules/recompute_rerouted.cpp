#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

struct Shapes {
  std::vector<double> saved, recomputed;
  std::vector<Evidence> at;
  bool tensors = false;  // it is their number that differs
};

// The two shapes stand on one line or on two.
Shapes collect(const LogFacts& log) {
  Shapes shapes;
  for (const LogEvent* event : log.of(LogKind::kShapeChanged)) {
    shapes.tensors = shapes.tensors || event->op == "tensors";
    if (shapes.saved.empty()) shapes.saved = event->numbers;
    if (shapes.recomputed.empty()) shapes.recomputed = event->second;
    if (shapes.at.size() < 3) shapes.at.push_back(event->at);
  }
  return shapes;
}

bool only_rows_differ(const Shapes& shapes) {
  return !shapes.tensors && !shapes.saved.empty() && shapes.saved.size() == shapes.recomputed.size() &&
         shapes.saved[0] != shapes.recomputed[0] &&
         std::equal(shapes.saved.begin() + 1, shapes.saved.end(), shapes.recomputed.begin() + 1);
}

std::string title_of(const Shapes& shapes, bool only_rows) {
  if (only_rows) {
    return fmt::format("recomputation met {:.0f} rows more or less than the forward pass",
                       std::abs(shapes.saved[0] - shapes.recomputed[0]));
  }
  if (shapes.tensors && !shapes.saved.empty() && !shapes.recomputed.empty()) {
    return fmt::format("recomputation saved {:.0f} tensors, the forward pass {:.0f}", shapes.recomputed[0],
                       shapes.saved[0]);
  }
  return "recomputation met other tensors than the forward pass";
}

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const Shapes shapes = collect(*facts.log);
  if (shapes.at.empty()) return;
  const bool only_rows = only_rows_differ(shapes);
  Finding& f = out.add(rule, title_of(shapes, only_rows));
  f.cause = only_rows
                ? "only the number of rows differs: the router was run again and chose other experts for some tokens."
                : "the checkpointed region routes or exchanges again, and what it saves depends on the tokens.";
  f.evidence = shapes.at;
  f.cost.text = "the step ends with this error; where the shapes happen to agree, gradients belong to other experts";
  f.fix =
      "save the router's choice (top-k ids and weights) instead of recomputing it; where that is not enough, the split "
      "sizes "
      "and the dispatch handle; at last keep the exchange out of the checkpointed region";
  f.confidence = only_rows ? Confidence::kCertain : Confidence::kLikely;
}

}  // namespace

const Rule kRecomputeRerouted = {
    .id = "recompute-rerouted",
    .severity = Severity::kError,
    .title = "activation checkpointing that routes again",
    .explanation =
        "Activation checkpointing runs the forward pass a second time. Kernels that are not deterministic, another "
        "autocast "
        "state or scores that nearly tie send a token to another expert, and then every tensor behind the dispatch has "
        "another number of rows. Saving the router's output fixes the choice; what the dispatch was laid out for "
        "(splits, "
        "handle) has to be saved too, because later layers' sizes depend on it. A collective inside the recomputed "
        "region "
        "whose size depends on the data can also hang.",
    .source = "public reports Automodel 2635, 3156; NeMo-RL 1203, 3108; torchtitan 1117; Liger 1255; VeOmni 979",
    .check = check,
};

}  // namespace moetax::doctor
