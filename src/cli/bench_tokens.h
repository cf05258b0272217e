// The tokens of a bench, made by global index, and the hash of its outputs by global index.
#pragma once

#include <cstdint>
#include <span>

#include "moetax/base/matrix.h"

namespace moetax::cli {

// Fills rows with N(0, 1) values of global tokens [first_token, first_token + rows.rows): the same whatever the ranks.
void fill_tokens(std::uint64_t seed, std::uint64_t stream, std::int64_t first_token, int threads, Rows rows);

// A hash of the rows' bits and their global indices. Hashes of disjoint parts add up to the hash of the whole.
std::uint64_t hash_rows(std::int64_t first_token, ConstRows rows);

// What lies between two layers of a chain: out = s / rms(s), row by row, for s = x + y; scale[t] = 1 / rms(s). Without
// the norm a chain's values would grow without bound, as a SwiGLU squares them. The same bits whatever the ranks.
void add_and_normalise(ConstRows x, ConstRows y, int threads, Rows out, std::span<float> scale);

// Its gradient: d_s = scale (d - out mean(d out)) for d = d_out + d_more; d_more may be empty, and may be d_s.
void add_and_normalise_backward(ConstRows out, std::span<const float> scale, MatrixView<const float> d_out,
                                ConstRows d_more, int threads, Rows d_s);

}  // namespace moetax::cli
