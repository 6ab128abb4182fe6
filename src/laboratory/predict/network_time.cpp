#include "predict/network_time.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace crest {

namespace {

// NCCL's latencies for protocol Simple (src/graph/tuning.cc: baseLatencies, hwLatencies), in ms.
constexpr double base_ms = 8.4e-3, ring_hop_ms = 3.4e-3, tree_hop_ms = 4e-3, network_hop_ms = 14e-3;
// An assumption: the share of a network card's rate that a large message reaches.
constexpr double network_share = 0.9;

double ring_ms(const NetworkCall& c) {
  const int rounds = c.collective == Collective::all_reduce ? 2 : 1;
  const double steps = rounds * double(c.span.ranks - 1);
  const double between =
      std::min(steps, rounds * double(c.collective == Collective::all_reduce ? c.span.nodes : c.span.nodes - 1));
  return base_ms + (steps - between) * ring_hop_ms + between * network_hop_ms;
}

double tree_ms(const NetworkCall& c) {
  return base_ms + 2 * ((c.span.ranks_of_node() - 1) * tree_hop_ms + std::log2(c.span.nodes) * network_hop_ms);
}

}  // namespace

GroupSpan span_of(const Mesh& mesh, Axes axes, int node_gpus) {
  GroupSpan span{mesh.size(axes), 1};
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    if (mesh.index(rank, axes) != 0) continue;
    std::set<int> nodes;
    for (int member : mesh.group(rank, axes)) nodes.insert(member / node_gpus);
    span.nodes = std::max(span.nodes, int(nodes.size()));
  }
  return span;
}

double network_ms(const NetworkCall& c, double in_node_ms, double bytes_per_second) {
  const double cards = c.transfer ? 1 : c.span.ranks_of_node();
  const double wire = 1e3 * c.sent / (cards * network_share * bytes_per_second);
  const double hops = c.transfer                               ? base_ms + network_hop_ms
                      : c.collective == Collective::all_reduce ? std::min(ring_ms(c), tree_ms(c))
                                                               : ring_ms(c);
  return hops + std::max(wire, c.transfer || c.span.ranks_of_node() == 1 ? 0.0 : in_node_ms);
}

double network_factor(int nodes) { return 2 + 0.1 * std::log2(std::max(1, nodes)); }

}  // namespace crest
