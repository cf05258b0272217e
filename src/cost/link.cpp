#include "moetax/cost/link.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace moetax {
namespace {

constexpr std::size_t kMaxPieces = 4;
constexpr std::size_t kMinSamples = 2;  // of a piece
constexpr double kWorthAPiece = 0.75;   // of the error that must remain at most
constexpr double kGoodEnough = 0.002;   // error at which no piece is added any more

// Least squares of relative errors: minimises the sum of ((a + b x - t) / t)^2, with b >= 0, and a >= 0 in the first
// piece. A later one may rise from below: what a link lets pass at once comes before what it carries.
LinkPiece fit_line(std::span<const LinkSample> samples, bool first) {
  double w = 0, wx = 0, wxx = 0, wt = 0, wxt = 0;
  for (const LinkSample& sample : samples) {
    const double weight = 1 / (sample.us * sample.us);
    w += weight;
    wx += weight * sample.bytes;
    wxx += weight * sample.bytes * sample.bytes;
    wt += weight * sample.us;
    wxt += weight * sample.bytes * sample.us;
  }
  const double determinant = w * wxx - wx * wx;
  double slope = determinant > 0 ? (w * wxt - wx * wt) / determinant : 0;
  double start = (wt - slope * wx) / w;
  if (start < 0 && first) {
    start = 0;
    slope = wxx > 0 ? wxt / wxx : 0;
  }
  if (slope < 1 / kLinkNoLimit) {
    slope = 1 / kLinkNoLimit;
    start = (wt - slope * wx) / w;
  }
  return {samples.front().bytes, start, 1 / slope};
}

double line_us(const LinkPiece& piece, double bytes) {
  return piece.start_up_us + bytes / piece.bytes_per_us;
}

double squared_error(const LinkPiece& piece, std::span<const LinkSample> samples) {
  double sum = 0;
  for (const LinkSample& sample : samples) {
    const double error = line_us(piece, sample.bytes) / sample.us - 1;
    sum += error * error;
  }
  return sum;
}

struct Fit {
  std::vector<LinkPiece> pieces;
  double error = std::numeric_limits<double>::infinity();
};

// The best way to cut the samples into `count` pieces.
Fit fit_pieces(std::span<const LinkSample> samples, std::size_t count, bool first) {
  if (count == 1) {
    const LinkPiece line = fit_line(samples, first);
    return {{line}, squared_error(line, samples)};
  }
  Fit best;
  for (std::size_t cut = kMinSamples; cut + kMinSamples * (count - 1) <= samples.size(); ++cut) {
    const LinkPiece line = fit_line(samples.first(cut), first);
    Fit rest = fit_pieces(samples.subspan(cut), count - 1, false);
    const double error = squared_error(line, samples.first(cut)) + rest.error;
    if (error >= best.error) continue;
    rest.pieces.insert(rest.pieces.begin(), line);
    best = {std::move(rest.pieces), error};
  }
  return best;
}

}  // namespace

double LinkCost::time_us(double bytes) const {
  if (pieces.empty()) return 0;
  auto piece = pieces.begin();
  while (piece + 1 != pieces.end() && (piece + 1)->from_bytes <= bytes) ++piece;
  double us = line_us(*piece, bytes);
  for (++piece; piece != pieces.end(); ++piece) us = std::min(us, line_us(*piece, piece->from_bytes));
  return us;
}

LinkCost fit_link(std::span<const LinkSample> given) {
  std::vector<LinkSample> samples(given.begin(), given.end());
  const auto by_size = [](const LinkSample& a, const LinkSample& b) { return a.bytes < b.bytes; };
  std::sort(samples.begin(), samples.end(), by_size);
  if (samples.empty() || samples.front().bytes == samples.back().bytes) return {};
  Fit fit = fit_pieces(samples, 1, true);
  const double good_enough = static_cast<double>(samples.size()) * kGoodEnough * kGoodEnough;
  for (std::size_t count = 2; count <= kMaxPieces && fit.error > good_enough; ++count) {
    Fit finer = fit_pieces(samples, count, true);
    if (finer.error < kWorthAPiece * fit.error) fit = std::move(finer);
  }
  fit.pieces.front().from_bytes = 0;
  LinkCost cost{std::move(fit.pieces)};
  for (const LinkSample& sample : samples) {
    const double error = std::abs(cost.time_us(sample.bytes) / sample.us - 1);
    cost.mean_error += error / static_cast<double>(samples.size());
    cost.worst_error = std::max(cost.worst_error, error);
  }
  return cost;
}

}  // namespace moetax
