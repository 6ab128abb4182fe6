// A bound Program captured as a CUDA graph, with the nodes of each instruction.
#pragma once
#if CREST_HAVE_CUDA
#include <cuda_runtime.h>

#include <functional>
#include <vector>

namespace crest::cuda {

class Graph {
 public:
  // Captures the work of `launch(i)` on the streams for i = 0 .. count-1. The caller's events fork
  // all other streams from `main`, in `begin` or before a stream's first work, and join them by the
  // end of `end`. settle: whether replays have ended; false if they never do, because another rank
  // is lost. Destroying a graph would wait for them.
  Graph(cudaStream_t main, size_t count, const std::function<void()>& begin, const std::function<void(size_t)>& launch,
        const std::function<void()>& end, std::function<bool()> settle);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void replay(cudaStream_t stream) const;
  // Nodes of instruction i: nodes()[first_node(i) .. first_node(i + 1)). A profiler's records of
  // the replayed graph name nodes; this is how they find their instruction.
  const std::vector<cudaGraphNode_t>& nodes() const { return nodes_; }
  size_t first_node(size_t instruction) const { return first_[instruction]; }
  // Whether a node is a kernel, a copy or a memset; others (events, empty nodes) leave no records.
  bool makes_work(size_t node) const;

 private:
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t exec_ = nullptr;
  std::vector<cudaGraphNode_t> nodes_;
  std::vector<size_t> first_;  // count + 1 entries
  std::function<bool()> settle_;
};

}  // namespace crest::cuda
#endif
