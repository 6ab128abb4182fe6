// split_rows and member are views and need no kernel; join_rows copies the pieces not already in
// their place.
#include "backend/cuda/device/numeric.h"
#include "backend/cuda/kernel.h"
#include "ops/index.h"

namespace crest::cuda {

namespace {

template <class T, int N>
__global__ void copy_piece(const T* from, T* to, int64_t vectors) {
  wait_for_predecessors();
  int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= vectors) return;
  if constexpr (N == 1)
    to[i] = from[i];
  else
    store_vec(to + i * N, load_vec<N>(from + i * N));
}

std::string reject_join(const KernelQuery& q) {
  if (q.out(out::join_rows::x).numel() > int64_t(1) << 38) return "more elements than one launch has threads for";
  return reject_unless_float(q);
}

void launch_join(const KernelCall& c) {
  with_type(c.out_value(out::join_rows::x).dtype, [&](auto t) {
    using T = decltype(t);
    constexpr int N = Vec<T>::size;
    T* to = c.output<T>(out::join_rows::x);
    for (size_t i = 0; i < c.instr.in.size(); ++i) {
      const T* from = c.input<T>(i);
      int64_t n = c.in_value(i).numel();
      if (from != to && n % N == 0 && aligned({from, to}))
        launch(c, copy_piece<T, N>, blocks_for(n / N, 256), 256, 0, from, to, n / N);
      else if (from != to)
        launch(c, copy_piece<T, 1>, blocks_for(n, 256), 256, 0, from, to, n);
      to += n;
    }
  });
}

}  // namespace

static Kernel view_kernel(const char* op, const char* name) {
  return {op, name, [](const KernelQuery&) { return std::string(); }, nullptr, nullptr, [](const KernelCall&) {}};
}
Kernel split_rows_kernel() { return view_kernel("split_rows", "cuda.split_rows.view"); }
Kernel member_kernel() { return view_kernel("member", "cuda.member.view"); }
Kernel join_rows_kernel() {
  return {"join_rows", "cuda.join_rows.copy", reject_join, nullptr, nullptr, CREST_DEVICE_CODE(launch_join)};
}

}  // namespace crest::cuda
