#include <fmt/format.h>

#include <map>
#include <mutex>

#include "backend/cuda/cudnn.h"
#include "backend/cuda/loader.h"
#include "core/error.h"

#if CREST_HAVE_CUDA
#include <cuda_runtime_api.h>
#endif
#if CREST_HAVE_CUDNN
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#include <cudnn_frontend.h>
namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // the frontend looks cuDNN's functions up here
}
#endif

namespace crest::cuda {

bool device_present(const Device& device) {
#if CREST_HAVE_CUDA
  if (device.kind != "cuda" || device.emulated || device.described) return false;
  int count = 0, major = 0, minor = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || device.index >= count ||
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device.index) != cudaSuccess ||
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device.index) != cudaSuccess) {
    (void)cudaGetLastError();  // no driver or no GPU: no error of the next call
    return false;
  }
  return 10 * major + minor == device.sm;
#else
  (void)device;
  return false;
#endif
}

#if CREST_HAVE_CUDNN

namespace {

namespace fe = cudnn_frontend;
using fe::graph::Graph;
using fe::graph::Tensor_attributes;
using TensorPtr = std::shared_ptr<Tensor_attributes>;

// Names of tensors between building a graph and running it.
enum Uid : int64_t { uid_q = 1, uid_k, uid_v, uid_out, uid_lse, uid_dout, uid_dq, uid_dk, uid_dv };

void must(fe::error_t e) {
  if (e.is_bad()) throw std::runtime_error(e.get_message());
}

// Why cuDNN cannot be used; empty when it is open.
const std::string& open_cudnn() {
  static const std::string problem = [] {
    const Library& cudnn = library("cudnn", 9);
    if (!cudnn.handle) return cudnn.problem;
    // cuDNN compiles kernels with NVRTC, and finds an open NVRTC by name.
    library("nvrtc", CUDART_VERSION / 1000);
    // The frontend asks a shared CUDA runtime for the driver's functions; without one it leaves
    // contexts alone.
    const Library& runtime = library("cudart", CUDART_VERSION / 1000);
    if (runtime.handle) setenv("CUDNN_FRONTEND_CUDART_LIB_NAME", runtime.path.c_str(), 0);
    fe::cudnn_dlhandle = cudnn.handle;
    return std::string();
  }();
  return problem;
}

// A cuDNN handle must not be used by two threads at once.
struct Handle {
  std::mutex mutex;
  cudnnHandle_t cudnn = nullptr;
};

// Of a device, made at the first call. Handles live as long as the process: at its end CUDA may be
// gone before them.
Handle& handle_of(int device) {
  static std::mutex mutex;
  static auto& handles = *new std::map<int, Handle>;
  std::lock_guard lock(mutex);
  Handle& h = handles[device];
  if (h.cudnn) return h;
  int before = 0;
  if (cudaGetDevice(&before) != cudaSuccess || cudaSetDevice(device) != cudaSuccess)
    throw std::runtime_error(fmt::format("device {} cannot be used", device));
  cudnnStatus_t status = fe::detail::create_handle(&h.cudnn);
  (void)cudaSetDevice(before);
  if (status != CUDNN_STATUS_SUCCESS)
    throw std::runtime_error(fmt::format("cudnnCreate: {}", fe::detail::get_error_string(status)));
  return h;
}

// The heads of an interleaved qkv or dqkv, or of out and dout: dimensions [batch, heads, tokens,
// head_dim].
template <class Tensor>
Tensor& in_heads(Tensor& t, const AttentionProblem& p, int64_t heads, int64_t width) {
  return t.set_dim({p.batch, heads, p.tokens, p.head_dim}).set_stride({p.tokens * width, p.head_dim, width, 1});
}

std::shared_ptr<Graph> make_graph(const AttentionProblem& p) {
  auto g = std::make_shared<Graph>();
  g->set_io_data_type(p.dtype == DType::bf16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  g->set_sm_version(p.sm);
  g->set_cuda_graph_retention(fe::CudaGraphRetention_t::NONE);  // plans are kept anyway
  int64_t qkv_width = (p.heads + 2 * p.kv_heads) * p.head_dim, out_width = p.heads * p.head_dim;
  auto input = [&](Uid uid, int64_t heads, int64_t width) {
    Tensor_attributes t;
    return g->tensor(in_heads(t, p, heads, width).set_uid(uid));
  };
  auto output = [&](const TensorPtr& t, Uid uid, int64_t heads, int64_t width) {
    in_heads(*t, p, heads, width).set_output(true).set_uid(uid);
  };
  auto lse = [&](Tensor_attributes& t) -> Tensor_attributes& {
    return t.set_uid(uid_lse)
        .set_data_type(fe::DataType_t::FLOAT)
        .set_dim({p.batch, p.heads, p.tokens, 1})
        .set_stride({p.heads * p.tokens, p.tokens, 1, 1});
  };
  auto mask = [&](auto& options) {
    options.set_attn_scale(p.scale);
    if (p.causal) options.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT).set_diagonal_band_right_bound(0);
    // Keys are seen from `query - bound + 1` on (cudnn-frontend, attn_score_modifiers.h).
    if (p.window) options.set_diagonal_band_left_bound(int(p.window));
  };
  auto q = input(uid_q, p.heads, qkv_width);
  auto k = input(uid_k, p.kv_heads, qkv_width), v = input(uid_v, p.kv_heads, qkv_width);
  if (!p.backward) {
    fe::graph::SDPA_attributes options;
    mask(options);
    options.set_name("attention").set_generate_stats(true);
    auto [out, stats] = g->sdpa(q, k, v, options);
    output(out, uid_out, p.heads, out_width);
    lse(*stats).set_output(true);
    return g;
  }
  fe::graph::SDPA_backward_attributes options;
  mask(options);
  options.set_name("attention_grad").set_deterministic_algorithm(p.deterministic);
  auto out = input(uid_out, p.heads, out_width), dout = input(uid_dout, p.heads, out_width);
  Tensor_attributes stats;
  auto [dq, dk, dv] = g->sdpa_backward(q, k, v, out, dout, g->tensor(lse(stats)), options);
  output(dq, uid_dq, p.heads, qkv_width);
  output(dk, uid_dk, p.kv_heads, qkv_width);
  output(dv, uid_dv, p.kv_heads, qkv_width);
  return g;
}

// cuDNN's messages continue with a trace for every tried engine: keep the first line, and why the
// first one failed.
std::string shortened(const std::string& message) {
  std::string what = message.substr(0, message.find('\n'));
  size_t reason = message.find("Reason: ");
  return reason == std::string::npos ? what : what + " " + message.substr(reason, message.find('\n', reason) - reason);
}

void build(AttentionPlan& plan) {
  plan.reason = open_cudnn();
  if (!plan.reason.empty()) return;
  try {
    auto graph = make_graph(plan.problem);
    Handle& h = handle_of(plan.problem.device);
    std::lock_guard lock(h.mutex);
    must(graph->validate());
    must(graph->build_operation_graph(h.cudnn));
    must(graph->create_execution_plans({fe::HeurMode_t::A}));
    must(graph->check_support());
    must(graph->build_plans(fe::BuildPlanPolicy_t::HEURISTICS_CHOICE));
    int64_t bytes = 0;
    must(graph->get_workspace_size(bytes));
    plan.workspace = size_t(bytes);
    plan.graph = graph;
  } catch (const std::exception& e) {
    plan.reason = fmt::format("cuDNN {}: {}", fe::detail::get_backend_version(), shortened(e.what()));
  }
}

}  // namespace

const AttentionPlan& attention_plan(const AttentionProblem& problem) {
  static std::mutex mutex;
  static auto& plans = *new std::map<AttentionProblem, AttentionPlan>;  // outlives objects destroyed at exit
  std::lock_guard lock(mutex);
  auto [it, added] = plans.try_emplace(problem);
  if (added) {
    it->second.problem = problem;
    build(it->second);
  }
  return it->second;
}

void run_attention(const AttentionPlan& plan, const AttentionTensors& t, void* workspace, void* stream) {
  const AttentionProblem& p = plan.problem;
  // Where query, key and value heads start in qkv and dqkv.
  auto at = [&](const void* base, int64_t head) -> void* {
    return const_cast<char*>(static_cast<const char*>(base)) + head * p.head_dim * int64_t(size_of(p.dtype));
  };
  std::unordered_map<int64_t, void*> tensors = {{uid_q, at(t.qkv, 0)},
                                                {uid_k, at(t.qkv, p.heads)},
                                                {uid_v, at(t.qkv, p.heads + p.kv_heads)},
                                                {uid_out, t.out},
                                                {uid_lse, t.lse}};
  if (p.backward) {
    tensors[uid_dout] = at(t.dout, 0);
    tensors[uid_dq] = at(t.dqkv, 0);
    tensors[uid_dk] = at(t.dqkv, p.heads);
    tensors[uid_dv] = at(t.dqkv, p.heads + p.kv_heads);
  }
  try {
    Handle& h = handle_of(p.device);
    std::lock_guard lock(h.mutex);
    cudnnStatus_t status = fe::detail::set_stream(h.cudnn, static_cast<cudaStream_t>(stream));
    if (status != CUDNN_STATUS_SUCCESS) throw std::runtime_error(fe::detail::get_error_string(status));
    must(static_cast<const Graph*>(plan.graph.get())->execute(h.cudnn, tensors, workspace));
  } catch (const std::exception& e) {
    const char* op = p.backward ? "attention_grad" : "attention";
    fail(fmt::format("cuDNN: {}", shortened(e.what())), op,
         fmt::format("Try another kernel: --kernel {}='*flash*'.", op));
  }
}

#else

const AttentionPlan& attention_plan(const AttentionProblem&) {
  static const AttentionPlan none = {
      {}, "this build has no cuDNN kernels: run scripts/install-deps.sh cudnn, then cmake again", 0, nullptr};
  return none;
}

void run_attention(const AttentionPlan&, const AttentionTensors&, void*, void*) {
  fail_internal("cuDNN attention was launched in a build without it");
}

#endif

}  // namespace crest::cuda
