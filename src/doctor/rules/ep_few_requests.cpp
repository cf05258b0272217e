#include <fmt/format.h>

#include <cmath>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const JobFacts& job = facts.job;
  const Settings::Names kBatch = {"max_num_seqs", "max_running_requests", "max_batch_size", "max_concurrency"};
  const auto batch = job.settings.whole(kBatch);
  if (job.phase != Phase::kInference || !job.ep || job.ep->value < 4 || !batch || *batch < 1 || *batch > 16) return;
  if (!facts.model || facts.model->topk < 1) return;
  const double mean = static_cast<double>(*batch) * facts.model->topk / job.ep->value;
  // The largest of R binomials is about mean + sqrt(2 ln R mean).
  const double busiest = mean + std::sqrt(2 * std::log(static_cast<double>(job.ep->value)) * mean);
  Finding& f = out.add(rule, fmt::format("at most {} requests over {} expert-parallel ranks", *batch, job.ep->value));
  f.cause = fmt::format("{:.3g} rows a rank and layer; by chance alone the busiest has about {:.1f}x of it.", mean,
                        busiest / mean);
  f.evidence = {job.settings.where(kBatch), job.ep->at, facts.model->at};
  f.cost.text = fmt::format(
      "the experts take about {:.1f}x their even time while decoding, and two exchanges a layer come on "
      "top; 18 % later first tokens in one report",
      busiest / mean);
  f.fix = job.is("vllm") ? "drop --enable-expert-parallel for this load and compare time to first token"
                         : "fewer expert-parallel ranks with tensor parallelism inside (EP 4 x TP 2), and compare";
  f.confidence = Confidence::kPossible;
}

}  // namespace

const Rule kEpFewRequests = {
    .id = "ep-few-requests",
    .severity = Severity::kNote,
    .title = "expert parallelism over many ranks for a few requests",
    .explanation =
        "While decoding, each request brings one token. A handful of them over eight ranks leaves a few rows a rank: "
        "by chance alone the busiest has about twice the mean, the products are too small to be efficient, and two "
        "exchanges are added to every layer. With few requests tensor parallelism, or fewer expert-parallel ranks with "
        "tensor parallelism inside, answers sooner; with hundreds of requests it is the other way.",
    .source = "public reports vLLM 28887, 28882, 28889",
    .check = check,
};

}  // namespace moetax::doctor
