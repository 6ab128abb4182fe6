// Collectives between nodes, by NCCL's own model of rings and trees.
#pragma once
#include "comm/collective.h"
#include "program/mesh.h"

namespace crest {

// How a group of ranks lies on nodes.
struct GroupSpan {
  int ranks = 1;
  int nodes = 1;  // of the group with the most nodes
  int ranks_of_node() const { return (ranks + nodes - 1) / nodes; }
};

// The groups along these axes, where a node has the ranks 0 to node_gpus - 1, and so on.
GroupSpan span_of(const Mesh& mesh, Axes axes, int node_gpus);

// A collective or a transfer between nodes. Every rank sends `sent` bytes in a ring.
struct NetworkCall {
  Collective collective = Collective::all_reduce;
  bool transfer = false;  // to a single neighbor
  double sent = 0;
  GroupSpan span;
};

// Milliseconds: the slower of both links, and the start of every hop. in_node_ms: the same bytes
// between the ranks of one node. Each rank has a network card with `bytes_per_second` in one
// direction.
double network_ms(const NetworkCall& call, double in_node_ms, double bytes_per_second);

// The possible error, as a factor. It grows with the number of nodes, because Crest measured one
// node only.
double network_factor(int nodes);

}  // namespace crest
