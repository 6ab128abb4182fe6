#include "backend/cpu/gemm_packed.h"

#include "backend/cpu/common.h"
#include "backend/cpu/packed_output.h"
#include "backend/cpu/simd/gemm.h"
#include "core/round_up.h"

namespace crest::cpu {
namespace {

const GemmFunctions& functions() { return CREST_SIMD_PICK(gemm_functions); }

// How the product is cut. A panel of each operand stays in the last-level cache; a block of a's
// panel (half a MiB) and a sliver of b's in the second level.
struct Cut {
  int64_t depth, panel_m, panel_n;             // of a panel
  int64_t block_m, block_n;                    // of a thread's work at a time
  int64_t a_floats, b_floats, sum_floats = 0;  // regions of the workspace
  Cut(const PackedShape& s, const GemmFunctions& f) {
    int64_t parts = (s.k + 1023) / 1024;
    depth = (s.k + parts - 1) / parts;
    block_m = round_up(120, f.rows), block_n = round_up(256, f.columns);
    panel_m = std::min(round_up(s.m, f.rows), 12 * block_m), panel_n = std::min(round_up(s.n, f.columns), 6 * block_n);
    a_floats = round_up(panel_m * depth, 16), b_floats = round_up(panel_n * depth, 16) + 16 * f.columns;
    if (s.c != DType::f32 && parts > 1) sum_floats = round_up(panel_m * panel_n, 16);
  }
};

class Product {
 public:
  Product(const PackedShape& s, const PackedOperands& o, void* workspace)
      : f_(functions()),
        s_(s),
        o_(o),
        cut_(s, f_),
        a_(static_cast<float*>(workspace)),
        b_(a_ + cut_.a_floats),
        sum_(b_ + cut_.b_floats) {}

  // Called by all threads of a team.
  void run() {
    for (int64_t i = 0; i < s_.m; i += cut_.panel_m)
      for (int64_t j = 0; j < s_.n; j += cut_.panel_n)
        for (int64_t p = 0; p < s_.k; p += cut_.depth) panel(i, j, p);
  }

 private:
  void panel(int64_t i0, int64_t j0, int64_t p0) {
    int64_t m = std::min(cut_.panel_m, s_.m - i0), n = std::min(cut_.panel_n, s_.n - j0);
    int64_t depth = std::min(cut_.depth, s_.k - p0);
    bool whole = cut_.depth >= s_.k;  // then a panel of a serves all panels of b, and b's only one all of a
    if (!whole || j0 == 0) pack_a(i0, p0, m, depth);
    if (!whole || i0 == 0 || cut_.panel_n < s_.n) pack_b(j0, p0, n, depth);
    int64_t across = (n + cut_.block_n - 1) / cut_.block_n, down = (m + cut_.block_m - 1) / cut_.block_m;
#pragma omp barrier
#pragma omp for schedule(dynamic, 1)
    for (int64_t item = 0; item < across * down; ++item) {
      int64_t i = item / across * cut_.block_m, j = item % across * cut_.block_n;
      f_.block(std::min(cut_.block_m, m - i), std::min(cut_.block_n, n - j), depth, a_ + i * depth, b_ + j * depth,
               output(i0, j0, p0, i, j));
    }
  }

  void pack_a(int64_t i0, int64_t p0, int64_t m, int64_t depth) {
    int64_t step = 4 * f_.rows, ld = s_.a_transposed ? s_.m : s_.k;
#pragma omp for schedule(dynamic, 1) nowait
    for (int64_t i = 0; i < m; i += step) {
      const void* from = s_.a_transposed ? element(o_.a, s_.ab, p0, ld, i0 + i) : element(o_.a, s_.ab, i0 + i, ld, p0);
      f_.pack(a_ + i * depth, f_.rows, from, s_.ab, ld, !s_.a_transposed, std::min(step, m - i), depth);
    }
  }

  void pack_b(int64_t j0, int64_t p0, int64_t n, int64_t depth) {
    int64_t step = 2 * f_.columns, ld = s_.b_transposed ? s_.k : s_.n;
#pragma omp for schedule(dynamic, 1) nowait
    for (int64_t j = 0; j < n; j += step) {
      const void* from = s_.b_transposed ? element(o_.b, s_.ab, j0 + j, ld, p0) : element(o_.b, s_.ab, p0, ld, j0 + j);
      f_.pack(b_ + j * depth, f_.columns, from, s_.ab, ld, s_.b_transposed, std::min(step, n - j), depth);
    }
  }

  TileOutput output(int64_t i0, int64_t j0, int64_t p0, int64_t i, int64_t j) const {
    return output_of(s_, o_, i0 + i, j0 + j, p0, p0 + cut_.depth, sum_ + i * cut_.panel_n + j, cut_.panel_n);
  }

  const GemmFunctions& f_;
  const PackedShape& s_;
  const PackedOperands& o_;
  Cut cut_;
  float *a_, *b_, *sum_;
};

}  // namespace

size_t packed_gemm_workspace(const PackedShape& s, Isa vectors) {
  Cut cut(s, CREST_SIMD_OF(vectors, gemm_functions));
  return size_t(cut.a_floats + cut.b_floats + cut.sum_floats) * 4;
}

void packed_gemm(const PackedShape& s, const PackedOperands& o, void* workspace, int threads) {
  Product product(s, o, workspace);
#pragma omp parallel num_threads(threads)
  product.run();
}

}  // namespace crest::cpu
