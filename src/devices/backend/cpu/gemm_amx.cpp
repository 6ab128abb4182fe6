#include "backend/cpu/gemm_amx.h"

#include <omp.h>

#include "backend/cpu/common.h"
#include "backend/cpu/packed_output.h"
#include "backend/cpu/simd/amx.h"
#include "core/round_up.h"

namespace crest::cpu {
namespace {

constexpr int64_t width = amx_width;

// How a product is cut: panels of both operands, packed by all threads, and blocks of c, each
// computed by one thread.
struct Cut {
  int64_t depth, panel_m, panel_n, block_m, block_n, steps;
  int64_t a_elements, b_elements, block_floats, sum_floats = 0;  // of the workspace
  Cut(const PackedShape& s, int threads, const AmxBlocking& blocking) {
    // A reduction too long for one panel is cut into equal parts.
    int64_t longest = blocking.panel_elements / 1024, parts = (s.k + longest - 1) / longest;
    depth = round_up((s.k + parts - 1) / parts, width);
    block_m = std::min(round_up(s.m, width), blocking.rows), block_n = std::min(round_up(s.n, width), blocking.columns);
    panel_m = std::min(round_up(s.m, width), std::max(block_m, blocking.panel_elements / depth / block_m * block_m));
    panel_n = std::min(round_up(s.n, width), std::max(block_n, blocking.panel_elements / depth / block_n * block_n));
    // Small products: blocks for all threads.
    auto blocks = [&] { return (panel_m + block_m - 1) / block_m * ((panel_n + block_n - 1) / block_n); };
    while (blocks() < 3 * threads && std::max(block_m, block_n) > 2 * width)
      (block_m > block_n ? block_m : block_n) = round_up(std::max(block_m, block_n) / 2, width);
    int64_t all = depth / width, sums = (all + blocking.steps - 1) / blocking.steps;
    steps = (all + sums - 1) / sums;
    a_elements = panel_m * depth, b_elements = panel_n * depth;
    block_floats = block_m * block_n;
    if (s.c != DType::f32 && parts > 1) sum_floats = panel_m * panel_n;
  }
};

class Product {
 public:
  Product(const PackedShape& s, const PackedOperands& o, void* workspace, int threads, const AmxBlocking& blocking)
      : f_(CREST_SIMD_PICK(amx_functions)),
        s_(s),
        o_(o),
        cut_(s, threads, blocking),
        emulated_(blocking.emulated),
        sum_(static_cast<float*>(workspace)),
        blocks_(sum_ + cut_.sum_floats),
        a_(reinterpret_cast<uint16_t*>(blocks_ + threads * cut_.block_floats)),
        b_(a_ + cut_.a_elements) {}

  // Called by all threads of a team.
  void run() {
    if (!emulated_) f_.configure();
    for (int64_t i = 0; i < s_.m; i += cut_.panel_m)
      for (int64_t j = 0; j < s_.n; j += cut_.panel_n)
        for (int64_t p = 0; p < s_.k; p += cut_.depth) panel(i, j, p);
    if (!emulated_) f_.release();
  }

 private:
  void panel(int64_t i0, int64_t j0, int64_t p0) {
    int64_t m = std::min(cut_.panel_m, s_.m - i0), n = std::min(cut_.panel_n, s_.n - j0);
    int64_t depth = std::min(cut_.depth, s_.k - p0);
    bool whole = cut_.depth >= s_.k;  // then a panel of a serves all panels of b, and b's only one all of a
    if (!whole || j0 == 0)
      pack(a_, f_.pack_rows, o_.a, !s_.a_transposed, s_.a_transposed ? s_.m : s_.k, i0, p0, m, depth);
    if (!whole || i0 == 0 || cut_.panel_n < s_.n)
      pack(b_, f_.pack_columns, o_.b, s_.b_transposed, s_.b_transposed ? s_.k : s_.n, j0, p0, n, depth);
    int64_t across = (n + cut_.block_n - 1) / cut_.block_n, down = (m + cut_.block_m - 1) / cut_.block_m;
    int64_t stride = round_up(depth, width) * width;  // elements of a sliver
#pragma omp barrier
#pragma omp for schedule(dynamic, 1)
    for (int64_t item = 0; item < across * down; ++item) {
      int64_t i = item / across * cut_.block_m, j = item % across * cut_.block_n;
      int64_t rows = std::min(cut_.block_m, m - i), columns = std::min(cut_.block_n, n - j);
      float* sums = blocks_ + omp_get_thread_num() * cut_.block_floats;
      TileOutput out = output(i0, j0, p0, i, j);
      int64_t all = (depth + width - 1) / width;
      for (int64_t k = 0; k < all; k += cut_.steps) {
        int64_t at = k * width * width;
        f_.block(rows, columns, std::min(cut_.steps, all - k), a_ + i / width * stride + at, stride,
                 b_ + j / width * stride + at, stride, sums, k == 0, k + cut_.steps < all ? nullptr : &out, emulated_);
      }
    }
  }

  void pack(uint16_t* to, void (*slivers)(uint16_t*, const uint16_t*, int64_t, bool, int64_t, int64_t),
            const void* from, bool crosswise, int64_t ld, int64_t i0, int64_t p0, int64_t count, int64_t depth) {
    auto* first = static_cast<const uint16_t*>(from) + (crosswise ? i0 * ld + p0 : p0 * ld + i0);
    int64_t stride = round_up(depth, width);
#pragma omp for schedule(dynamic, 1) nowait
    for (int64_t i = 0; i < count; i += width)
      slivers(to + i * stride, first + (crosswise ? i * ld : i), ld, crosswise, std::min(width, count - i), depth);
  }

  TileOutput output(int64_t i0, int64_t j0, int64_t p0, int64_t i, int64_t j) const {
    return output_of(s_, o_, i0 + i, j0 + j, p0, p0 + cut_.depth, sum_ + i * cut_.panel_n + j, cut_.panel_n);
  }

  const AmxFunctions& f_;
  const PackedShape& s_;
  const PackedOperands& o_;
  Cut cut_;
  bool emulated_;
  float *sum_, *blocks_;
  uint16_t *a_, *b_;
};

}  // namespace

size_t amx_gemm_workspace(const PackedShape& s, int threads, const AmxBlocking& blocking) {
  Cut c(s, threads, blocking);
  return size_t(c.sum_floats + threads * c.block_floats) * 4 + size_t(c.a_elements + c.b_elements) * 2;
}

void amx_gemm(const PackedShape& s, const PackedOperands& o, void* workspace, int threads,
              const AmxBlocking& blocking) {
  Product product(s, o, workspace, threads, blocking);
#pragma omp parallel num_threads(threads)
  product.run();
}

}  // namespace crest::cpu
