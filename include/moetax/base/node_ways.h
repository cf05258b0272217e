// The ways that exchanges lead over nodes, which are numbered from 0: the exchange and its costs go them alike.
#pragma once

namespace moetax {

// How many nodes forward in a ring of `nodes`, or backward if negative: the shorter way round. Exactly half the ring is
// half and half, by the sender's node.
constexpr int ring_distance(int from, int to, int nodes) {
  const int forward = (to - from + nodes) % nodes;
  const bool ahead = 2 * forward < nodes || (2 * forward == nodes && from % 2 == 0);
  return ahead ? forward : forward - nodes;
}

// Of a grid of `nodes`, as square as their number allows, never more rows than columns; a prime number is a single row.
constexpr int mesh_columns(int nodes) {
  int rows = 1;
  for (int r = 1; r * r <= nodes; ++r) {
    if (nodes % r == 0) rows = r;
  }
  return nodes / rows;
}

}  // namespace moetax
