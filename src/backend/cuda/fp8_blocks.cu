// quantize_blocks, quantize_blocks_columns and take_counts; and linear_fp8 with scales of blocks on
// operands in bf16, which holds them exactly.
#include "backend/cuda/cublaslt.h"
#include "backend/cuda/device/numeric.h"
#include "backend/cuda/device/quantize.h"
#include "backend/cuda/fp8.h"
#include "backend/cuda/kernel.h"
#include "core/float8.h"
#include "ops/fp8.h"
#include "ops/index.h"

namespace crest::cuda {

namespace {

// A block of threads has a tile of 128 x 128, in which a thread has four rows of eight numbers;
// sixteen threads have whole rows.
constexpr int threads = 512, warps = threads / 32;
constexpr int side = int(fp8_block), pack = 4, vector = 8, across = side / vector, groups = side / pack;

struct Blocks {
  int64_t height, width, pitch, tiles_across;  // pitch: of the transpose
  uint8_t *rows, *columns;                     // q and its transpose; either may be null
  float *row_scales, *column_scales;           // null with rows and columns
  Fp8ScalePlace row_place, column_place;
  int64_t row_blocks, column_blocks;  // a row of scales has, of squares
  unsigned long long* counts;
};

template <class F>
__device__ inline float scale_of(float amax) {
  return power_of_two(Quantizer::is_magnitude(amax) ? scale_exponent<F>(amax, 0) : 0);
}

template <class T, bool E5m2, bool Vectors, bool Squares>
__global__ void __launch_bounds__(threads, 2) quantize(const T* x, const __grid_constant__ Blocks a) {
  wait_for_predecessors();
  using F = std::conditional_t<E5m2, float8_e5m2, float8_e4m3>;
  __shared__ float parts[warps][side];  // the largest magnitudes of columns in the rows of a warp
  __shared__ float column_inverse[side];
  __shared__ uint32_t turned[side][groups + 1];
  const int place = int(threadIdx.x) % across, group = int(threadIdx.x) / across, warp = int(threadIdx.x) / 32;
  const int64_t down = blockIdx.x / a.tiles_across, right = blockIdx.x % a.tiles_across;
  const int64_t top = down * side, left = right * side, row = top + group * pack, column = left + place * vector;
  const bool inside = column < a.width;

  float v[pack][vector], row_most[pack], most[vector] = {};
#pragma unroll
  for (int r = 0; r < pack; ++r) {
    Eight<T, Vectors> eight = {};
    if (inside && row + r < a.height) eight.load(x + (row + r) * a.width, column, a.width);
    eight.widen_to(v[r]);
    row_most[r] = 0;
#pragma unroll
    for (int i = 0; i < vector; ++i) {
      const float m = fabsf(v[r][i]);
      row_most[r] = fmaxf(row_most[r], m), most[i] = fmaxf(most[i], m);
    }
#pragma unroll
    for (int d = 1; d < across; d *= 2) row_most[r] = fmaxf(row_most[r], __shfl_xor_sync(0xffffffffu, row_most[r], d));
  }
#pragma unroll
  for (int i = 0; i < vector; ++i) {
    const float m = fmaxf(most[i], __shfl_xor_sync(0xffffffffu, most[i], across));
    if (threadIdx.x % 32 < across) parts[warp][place * vector + i] = m;
  }
  __syncthreads();
  if (threadIdx.x < side) {
    float m = 0;
    for (int w = 0; w < warps; ++w) m = fmaxf(m, parts[w][threadIdx.x]);
    if constexpr (Squares) {
      column_inverse[threadIdx.x] = m;
    } else {
      const float scale = scale_of<F>(m);
      column_inverse[threadIdx.x] = 1.f / scale;
      if (a.column_scales && left + threadIdx.x < a.width)
        a.column_scales[a.column_place(left + threadIdx.x, top)] = scale;
    }
  }
  __syncthreads();
  float row_inverse[pack];  // of squares all the same, also for columns
  if constexpr (Squares) {
    float m = 0;
    for (int i = int(threadIdx.x) % 32; i < side; i += 32) m = fmaxf(m, column_inverse[i]);
    const float scale = scale_of<F>(warp_max(m));
#pragma unroll
    for (int r = 0; r < pack; ++r) row_inverse[r] = 1.f / scale;
    if (threadIdx.x == 0) {
      // The last of a row of scales fills it up with zeros.
      auto write = [](float* scales, int64_t at, int64_t index, int64_t blocks, int64_t filled, float scale) {
        if (!scales) return;
        scales[at] = scale;
        for (int64_t i = index + 1; index + 1 == blocks && i < filled; ++i) scales[at + i - index] = 0;
      };
      const int64_t tiles_down = gridDim.x / a.tiles_across;
      write(a.row_scales, a.row_place(top, left), right, a.tiles_across, a.row_blocks, scale);
      write(a.column_scales, a.column_place(left, top), down, tiles_down, a.column_blocks, scale);
    }
  } else {
#pragma unroll
    for (int r = 0; r < pack; ++r) {
      const float scale = scale_of<F>(row_most[r]);
      row_inverse[r] = 1.f / scale;
      if (a.row_scales && place == 0 && row + r < a.height) a.row_scales[a.row_place(row + r, left)] = scale;
    }
  }

  if (a.rows) {
    Seen seen;
#pragma unroll
    for (int r = 0; r < pack; ++r) {
      uint32_t both[2];
      seen.quantize(v[r], row_inverse[r], E5m2, both);
      if (!inside || row + r >= a.height) continue;
      uint8_t* to = a.rows + (row + r) * a.width + column;
      if constexpr (Vectors)
        *reinterpret_cast<uint2*>(to) = make_uint2(both[0], both[1]);
      else
        for (int i = 0; i < vector && column + i < a.width; ++i) to[i] = uint8_t(both[i / 4] >> (i % 4 * 8));
    }
    Quantizer counters;
    counters.counts = a.counts;
    seen.leave(counters, Scaling());
  }
  if (!a.columns) return;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float by[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) by[i] = Squares ? row_inverse[0] : column_inverse[place * vector + half * 4 + i];
    uint32_t codes[pack];  // of four columns and a row
#pragma unroll
    for (int r = 0; r < pack; ++r) {
      const float* from = v[r] + half * 4;
      codes[r] = to_codes(E5m2, from[0] * by[0], from[1] * by[1]);
      codes[r] |= to_codes(E5m2, from[2] * by[2], from[3] * by[3]) << 16;
    }
    transpose_codes(codes);
#pragma unroll
    for (int i = 0; i < 4; ++i) turned[place * vector + half * 4 + i][group] = codes[i];
  }
  __syncthreads();
  // A warp writes a row of the transpose. Its pitch is a multiple of 16, so words are whole.
  const int64_t first = top + int64_t(threadIdx.x % 32) * pack;
  for (int c = warp; c < side; c += warps)
    if (left + c < a.width && first < a.pitch)
      *reinterpret_cast<uint32_t*>(a.columns + (left + c) * a.pitch + first) = turned[c][threadIdx.x % 32];
}

__global__ void __launch_bounds__(256) move_counts(int64_t n, unsigned long long* counts, unsigned long long* lost) {
  wait_for_predecessors();
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) lost[i] = counts[i], counts[i] = 0;
}

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

#if CREST_HAS_DEVICE_CODE
void start_blocks(const KernelCall& c, Blocks a, DType format, Fp8Blocks blocks) {
  const Value& x = c.in_value(0);
  a.height = x.shape.rows(), a.width = x.shape.back(), a.pitch = fp8_padded(a.height);
  a.tiles_across = fp8_blocks_of(a.width);
  const Shape row_scales = fp8_scales(blocks, a.height, a.width), column_scales = fp8_scales(blocks, a.width, a.height);
  a.row_place = {blocks, row_scales}, a.column_place = {blocks, column_scales};
  a.row_blocks = row_scales[1], a.column_blocks = column_scales[1];
  const auto tiles = unsigned(a.tiles_across * fp8_blocks_of(a.height));
  const bool vectors = a.width % vector == 0 && aligned({c.in[0]}) && (!a.rows || aligned({a.rows}, 8));
  with_type(x.dtype, [&](auto t) {
    using T = decltype(t);
    auto run = [&](auto kernel) { launch(c, kernel, tiles, threads, 0, c.input<T>(0), a); };
    auto of_squares = [&](auto e5m2, auto whole) {
      constexpr bool E = decltype(e5m2)::value, V = decltype(whole)::value;
      if (blocks == Fp8Blocks::squares) return run(quantize<T, E, V, true>);
      run(quantize<T, E, V, false>);
    };
    auto of_vectors = [&](auto e5m2) {
      if (vectors) return of_squares(e5m2, std::true_type());
      of_squares(e5m2, std::false_type());
    };
    if (format == DType::e5m2) return of_vectors(std::true_type());
    of_vectors(std::false_type());
  });
}

void launch_blocks(const KernelCall& c) {
  namespace to = out::quantize_blocks;
  Blocks a = {};
  a.rows = c.output<uint8_t>(to::q), a.row_scales = c.output<float>(to::scale);
  if (c.instr.out.size() > to::t) a.columns = c.output<uint8_t>(to::t), a.column_scales = c.output<float>(to::t_scale);
  a.counts = c.output<unsigned long long>(to::counts) + 2 * c.instr.attrs.integer("slot");
  start_blocks(c, a, c.out_value(to::q).dtype, fp8_blocks(c.instr.attrs));
}

void launch_blocks_columns(const KernelCall& c) {
  namespace to = out::quantize_blocks_columns;
  Blocks a = {};
  a.columns = c.output<uint8_t>(to::t), a.column_scales = c.output<float>(to::scale);
  start_blocks(c, a, c.out_value(to::t).dtype, fp8_blocks(c.instr.attrs));
}

void launch_take_counts(const KernelCall& c) {
  const int64_t n = c.in_value(in::take_counts::counts).numel();
  launch(c, move_counts, blocks_for(n, 256), 256, 0, n, c.output<unsigned long long>(out::take_counts::counts),
         c.output<unsigned long long>(out::take_counts::lost));
}
#endif

std::string reject_blocks(const KernelQuery& q) {
  if (std::string why = reject_value(q.in(0)); !why.empty()) return why;
  const int64_t tiles = fp8_blocks_of(q.in(0).shape.rows()) * fp8_blocks_of(q.in(0).shape.back());
  return q.in(0).numel() == 0 ? "an empty operand" : tiles >= int64_t(1) << 31 ? "2^31 tiles" : "";
}
std::string reject_counts(const KernelQuery& q) {
  return q.in(in::take_counts::counts).numel() == 0 ? "an empty operand" : "";
}

// linear_fp8 with scales of blocks where cuBLASLt does not take them: its operands are made bf16 in
// the workspace, and multiplied as such.
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

// Rounded up to the alignment that cuBLASLt wants of its workspace, which follows the operands.
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

Kernel quantize_blocks_kernel() {
  return {"quantize_blocks", "cuda.quantize_blocks.tiles",    reject_blocks, nullptr,
          nullptr,           CREST_DEVICE_CODE(launch_blocks)};
}
Kernel quantize_blocks_columns_kernel() {
  return {"quantize_blocks_columns",
          "cuda.quantize_blocks_columns.tiles",
          reject_blocks,
          nullptr,
          nullptr,
          CREST_DEVICE_CODE(launch_blocks_columns)};
}
Kernel take_counts_kernel() {
  return {"take_counts", "cuda.take_counts", reject_counts, nullptr, nullptr, CREST_DEVICE_CODE(launch_take_counts)};
}

}  // namespace crest::cuda
