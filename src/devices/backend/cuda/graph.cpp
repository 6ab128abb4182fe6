#include "backend/cuda/graph.h"

#if CREST_HAVE_CUDA
#include "backend/cuda/kernel.h"

namespace crest::cuda {

namespace {

size_t nodes_so_far(cudaStream_t stream) {
  cudaStreamCaptureStatus status;
  cudaGraph_t graph = nullptr;
  check(cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph, nullptr, nullptr, nullptr), "capture info");
  size_t n = 0;
  if (graph) check(cudaGraphGetNodes(graph, nullptr, &n), "graph nodes");
  return n;
}

}  // namespace

Graph::Graph(cudaStream_t main, size_t count, const std::function<void()>& begin,
             const std::function<void(size_t)>& launch, const std::function<void()>& end, std::function<bool()> settle)
    : settle_(std::move(settle)) {
  check(cudaStreamBeginCapture(main, cudaStreamCaptureModeThreadLocal), "begin of capture");
  try {
    begin();
    for (size_t i = 0; i < count; ++i) {
      first_.push_back(nodes_so_far(main));
      launch(i);
    }
    first_.push_back(nodes_so_far(main));
    end();
  } catch (...) {  // a stream must not stay in capture
    cudaStreamEndCapture(main, &graph_);
    if (graph_) cudaGraphDestroy(graph_);
    throw;
  }
  check(cudaStreamEndCapture(main, &graph_), "end of capture");
  size_t n = 0;
  check(cudaGraphGetNodes(graph_, nullptr, &n), "graph nodes");
  nodes_.resize(n);
  if (n) check(cudaGraphGetNodes(graph_, nodes_.data(), &n), "graph nodes");
  // Otherwise all nodes would have the priority of the launching stream.
  check(cudaGraphInstantiate(&exec_, graph_, cudaGraphInstantiateFlagUseNodePriority), "instantiation of a graph");
}

Graph::~Graph() {
  if (!settle_()) return;
  if (exec_) cudaGraphExecDestroy(exec_);
  if (graph_) cudaGraphDestroy(graph_);
}

void Graph::replay(cudaStream_t stream) const { check(cudaGraphLaunch(exec_, stream), "launch of a graph"); }

bool Graph::makes_work(size_t node) const {
  cudaGraphNodeType type;
  if (cudaGraphNodeGetType(nodes_[node], &type) != cudaSuccess) {  // the runtime has no name for waits of streams
    cudaGetLastError();
    return false;
  }
  return type == cudaGraphNodeTypeKernel || type == cudaGraphNodeTypeMemcpy || type == cudaGraphNodeTypeMemset;
}

}  // namespace crest::cuda
#endif
