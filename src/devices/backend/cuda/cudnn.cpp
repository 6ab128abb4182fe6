// attention and attention_grad by cuDNN, on interleaved qkv in place.
//
// The fastest backward pass adds up dQ with atomics, in an order varying between runs; it is used
// unless --deterministic is given. The deterministic pass keeps the gradient of the scores (batch x
// heads x tokens^2, half precision) in its workspace; problems above deterministic_limit bytes go
// to Crest's own kernels, which are deterministic.
#include "backend/cuda/cudnn.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/round_up.h"
#include "core/text.h"
#include "ops/attention.h"
#include "ops/index.h"

namespace crest::cuda {

namespace {

constexpr int64_t deterministic_limit = int64_t(2) << 30;

AttentionProblem problem_of(const KernelQuery& q, bool backward) {
  const Value& qkv = q.in(backward ? size_t(in::attention_grad::qkv) : size_t(in::attention::qkv));
  const Attrs& a = q.instr.attrs;
  int64_t heads = a.integer("heads"), kv_heads = a.integer("kv_heads");
  return {.batch = qkv.shape[0],
          .tokens = qkv.shape[1],
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = qkv.shape[2] / (heads + 2 * kv_heads),
          .dtype = qkv.dtype,
          .scale = float(a.number("scale")),
          .window = window_of(a, qkv.shape[1]),
          .causal = a.integer("causal", 0) != 0,
          .backward = backward,
          .deterministic = backward && q.device.deterministic,
          .device = q.device.index,
          .sm = q.device.sm};
}

// Bytes of the gradient of the scores, kept by the deterministic backward pass.
int64_t score_bytes(const AttentionProblem& p) {
  return p.batch * p.heads * round_up(p.tokens, 64) * round_up(p.tokens, 128) * 2;
}

// Head sizes with both passes in every version of cuDNN 9, and head sizes in newer ones on some
// GPUs.
constexpr int64_t certain_head_dim = 128, possible_head_dim = 256;

// Why cuDNN is not asked at all.
std::string unsuitable(const AttentionProblem& p, const KernelQuery& q) {
  if (!is_half(p.dtype)) return fmt::format("takes bf16 or f16, not {}", name(p.dtype));
  if (p.head_dim % 8 || p.head_dim > possible_head_dim)
    return fmt::format("head_dim {} is not a multiple of 8 up to {}", p.head_dim, possible_head_dim);
  if (p.head_dim > certain_head_dim && !device_present(q.device))
    return fmt::format("whether cuDNN supports a head_dim of {} is known on the device itself only", p.head_dim);
  if (!(p.scale > 0)) return "takes a positive scale";
  if (q.has(p.backward ? size_t(in::attention_grad::positions) : size_t(in::attention::positions)))
    return "has no mask for documents that share a row (--packing documents)";
  if (q.instr.attrs.number("p", 0.0) > 0) return "dropout masks come from Crest's own random numbers";
  if (p.backward && p.tokens == 1) return "cuDNN has no backward pass for one token";
  if (p.deterministic && score_bytes(p) > deterministic_limit)
    return fmt::format("the deterministic backward pass would need {} of workspace", format_bytes(score_bytes(p)));
  if (q.device.sm < 80) return "needs compute capability 8.0 or newer";
  if (!q.device.cudnn) return "cuDNN 9 was not found";
  return "";
}

template <bool backward>
std::string reject(const KernelQuery& q) {
  AttentionProblem p = problem_of(q, backward);
  if (std::string why = unsuitable(p, q); !why.empty()) return why;
  return device_present(q.device) ? attention_plan(p).reason : "";
}

// Without the device: the request of cuDNN 9.19 on sm_90 at 64 | tokens (it allocates dQ twice on
// sm_80, sm_89).
int64_t estimate(const AttentionProblem& p) {
  if (!p.backward) return 256;
  int64_t rows = p.batch * p.heads * round_up(p.tokens, 64);
  int64_t bytes = 256 + rows * 4;                            // do . o
  if (p.kv_heads < p.heads) bytes += rows * p.head_dim * 4;  // dK and dV of every query head, before they are added up
  if (p.deterministic) return bytes + score_bytes(p);
  return bytes + rows * p.head_dim * 4 * (p.sm < 90 ? 2 : 1);  // dQ in f32
}

// The real size if the device is present: reject() and prepare() look at the same plan, so the
// reserved size suffices.
template <bool backward>
size_t workspace(const KernelQuery& q) {
  AttentionProblem p = problem_of(q, backward);
  return device_present(q.device) ? attention_plan(p).workspace : size_t(estimate(p));
}

template <bool backward>
std::shared_ptr<void> prepare(const KernelQuery& q) {
  if (!device_present(q.device)) fail_internal("cuDNN attention was prepared for a device that is not here");
  const AttentionPlan& plan = attention_plan(problem_of(q, backward));
  if (!plan.reason.empty()) fail_internal("cuDNN attention was chosen though it cannot run: " + plan.reason);
  return {std::shared_ptr<void>(), const_cast<AttentionPlan*>(&plan)};  // kept by the process, nothing to free
}

void launch_attention(const KernelCall& c) {
  AttentionTensors t;
  t.qkv = c.in[in::attention::qkv], t.out = c.out[out::attention::o], t.lse = c.out[out::attention::lse];
  run_attention(*static_cast<const AttentionPlan*>(c.prepared), t, c.workspace, c.stream);
}

void launch_attention_grad(const KernelCall& c) {
  AttentionTensors t;
  t.dout = c.in[in::attention_grad::d_o], t.qkv = c.in[in::attention_grad::qkv], t.out = c.in[in::attention_grad::o];
  t.lse = c.in[in::attention_grad::lse], t.dqkv = c.out[out::attention_grad::dqkv];
  run_attention(*static_cast<const AttentionPlan*>(c.prepared), t, c.workspace, c.stream);
}

}  // namespace

Kernel attention_cudnn_kernel() {
  return {"attention",    "cuda.attention.cudnn", reject<false>,   workspace<false>,
          prepare<false>, launch_attention,       /*tune=*/nullptr};
}

Kernel attention_grad_cudnn_kernel() {
  return {"attention_grad", "cuda.attention_grad.cudnn", reject<true>,    workspace<true>,
          prepare<true>,    launch_attention_grad,       /*tune=*/nullptr};
}

}  // namespace crest::cuda
