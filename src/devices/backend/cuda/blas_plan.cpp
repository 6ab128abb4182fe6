#include "backend/cuda/blas_plan.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

namespace crest::cuda {

namespace {

using Dim = Contraction::Dim;

constexpr int64_t storage_alignment = 64;
// With more calls than this, Crest's own kernel is faster at the sizes in question.
constexpr int64_t most_calls = 4096;

std::optional<BlasMatrix> matrix_of(const Strided& s, int64_t rows, int64_t cols) {
  if (s.col == 1 && (rows == 1 || s.row >= cols)) return BlasMatrix{false, std::max(s.row, cols)};
  if (s.row == 1 && (cols == 1 || s.col >= rows)) return BlasMatrix{true, std::max(s.col, rows)};
  // The stride of a dimension of size 1 means nothing.
  if (cols == 1 && s.row >= 1) return BlasMatrix{false, s.row};
  if (rows == 1 && s.col >= 1) return BlasMatrix{true, s.col};
  return std::nullopt;
}

// Whether stepping `outer` is the same as stepping on behind the last of `inner`.
bool compose(const Dim& outer, const Dim& inner) {
  return outer.a == inner.size * inner.a && outer.b == inner.size * inner.b && outer.c == inner.size * inner.c;
}

int64_t alignment(DType t, std::initializer_list<int64_t> offsets) {
  int64_t bytes = storage_alignment;
  for (int64_t o : offsets) bytes = std::gcd(bytes, o * int64_t(size_of(t)));
  return bytes;
}

}  // namespace

BlasPlan plan_blas(const Contraction& what, int64_t offset_a, int64_t offset_b, int64_t offset_c) {
  BlasPlan p;
  p.m = what.m, p.n = what.n, p.k = what.k, p.sum = what.sum;
  if (p.m == 0 || p.n == 0 || p.k == 0 || what.batches() == 0) {
    p.problem = "empty operands";
    return p;
  }
  if (p.sum.size > 1 && p.sum.a == p.k * what.a.col && p.sum.b == p.k * what.b.row) {  // the summed products are one
    p.k *= p.sum.size;
    p.sum = {};
  }
  std::vector<Dim> dims;
  for (const Dim& d : what.batch) {
    if (d.size == 1) continue;
    if (!dims.empty() && compose(dims.back(), d))
      dims.back() = {dims.back().size * d.size, d.a, d.b, d.c};
    else
      dims.push_back(d);
  }
  // A batch with shared b and contiguous rows of a and c is just more rows.
  if (!dims.empty()) {
    Dim& d = dims.back();
    if (d.b == 0 && d.a == p.m * what.a.row && d.c == p.m * what.c.row) {
      p.m *= d.size;
      dims.pop_back();
    }
  }
  std::stable_sort(dims.begin(), dims.end(), [](const Dim& x, const Dim& y) { return x.size > y.size; });
  if (!dims.empty()) p.batch = dims[0];
  for (size_t i = 1; i < dims.size(); ++i) p.loops[i - 1] = dims[i];

  auto a = matrix_of(what.a, p.m, p.k), b = matrix_of(what.b, p.k, p.n), c = matrix_of(what.c, p.m, p.n);
  if (!a || !b)
    p.problem = "takes views with a dense row or column";
  else if (!c || c->transposed)
    p.problem = "takes outputs with dense rows";
  else if (p.calls() > most_calls)
    p.problem = "would be too many calls";
  if (!p.problem.empty()) return p;
  p.a = *a, p.b = *b, p.c = *c;
  const Dim &l = p.loops[0], &r = p.loops[1];
  p.alignment_a = alignment(what.a.dtype, {offset_a, l.a, r.a, p.sum.a});
  p.alignment_b = alignment(what.b.dtype, {offset_b, l.b, r.b, p.sum.b});
  p.alignment_c = alignment(what.c.dtype, {offset_c, l.c, r.c});
  return p;
}

bool BlasPlan::has_odd_rows() const { return (a.transposed ? m : k) % 8 || (b.transposed ? k : n) % 8 || n % 8; }

BlasPlan plan_blas(const Program& program, const Instr& instr) {
  auto offset = [&](ValueId v) { return program.at(v).layout.offset; };
  return plan_blas(contraction_of(program, instr), offset(instr.in[0]), offset(instr.in[1]), offset(instr.out[0]));
}

}  // namespace crest::cuda
