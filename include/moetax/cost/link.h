// What it costs to move bytes over a link, fitted to measurements: time = start-up + bytes / bandwidth, piecewise.
//
// One line misses real links by 12 to 20 % on average: small messages go another way through caches and protocols than
// large ones. So the fit has up to four pieces over the message size, each a line of its own (the alpha-beta model of
// Hockney, Parallel Computing 20, 1994), and says by how much it misses what was measured.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace moetax {

// MB/s of a piece in which the size costs nothing that could be measured.
inline constexpr double kLinkNoLimit = 1e9;

struct LinkSample {
  double bytes = 0;
  double us = 0;  // > 0
};

// From `from_bytes` on, up to the next piece.
struct LinkPiece {
  double from_bytes = 0;
  double start_up_us =
      0;  // at 0 bytes, were the piece to reach there; below 0 where a link lets some bytes pass at once
  double bytes_per_us = 0;  // MB/s; > 0
};

struct LinkCost {
  std::vector<LinkPiece> pieces;  // by from_bytes, the first from 0
  double mean_error = 0;          // of the fit, as a share of what was measured
  double worst_error = 0;

  // Never falls with the size: a piece ends at the time with which a later one begins.
  double time_us(double bytes) const;
};

// The pieces that miss the samples least, relative errors squared; one more piece only where it takes away a quarter of
// them. At least two samples of different sizes; fewer give no pieces.
LinkCost fit_link(std::span<const LinkSample> samples);

}  // namespace moetax
