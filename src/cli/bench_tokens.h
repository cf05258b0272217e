// The tokens of a bench, made by global index, and the hash of its outputs by global index.
#pragma once

#include <cstdint>

#include "moetax/base/matrix.h"

namespace moetax::cli {

// Fills rows with N(0, 1) values of global tokens [first_token, first_token + rows.rows): the same whatever the ranks.
void fill_tokens(std::uint64_t seed, std::uint64_t stream, std::int64_t first_token, int threads, Rows rows);

// A hash of the rows' bits and their global indices. Hashes of disjoint parts add up to the hash of the whole.
std::uint64_t hash_rows(std::int64_t first_token, ConstRows rows);

// to += from, rounded once per element: the residual between the layers of a chain.
void add_residual(ConstRows from, int threads, Rows to);

// to = round(a + b); b may be empty.
void round_sum(MatrixView<const float> a, ConstRows b, int threads, Rows to);

}  // namespace moetax::cli
