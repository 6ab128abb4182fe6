// bias_grad, sum_loss, grad_norm, square_sum. Partial sums belong to fixed pieces of the input and
// are combined in order: bitwise identical for any number of threads.

#include <cmath>
#include <cstring>

#include "backend/cpu/common.h"
#include "backend/cpu/simd/reduce.h"
#include "core/scalars.h"
#include "ops/index.h"

namespace crest::cpu {
namespace {

const ReduceFunctions& functions() { return CREST_SIMD_PICK(reduce_functions); }

// Pieces of at least 16 rows, at most 64 of them.
int64_t pieces_of(int64_t rows) { return std::clamp<int64_t>(rows / 16, 1, 64); }

std::string reject_bias(const KernelQuery& q) {
  if (std::string why = check_float(q.in(in::bias_grad::dy)); !why.empty()) return why;
  if (std::string why = check_float(q.out(out::bias_grad::db)); !why.empty()) return why;
  return q.has(in::bias_grad::acc) ? check_same(q.in(in::bias_grad::acc), q.out(out::bias_grad::db)) : std::string();
}

size_t bias_workspace(const KernelQuery& q) {
  return size_t(pieces_of(q.in(in::bias_grad::dy).shape.rows())) * float_lines(q.in(in::bias_grad::dy).shape.back());
}

void launch_bias(const KernelCall& c) {
  const Value& dy = c.in_value(in::bias_grad::dy);
  int64_t rows = dy.shape.rows(), cols = dy.shape.back(), pieces = pieces_of(rows);
  auto stride = int64_t(float_lines(cols) / 4);
  auto* parts = static_cast<float*>(c.workspace);
  DType out_type = c.out_value(out::bias_grad::db).dtype;
  if (c.has(in::bias_grad::acc) && c.in[in::bias_grad::acc] != c.out[out::bias_grad::db])
    std::memcpy(c.out[out::bias_grad::db], c.in[in::bias_grad::acc], size_t(c.out_value(out::bias_grad::db).bytes()));
  const ReduceFunctions& f = functions();
  int threads = threads_for(c.threads, rows * cols, 1 << 15);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
  for (int64_t p = 0; p < pieces; ++p) {
    int64_t begin = part_begin(rows, p, pieces), end = part_begin(rows, p + 1, pieces);
    f.column_sums(parts + p * stride, c.input<char>(in::bias_grad::dy) + begin * cols * int64_t(size_of(dy.dtype)),
                  dy.dtype, end - begin, cols);
  }
  constexpr int64_t block = 256;
  threads = threads_for(c.threads, pieces * cols, 1 << 15);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
  for (int64_t j = 0; j < cols; j += block)
    f.combine(c.output<char>(out::bias_grad::db) + j * int64_t(size_of(out_type)), out_type, c.has(in::bias_grad::acc),
              parts + j, pieces, stride, std::min(block, cols - j));
}

std::string reject_sum(const KernelQuery& q) {
  if (q.in(in::sum_loss::loss).dtype != DType::f32 || !q.in(in::sum_loss::loss).contiguous())
    return "takes contiguous f32 losses";
  return {};
}

void launch_sum(const KernelCall& c) {
  const auto* loss = c.input<float>(in::sum_loss::loss);
  double sum = 0;
  for (int64_t i = 0, n = c.in_value(in::sum_loss::loss).numel(); i < n; ++i) sum += double(loss[i]);
  sum *= c.instr.attrs.number("scale");
  if (c.has(in::sum_loss::acc)) sum += double(*c.input<float>(in::sum_loss::acc));
  *c.output<float>(out::sum_loss::sum) = float(sum);
}

// Elements of one partial sum of the norm.
constexpr int64_t chunk = 1 << 15;

// The squared norm of several ranks is the sum of their parts', by rank: bitwise the same whether
// every rank has all gradients (`parts` = ranks) or only its share of each (square_sum).
struct Parts {
  Parts(const Program& program, const Instr& instr, size_t first)
      : program_(program), instr_(instr), first_(first), parts_(instr.attrs.integer("parts", 1)) {}

  int64_t parts() const { return parts_; }
  size_t gradients() const { return instr_.in.size() - first_; }
  const Value& gradient(size_t i) const { return program_.at(instr_.in[first_ + i]); }
  int64_t begin(size_t i, int64_t part) const { return part_begin(gradient(i).numel(), part, parts_); }
  int64_t numel(size_t i, int64_t part) const { return begin(i, part + 1) - begin(i, part); }
  static int64_t chunks(int64_t n) { return (n + chunk - 1) / chunk; }
  size_t workspace() const {
    int64_t n = 0;
    for (size_t i = 0; i < gradients(); ++i)
      for (int64_t part = 0; part < parts_; ++part) n += chunks(numel(i, part));
    return lines(size_t(n) * sizeof(double));
  }

 private:
  const Program& program_;
  const Instr& instr_;
  size_t first_;
  int64_t parts_;
};

double squares(const KernelCall& c, size_t first) {
  Parts all(c.program, c.instr, first);
  const ReduceFunctions& f = functions();
  double sum = 0;
  auto* sums = static_cast<double*>(c.workspace);
  for (int64_t part = 0; part < all.parts(); ++part) {
    int64_t done = 0;
    for (size_t i = 0; i < all.gradients(); ++i) {
      DType dtype = all.gradient(i).dtype;
      int64_t n = all.numel(i, part), chunks = Parts::chunks(n);
      const char* data = c.input<char>(first + i) + all.begin(i, part) * int64_t(size_of(dtype));
      int threads = threads_for(c.threads, n, 1 << 15);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
      for (int64_t p = 0; p < chunks; ++p)
        sums[done + p] = f.squares(data + p * chunk * int64_t(size_of(dtype)), dtype, std::min(chunk, n - p * chunk));
      done += chunks;
    }
    double of_part = 0;
    for (int64_t p = 0; p < done; ++p) of_part += sums[p];
    sum += of_part;
  }
  return sum;
}

bool from_squares(const Instr& instr) { return instr.attrs.integer("squares", 0) != 0; }

std::string reject_norm(const KernelQuery& q) {
  if (from_squares(q.instr)) return {};
  for (size_t i = in::grad_norm::gradients; i < q.instr.in.size(); ++i)
    if (std::string why = check_float(q.in(i)); !why.empty()) return why;
  return {};
}

std::string reject_squares(const KernelQuery& q) {
  for (size_t i = 0; i < q.instr.in.size(); ++i)
    if (std::string why = check_float(q.in(i)); !why.empty()) return why;
  return {};
}

size_t norm_workspace(const KernelQuery& q) {
  return from_squares(q.instr) ? 0 : Parts(q.program, q.instr, in::grad_norm::gradients).workspace();
}

size_t squares_workspace(const KernelQuery& q) { return Parts(q.program, q.instr, 0).workspace(); }

void launch_norm(const KernelCall& c) {
  constexpr size_t first = in::grad_norm::gradients;
  double sum = from_squares(c.instr) ? 0 : squares(c, first);
  for (size_t i = first; i < c.instr.in.size() && from_squares(c.instr); ++i) sum += *c.input<double>(i);
  auto& s = *c.output<Scalars>(out::grad_norm::scalars);
  double norm = std::sqrt(sum) / double(s.loss_scale), clip = c.instr.attrs.number("clip");
  s.grad_norm = float(norm);
  s.found_inf = !std::isfinite(norm);
  double factor = clip > 0 ? std::min(1.0, clip / (norm + 1e-6)) : 1.0;
  s.grad_factor = float(factor / double(s.loss_scale));
}

void launch_squares(const KernelCall& c) { *c.output<double>(out::square_sum::sum) = squares(c, 0); }

}  // namespace

Kernel bias_grad_kernel() {
  return {"bias_grad", "cpu.bias_grad.simd", reject_bias, bias_workspace, nullptr, launch_bias};
}
Kernel sum_loss_kernel() { return {"sum_loss", "cpu.sum_loss.host", reject_sum, nullptr, nullptr, launch_sum}; }
Kernel grad_norm_kernel() {
  return {"grad_norm", "cpu.grad_norm.simd", reject_norm, norm_workspace, nullptr, launch_norm};
}
Kernel square_sum_kernel() {
  return {"square_sum", "cpu.square_sum.simd", reject_squares, squares_workspace, nullptr, launch_squares};
}

}  // namespace crest::cpu
