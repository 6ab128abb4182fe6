// Attention by cuDNN's graph API. The library is opened at run time (loader.h). The build needs the
// headers of cudnn-frontend (scripts/install-deps.sh cudnn). Without either, Crest's own kernels
// take over.
#pragma once
#include <compare>
#include <memory>
#include <string>

#include "backend/backend.h"

namespace crest::cuda {

// Everything a plan depends on. qkv is interleaved, [batch, tokens, (heads + 2 kv_heads) head_dim].
struct AttentionProblem {
  int64_t batch, tokens, heads, kv_heads, head_dim;
  DType dtype;
  float scale;
  int64_t window;  // keys seen by a query, its own included; 0: all
  bool causal, backward, deterministic;
  int device, sm;  // index of the device and its compute capability times ten
  auto operator<=>(const AttentionProblem&) const = default;
};

// cuDNN's answer to a problem: a runnable graph, or why there is none.
struct AttentionPlan {
  AttentionProblem problem;
  std::string reason;  // why not; empty: `graph` can run
  size_t workspace = 0;
  std::shared_ptr<void> graph;
};

// Whether `device` is in this machine, not only planned for.
bool device_present(const Device& device);

// The plan of a problem on a present device. The first call for a problem builds it (cuDNN may
// compile a kernel: up to a second). It lives as long as the process, because captured CUDA graphs
// use its code. Thread safe.
const AttentionPlan& attention_plan(const AttentionProblem& problem);

// Forward reads qkv and writes out and lse; backward reads qkv, out, lse and dout and writes dqkv.
struct AttentionTensors {
  const void *qkv = nullptr, *dout = nullptr;
  void *out = nullptr, *lse = nullptr, *dqkv = nullptr;
};
// Launches on `stream` (a cudaStream_t); `workspace` has at least plan.workspace bytes.
void run_attention(const AttentionPlan& plan, const AttentionTensors& tensors, void* workspace, void* stream);

}  // namespace crest::cuda
