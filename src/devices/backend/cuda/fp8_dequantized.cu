// linear_fp8 with scales of blocks, where cuBLASLt refuses: its operands are converted to bf16
// (exactly) in the workspace, and multiplied.
#include "backend/cuda/cublaslt.h"
#include "backend/cuda/device/numeric.h"
#include "backend/cuda/fp8.h"
#include "backend/cuda/kernel.h"
#include "core/float8.h"
#include "ops/fp8.h"
#include "ops/index.h"

namespace crest::cuda {

namespace {

constexpr int widened = 8;  // numbers of a thread

template <class F>
__global__ void __launch_bounds__(256)
    widen_blocks(int64_t n, int64_t columns, const F* x, const float* scales, Fp8ScalePlace place, bfloat16* y) {
  wait_for_predecessors();
  const int64_t i = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * widened;
  if (i >= n) return;
  const float scale = scales[place(i / columns, i % columns)];
  const Vec<F, widened> from = load_vec<widened>(x + i);
  Vec<bfloat16, widened> to;
#pragma unroll
  for (int k = 0; k < widened; ++k) to.x[k] = narrow<bfloat16>(to_float(from.x[k]) * scale);
  store_vec(y + i, to);
}

std::string reject_dequantized(const KernelQuery& q) {
  namespace at = in::linear_fp8;
  if (fp8_blocks(q.instr.attrs) == Fp8Blocks::none) return "takes scales of blocks";
  if (std::string why = reject_fp8_product(q); !why.empty()) return why;
  if (q.in(at::w).shape[1] % widened) return "takes features in multiples of 8";
  if (q.out(0).dtype == DType::f16) return "makes f32 or bf16 of bf16 operands";
  return q.device.emulated ? "" : reject_without_cublaslt(q.device);
}

// Of the operands in bf16: inputs 0 and 1, and the bias or the accumulator input 2.
Contraction contraction_of_widened(const Program& program, const Instr& instr) {
  Contraction c = contraction_of(program, instr);
  c.a.dtype = c.b.dtype = DType::bf16;
  c.scaled = false, c.blocks = Fp8Blocks::none, c.third = 2;
  return c;
}

// Rounded up to cuBLASLt's alignment of its workspace, which follows the operands.
size_t operand_bytes(const Value& v) { return (size_t(v.numel()) * sizeof(bfloat16) + 255) / 256 * 256; }

size_t workspace_dequantized(const KernelQuery& q) {
  return operand_bytes(q.in(in::linear_fp8::x)) + operand_bytes(q.in(in::linear_fp8::w)) +
         (q.device.emulated ? 0 : cublaslt_workspace);
}

std::shared_ptr<void> prepare_dequantized(const KernelQuery& q) {
  if (q.device.emulated) return nullptr;
  const Contraction what = contraction_of_widened(q.program, q.instr);
  return prepare_cublaslt(what, plan_blas(what, 0, 0, q.out(0).layout.offset));
}

#if CREST_HAS_DEVICE_CODE
void write_widened(const KernelCall& c, void* x, void* w) {
  namespace at = in::linear_fp8;
  const Fp8Blocks blocks = fp8_blocks(c.instr.attrs);
  auto widen_operand = [&](size_t i, size_t scale, Fp8Blocks of, void* to) {
    const Value& v = c.in_value(i);
    with_float8(v.dtype, [&](auto format) {
      using F = decltype(format);
      launch(c, widen_blocks<F>, blocks_for(v.numel(), 256 * widened), 256, 0, v.numel(), v.shape.back(), c.input<F>(i),
             c.input<float>(scale), Fp8ScalePlace(of, c.in_value(scale).shape), static_cast<bfloat16*>(to));
    });
  };
  widen_operand(at::x, at::x_scale, fp8_blocks_of_x(blocks), x);
  widen_operand(at::w, at::w_scale, blocks, w);
}

// The call on the operands in the workspace.
template <class Body>
void on_widened(const KernelCall& c, Body body) {
  namespace at = in::linear_fp8;
  auto* x = static_cast<char*>(c.workspace);
  char* w = x + operand_bytes(c.in_value(at::x));
  void* in[] = {x, w, c.has(at::acc) ? c.in[at::acc] : c.has(at::b) ? c.in[at::b] : nullptr};
  KernelCall call = c;
  call.in = in, call.workspace = w + operand_bytes(c.in_value(at::w));
  body(call, x, w);
}

void launch_dequantized(const KernelCall& c) {
  on_widened(c, [&](const KernelCall& call, void* x, void* w) {
    write_widened(c, x, w);
    if (c.prepared) return launch_cublaslt(call);
    launch_tiled(call, contraction_of_widened(c.program, c.instr));
  });
}

void tune_dequantized(const KernelCall& c) {
  if (!c.prepared) return;
  on_widened(c, [&](const KernelCall& call, void* x, void* w) {
    tune_cublaslt(call, [&] { fill_product_operands(c), write_widened(c, x, w); });
  });
}
#endif

}  // namespace

Kernel linear_fp8_dequantized_kernel() {
  return {"linear_fp8",
          "cuda.linear_fp8.dequantized",
          reject_dequantized,
          workspace_dequantized,
          prepare_dequantized,
          CREST_DEVICE_CODE(launch_dequantized),
          CREST_DEVICE_CODE(tune_dequantized)};
}

}  // namespace crest::cuda
