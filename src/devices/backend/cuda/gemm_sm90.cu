// linear, linear_gelu, linear_swiglu and their gradients by Crest's own GEMMs for compute
// capability 9.0.
#include "backend/cuda/attention_sm90_entry.h"
#include "backend/cuda/column_sums.h"
#include "backend/cuda/contraction.h"
#include "backend/cuda/cublaslt.h"
#include "backend/cuda/gemm_sm90_entry.h"
#include "backend/cuda/gemm_sm90_gelu_grad.h"
#include "backend/cuda/gemm_sm90_pingpong.h"
#include "backend/cuda/gemm_sm90_weight.h"
#include "ops/index.h"

namespace crest::cuda {

namespace {

namespace dx_at = in::linear_dx_gelu_grad;
namespace dx_to = out::linear_dx_gelu_grad;

constexpr int group = 8;  // row tiles; 4 to 64 take the same time within 2% (H200)

bool is(const Instr& instr, std::string_view op) { return op == instr.op->name; }
bool is_gelu_grad(const Instr& instr) { return is(instr, "linear_dx_gelu_grad"); }
bool is_weight_grad(const Instr& instr) { return is(instr, "linear_dw"); }
bool is_swiglu(const Instr& instr) { return is(instr, "linear_swiglu"); }
bool is_swiglu_grad(const Instr& instr) { return is(instr, "linear_dx_swiglu_grad"); }
bool is_dx(const Instr& instr) {
  return is(instr, "linear_dx") || is(instr, "linear_dx_sum") || is_gelu_grad(instr) || is_swiglu_grad(instr);
}

// x[m,k] w[n,k]^T, dy[m,k] w[k,n], or dy[k,m]^T x[k,n].
struct Sizes {
  int64_t m, n, k;
  int64_t a_pitch, pitch;  // of x or dy, and of the result
};
Sizes sizes_of(const Program& program, const Instr& instr) {
  const Value &a = program.at(instr.in[0]), &b = program.at(instr.in[1]);
  const int64_t rows = a.shape.rows(), a_pitch = a.pitch(), pitch = program.at(instr.out[0]).pitch();
  if (is_weight_grad(instr)) return {a.shape.back(), b.shape.back(), rows, a_pitch, pitch};
  const bool dx = is_dx(instr);
  return {rows, b.shape[dx ? 1 : 0], b.shape[dx ? 0 : 1], a_pitch, pitch};
}

sm90::WeightPlan weight_plan_of(const Sizes& s, const Device& device) {
  return sm90::weight_plan(s.m, s.n, s.k, std::max(device.multiprocessors, 1));
}

template <class T, sm90::After after>
int start_linear(const KernelCall& c) {
  const Sizes s = sizes_of(c.program, c.instr);
  const bool keep = c.instr.out.size() > out::linear_gelu::h;
  const sm90::GemmCall call = {.a = c.in[in::linear::x],
                               .b = c.in[in::linear::w],
                               .bias = c.has(in::linear::b) ? c.in[in::linear::b] : nullptr,
                               .c = c.out[0],
                               .second = keep ? c.out[out::linear_gelu::h] : nullptr,
                               .pitch = int(s.pitch)};
  return sm90::start_pingpong<sm90::PingPongTile<T, after, false, false>>(
      call, int(s.m), int(s.n), int(s.k), group, sm90::encode_tiled(), c.device->multiprocessors, launch_on(c));
}

void launch_linear(const KernelCall& c) {
  with_half_type(c.in_value(in::linear::x).dtype, [&](auto type) {
    using T = decltype(type);
    const int code = is(c.instr, "linear_gelu") ? start_linear<T, sm90::After::bias_gelu>(c)
                     : c.has(in::linear::b)     ? start_linear<T, sm90::After::bias>(c)
                                                : start_linear<T, sm90::After::plain>(c);
    check(code, c.instr_name());
  });
}

void launch_dx(const KernelCall& c) {
  const Sizes s = sizes_of(c.program, c.instr);
  with_half_type(c.in_value(in::linear_dx::dy).dtype, [&](auto type) {
    const sm90::GemmCall call = {.a = c.in[in::linear_dx::dy],
                                 .b = c.in[in::linear_dx::w],
                                 .c = c.out[out::linear_dx::dx],
                                 .a_pitch = int(s.a_pitch)};
    using Tile = sm90::PingPongTile<decltype(type), sm90::After::plain, false, true>;
    check(sm90::start_pingpong<Tile>(call, int(s.m), int(s.n), int(s.k), group, sm90::encode_tiled(),
                                     c.device->multiprocessors, launch_on(c)),
          c.instr_name());
  });
}

void launch_swiglu(const KernelCall& c) {
  namespace at = in::linear_swiglu;
  namespace to = out::linear_swiglu;
  const Sizes s = sizes_of(c.program, c.instr);
  const bool keep = c.instr.out.size() > to::g;
  with_half_type(c.in_value(at::x).dtype, [&](auto type) {
    const sm90::GemmCall call = {.a = c.in[at::x],
                                 .b = c.in[at::w],
                                 .c = c.out[to::a],
                                 .second = keep ? c.out[to::g] : nullptr,
                                 .b_2 = c.in[at::w_up],
                                 .third = keep ? c.out[to::u] : nullptr};
    using Tile = sm90::PingPongTile<decltype(type), sm90::After::swiglu, false, false>;
    check(sm90::start_pingpong<Tile>(call, int(s.m), int(s.n), int(s.k), group, sm90::encode_tiled(),
                                     c.device->multiprocessors, launch_on(c)),
          c.instr_name());
  });
}

void launch_dx_sum(const KernelCall& c) {
  namespace at = in::linear_dx_sum;
  const Sizes s = sizes_of(c.program, c.instr);
  with_half_type(c.in_value(at::dy).dtype, [&](auto type) {
    const sm90::GemmCall call = {.a = c.in[at::dy],
                                 .b = c.in[at::w],
                                 .c = c.out[out::linear_dx_sum::dx],
                                 .a_2 = c.in[at::dy_2],
                                 .b_2 = c.in[at::w_2]};
    using Tile = sm90::PingPongTile<decltype(type), sm90::After::plain, false, true, 2>;
    check(sm90::start_pingpong<Tile>(call, int(s.m), int(s.n), int(s.k), group, sm90::encode_tiled(),
                                     c.device->multiprocessors, launch_on(c)),
          c.instr_name());
  });
}

void launch_swiglu_grad(const KernelCall& c) {
  namespace at = in::linear_dx_swiglu_grad;
  namespace to = out::linear_dx_swiglu_grad;
  const Sizes s = sizes_of(c.program, c.instr);
  with_half_type(c.in_value(at::dy).dtype, [&](auto type) {
    const sm90::GemmCall call = {.a = c.in[at::dy],
                                 .b = c.in[at::w],
                                 .x = c.in[at::g],
                                 .c = c.out[to::dg],
                                 .second = c.out[to::du],
                                 .x_2 = c.in[at::u],
                                 .third = c.instr.out.size() > to::a ? c.out[to::a] : nullptr};
    check(sm90::start_swiglu_grad<decltype(type)>(call, int(s.m), int(s.n), int(s.k), group, sm90::encode_tiled(),
                                                  c.device->multiprocessors, launch_on(c)),
          c.instr_name());
  });
}

void launch_dw(const KernelCall& c) {
  const Sizes s = sizes_of(c.program, c.instr);
  const sm90::WeightCall call = {c.in[in::linear_dw::dy],
                                 c.in[in::linear_dw::x],
                                 c.has(in::linear_dw::acc) ? c.in[in::linear_dw::acc] : nullptr,
                                 c.out[out::linear_dw::dw],
                                 static_cast<float*>(c.workspace),
                                 int(s.a_pitch)};
  with_half_type(c.in_value(in::linear_dw::dy).dtype, [&](auto type) {
    using T = decltype(type);
    auto start = [&](auto result) {
      check(sm90::start_weight<T, decltype(result)>(call, int(s.m), int(s.n), int(s.k), sm90::encode_tiled(),
                                                    std::max(c.device->multiprocessors, 1), launch_on(c)),
            c.instr_name());
    };
    if (c.out_value(out::linear_dw::dw).dtype == DType::f32)
      start(float());
    else
      start(T());
  });
}

void launch_gelu_grad(const KernelCall& c) {
  Sizes s = sizes_of(c.program, c.instr);
  auto* partial = static_cast<float*>(c.workspace);
  with_half_type(c.in_value(dx_at::dy).dtype, [&](auto type) {
    const sm90::GemmCall call = {.a = c.in[dx_at::dy],
                                 .b = c.in[dx_at::w],
                                 .x = c.in[dx_at::x],
                                 .c = c.out[dx_to::dx],
                                 .second = c.instr.out.size() > dx_to::a ? c.out[dx_to::a] : nullptr,
                                 .partial = partial};
    check(sm90::start_gelu_grad<decltype(type)>(call, int(s.m), int(s.n), int(s.k), group, sm90::encode_tiled(),
                                                c.device->multiprocessors, launch_on(c)),
          c.instr_name());
  });
  launch_column_sums(c, partial, sm90::gelu_grad_row_tiles(s.m), s.n, c.out_value(dx_to::db).dtype,
                     c.has(dx_at::acc) ? c.in[dx_at::acc] : nullptr, c.out[dx_to::db]);
}

}  // namespace

GemmTile gemm_sm90_tile(const Instr& instr) {
  using Linear = sm90::PingPongTile<bfloat16, sm90::After::plain, false, false>;
  using GeluGrad = sm90::GeluGradTile<bfloat16>;
  if (is_weight_grad(instr)) return {sm90::WeightTile::rows, sm90::WeightTile::columns, true};
  if (is_gelu_grad(instr) || is_swiglu_grad(instr)) return {GeluGrad::rows, GeluGrad::columns, false};
  return {Linear::rows, Linear::columns, false};
}

std::string reject_gemm_sm90(const KernelQuery& q) {
  if (q.device.sm != 90) return "needs compute capability 9.0";
  if (!compiled_for("90a")) return "was not compiled: CUDA_ARCHS of this build lacks 90a";
  const bool gelu_grad = is_gelu_grad(q.instr), weight_grad = is_weight_grad(q.instr);
  if (is(q.instr, "linear_gelu") && !q.has(in::linear_gelu::b)) return "takes a bias";
  // Gradients of parameters may be f32.
  const int grad = gelu_grad ? int(dx_to::db) : weight_grad ? int(out::linear_dw::dw) : -1;
  const size_t acc = gelu_grad ? size_t(dx_at::acc) : size_t(in::linear_dw::acc);
  for (auto* list : {&q.instr.in, &q.instr.out})
    for (ValueId id : *list) {
      if (id == no_value) continue;
      const Value& v = q.program.at(id);
      const bool sums = grad >= 0 && (id == q.instr.out[size_t(grad)] || (q.has(acc) && id == q.instr.in[acc]));
      if (!is_half(v.dtype) && !(sums && v.dtype == DType::f32)) return v.name + ": takes bf16 or f16";
      if (v.layout.offset % 8 && !(sums && gelu_grad)) return v.name + ": takes addresses aligned to 16 bytes";
    }
  if (weight_grad && q.out(out::linear_dw::dw).dtype != DType::f32 &&
      q.out(out::linear_dw::dw).dtype != q.in(in::linear_dw::dy).dtype)
    return "makes f32 or the dtype of its operands";
  Sizes s = sizes_of(q.program, q.instr);
  if (s.a_pitch % 8 || s.pitch % 8) return "takes rows that begin at multiples of 8 elements";
  if (s.m == 0 || s.n == 0 || s.k == 0) return "empty operands";
  constexpr int64_t most = int64_t(1) << 30;
  if (std::max({s.m, s.n, s.k, s.a_pitch, s.pitch}) > most) return "takes up to 2^30 rows and columns";
  if (weight_grad && s.k > sm90::most_weight_k) return "takes up to 2^28 rows";
  return reject_shared_memory(q, 232448);
}

size_t gemm_sm90_workspace(const KernelQuery& q) {
  Sizes s = sizes_of(q.program, q.instr);
  int64_t floats = 0;
  if (is_gelu_grad(q.instr)) floats = sm90::gelu_grad_row_tiles(s.m) * s.n;
  if (is_weight_grad(q.instr)) floats = sm90::weight_workspace(weight_plan_of(s, q.device));
  return size_t(floats) * sizeof(float);
}

#if CREST_HAS_DEVICE_CODE
void launch_gemm_sm90(const KernelCall& c) {
  if (is_gelu_grad(c.instr))
    launch_gelu_grad(c);
  else if (is_swiglu(c.instr))
    launch_swiglu(c);
  else if (is_swiglu_grad(c.instr))
    launch_swiglu_grad(c);
  else if (is(c.instr, "linear_dx_sum"))
    launch_dx_sum(c);
  else if (is_weight_grad(c.instr))
    launch_dw(c);
  else if (is(c.instr, "linear_dx"))
    launch_dx(c);
  else
    launch_linear(c);
}
#endif

namespace {

// Crest's own kernel or cuBLASLt's, whichever is faster (prepare_cublaslt_or_sm90).
bool has_library(const KernelQuery& q) { return reject_cublaslt(q).empty(); }
size_t workspace_of_either(const KernelQuery& q) {
  return std::max(gemm_sm90_workspace(q), has_library(q) ? workspace_cublaslt(q) : 0);
}
std::shared_ptr<void> prepare_either(const KernelQuery& q) {
  return has_library(q) ? prepare_cublaslt_or_sm90(q) : nullptr;
}
void launch_either(const KernelCall& c) {
  if (c.prepared)
    launch_cublaslt(c);
  else
    launch_gemm_sm90(c);
}
void tune_either(const KernelCall& c) {
  if (c.prepared) tune_cublaslt(c);
}
Kernel either(const char* op, const char* name) {
  return {op,         name, reject_gemm_sm90, workspace_of_either, prepare_either, CREST_DEVICE_CODE(launch_either),
          tune_either};
}

}  // namespace

Kernel linear_sm90_kernel() { return either("linear", "cuda.linear.sm90_or_cublaslt"); }
Kernel linear_gelu_sm90_kernel() { return either("linear_gelu", "cuda.linear_gelu.sm90_or_cublaslt"); }
Kernel linear_dx_sm90_kernel() { return either("linear_dx", "cuda.linear_dx.sm90_or_cublaslt"); }
Kernel linear_dw_sm90_kernel() { return either("linear_dw", "cuda.linear_dw.sm90_or_cublaslt"); }

static Kernel own(const char* op, const char* name) {
  return {op, name, reject_gemm_sm90, gemm_sm90_workspace, nullptr, CREST_DEVICE_CODE(launch_gemm_sm90)};
}
Kernel linear_dx_gelu_grad_sm90_kernel() { return own("linear_dx_gelu_grad", "cuda.linear_dx_gelu_grad.sm90"); }
Kernel linear_swiglu_sm90_kernel() { return own("linear_swiglu", "cuda.linear_swiglu.sm90"); }
Kernel linear_dx_sum_sm90_kernel() { return own("linear_dx_sum", "cuda.linear_dx_sum.sm90"); }
Kernel swiglu_grad_sm90_kernel() { return own("linear_dx_swiglu_grad", "cuda.linear_dx_swiglu_grad.sm90"); }

}  // namespace crest::cuda
