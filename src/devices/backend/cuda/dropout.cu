// dropout: one Philox block decides about four elements (core/random.h), the same ones as on the
// CPU.
#include "backend/cuda/device/dropout.h"
#include "backend/cuda/dropout.h"
#include "ops/index.h"

namespace crest::cuda {

namespace {

constexpr int threads = 256, unroll = 2;

// A block works on one sample (or row) of `size` elements, on unroll * threads groups of N.
// `vectors`: groups are whole and aligned. y may be x: a thread reads all of its elements before it
// writes one. With a cast (O is not T) numbers are rounded to the narrower type on both sides.
template <class T, class O, int N, bool vectors>
__global__ void __launch_bounds__(threads)
    dropout(const T* x, O* y, int64_t size, unsigned blocks_per_sample, DropoutRows rows) {
  wait_for_predecessors();
  unsigned sample = blockIdx.x / blocks_per_sample, part = blockIdx.x % blocks_per_sample;
  int64_t first = (int64_t(part) * unroll * threads + threadIdx.x) * N;
  x += sample * size, y += sample * size;
  float v[unroll][N];
#pragma unroll
  for (int u = 0; u < unroll; ++u) {
    int64_t e = first + int64_t(u) * threads * N;
    if constexpr (vectors) {
      if (e < size) load_floats(x + e, v[u]);
    } else {
      for (int k = 0; k < N; ++k) v[u][k] = e + k < size ? widen(x[e + k]) : 0.f;
    }
  }
  const DropoutSpan span(rows, sample, size);
#pragma unroll
  for (int u = 0; u < unroll; ++u) {
    int64_t e = first + int64_t(u) * threads * N;
    if (e >= size) break;
    if constexpr (sizeof(T) > sizeof(O))
      for (float& a : v[u]) a = widen(narrow<O>(a));
    if (vectors || span.first % 4 == 0)
      span.drop(v[u], uint64_t(e));
    else
      for (int k = 0; k < N; ++k) v[u][k] = span.dropped(v[u][k], uint64_t(e + k));
    if constexpr (sizeof(T) < sizeof(O))
      for (float& a : v[u]) a = widen(narrow<T>(a));
    if constexpr (vectors) {
      store_floats(y + e, v[u]);
    } else {
      for (int k = 0; k < N && e + k < size; ++k) y[e + k] = narrow<O>(v[u][k]);
    }
  }
}

void launch_dropout(const KernelCall& c) {
  const Value& x = c.in_value(in::dropout::x);
  // Ranks may share the rows of a sample: then each row is one by itself.
  const bool by_rows = c.instr.attrs.has("axes");
  const int64_t samples = by_rows ? x.shape.rows() : x.shape[0], size = samples ? x.numel() / samples : 0;
  if (size == 0) return;
  with_type(x.dtype, [&](auto t) {
    with_type(c.out_value(out::dropout::y).dtype, [&](auto o) {
      using T = decltype(t);
      using O = decltype(o);
      if constexpr (sizeof(T) != sizeof(O) || std::is_same_v<T, O>) {
        constexpr int N = 16 / int(std::max(sizeof(T), sizeof(O)));
        auto start = [&](auto kernel, int64_t per_block) {
          unsigned blocks = blocks_for(size, per_block);
          launch(
              c, kernel, blocks_for(samples * blocks, 1), threads, 0, c.input<T>(in::dropout::x),
              c.output<O>(out::dropout::y), size, blocks,
              by_rows ? dropout_rows(c, in::dropout::scalars, x) : DropoutRows{dropout_rule(c, in::dropout::scalars)});
        };
        if (size % N == 0 && aligned({c.in[in::dropout::x], c.out[out::dropout::y]}))
          start(dropout<T, O, N, true>, int64_t(threads) * unroll * N);
        else
          start(dropout<T, O, 4, false>, int64_t(threads) * unroll * 4);
      } else {
        fail_internal("dropout was given dtypes that it rejects");
      }
    });
  });
}

std::string reject(const KernelQuery& q) {
  const DType x = q.in(in::dropout::x).dtype, y = q.out(out::dropout::y).dtype;
  if (x != y && is_half(x) && is_half(y)) return "casts between f32 and one of bf16 and f16";
  return reject_unless_float(q);
}

}  // namespace

Kernel dropout_kernel() {
  return {"dropout", "cuda.dropout.philox", reject, nullptr, nullptr, CREST_DEVICE_CODE(launch_dropout)};
}

}  // namespace crest::cuda
