// embedding, embedding_grad, add_position, position_grad, take_row.

#include <cstring>

#include "backend/cpu/common.h"
#include "backend/cpu/dropout.h"
#include "backend/cpu/simd/cast.h"
#include "backend/cpu/simd/embedding.h"
#include "core/scalars.h"
#include "ops/index.h"

namespace crest::cpu {
namespace {

const EmbeddingFunctions& functions() { return CREST_SIMD_PICK(embedding_functions); }

int64_t row_bytes(const Value& v) { return v.shape.back() * int64_t(size_of(v.dtype)); }

std::string reject(const KernelQuery& q) {
  if (std::string why = check_float(q.in(in::embedding::table)); !why.empty()) return why;
  return check_float(q.out(out::embedding::y));
}

void launch(const KernelCall& c) {
  const Value &table = c.in_value(in::embedding::table), &out = c.out_value(out::embedding::y);
  const auto* ids = c.input<int32_t>(in::embedding::ids);
  int64_t rows = c.in_value(in::embedding::ids).numel(), vocab = table.shape[0], cols = table.shape.back();
  const int64_t first = c.part_begin(vocab);
  auto convert = CREST_SIMD_PICK(cast_functions).convert;
  const DropoutRows dropout = dropout_rows(c, in::embedding::scalars, out);
  auto drop = CREST_SIMD_PICK(dropout_functions).row;
  int threads = threads_for(c.threads, rows * cols, 1 << 15);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
  for (int64_t r = 0; r < rows; ++r) {
    char* to = c.output<char>(out::embedding::y) + r * row_bytes(out);
    const int64_t id = ids[r] - first;
    const char* from = c.input<char>(in::embedding::table) + id * row_bytes(table);
    if (id < 0 || id >= vocab)
      std::memset(to, 0, size_t(row_bytes(out)));
    else if (table.dtype == out.dtype)
      std::memcpy(to, from, size_t(row_bytes(out)));
    else
      convert(to, out.dtype, from, table.dtype, cols);
    if (dropout.scalars) drop(dropout, r, to, to, out.dtype, cols);
  }
}

std::string reject_grad(const KernelQuery& q) {
  if (std::string why = check_float(q.in(in::embedding_grad::dy)); !why.empty()) return why;
  if (std::string why = check_float(q.out(out::embedding_grad::dtable)); !why.empty()) return why;
  return q.has(in::embedding_grad::acc) ? check_same(q.in(in::embedding_grad::acc), q.out(out::embedding_grad::dtable))
                                        : std::string();
}

// The token rows sorted by id, then by position: pairs, pointers to their gradients, and where each
// id starts.
struct Token {
  int32_t id, row;
};
size_t grad_workspace(const KernelQuery& q) {
  auto rows = size_t(q.in(in::embedding_grad::ids).numel());
  return lines(rows * sizeof(Token)) + lines(rows * sizeof(void*)) + lines((rows + 1) * sizeof(int64_t));
}

// Clears, or brings the accumulator, unless it already lives in the output.
void start_from(const KernelCall& c, size_t acc) {
  const Value& out = c.out_value(0);
  int64_t bytes = out.bytes(), piece = 1 << 16;
  if (c.has(acc) && c.in[acc] == c.out[0]) return;
  int threads = threads_for(c.threads, bytes, 1 << 18);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
  for (int64_t i = 0; i < bytes; i += piece) {
    auto size = size_t(std::min(piece, bytes - i));
    if (c.has(acc))
      std::memcpy(c.output<char>(0) + i, c.input<char>(acc) + i, size);
    else
      std::memset(c.output<char>(0) + i, 0, size);
  }
}

// One thread sums all rows of an id in order of position: bitwise identical for any number of
// threads, and half-precision gradients round once.
void launch_grad(const KernelCall& c) {
  const Value &dy = c.in_value(in::embedding_grad::dy), &out = c.out_value(out::embedding_grad::dtable);
  const auto* ids = c.input<int32_t>(in::embedding_grad::ids);
  int64_t rows = c.in_value(in::embedding_grad::ids).numel(), vocab = out.shape[0], cols = dy.shape.back();
  auto* w = static_cast<char*>(c.workspace);
  auto* tokens = reinterpret_cast<Token*>(w);
  auto** gradients = reinterpret_cast<const void**>(w += lines(size_t(rows) * sizeof(Token)));
  auto* starts = reinterpret_cast<int64_t*>(w + lines(size_t(rows) * sizeof(void*)));
  start_from(c, in::embedding_grad::acc);
  int64_t count = 0, distinct = 0;
  const int64_t first = c.part_begin(vocab);
  for (int64_t r = 0; r < rows; ++r)
    if (const int64_t id = ids[r] - first; id >= 0 && id < vocab) tokens[count++] = {int32_t(id), int32_t(r)};
  std::sort(tokens, tokens + count,
            [](const Token& a, const Token& b) { return a.id != b.id ? a.id < b.id : a.row < b.row; });
  for (int64_t i = 0; i < count; ++i) {
    gradients[i] = c.input<char>(in::embedding_grad::dy) + tokens[i].row * row_bytes(dy);
    if (i == 0 || tokens[i].id != tokens[i - 1].id) starts[distinct++] = i;
  }
  starts[distinct] = count;
  const EmbeddingFunctions& f = functions();
  int threads = threads_for(c.threads, rows * cols, 1 << 15);
#pragma omp parallel for num_threads(threads) schedule(dynamic, 4) if (threads > 1)
  for (int64_t i = 0; i < distinct; ++i)
    f.sum_rows(c.output<char>(out::embedding_grad::dtable) + tokens[starts[i]].id * row_bytes(out), out.dtype,
               c.has(in::embedding_grad::acc), gradients + starts[i], dy.dtype, starts[i + 1] - starts[i], cols);
}

std::string reject_position(const KernelQuery& q) {
  if (std::string why = check_float(q.in(in::add_position::x)); !why.empty()) return why;
  if (std::string why = check_float(q.in(in::add_position::table)); !why.empty()) return why;
  return check_same(q.out(out::add_position::y), q.in(in::add_position::x));
}

// Padding tokens of a decoding call may lie beyond the table; their rows are not used, so they read
// its last row.
void launch_position(const KernelCall& c) {
  const Value &x = c.in_value(in::add_position::x), &table = c.in_value(in::add_position::table);
  int64_t rows = x.shape.rows(), length = x.shape[1], cols = x.shape.back(), last = table.shape[0] - 1;
  constexpr size_t at = in::add_position::position;
  const bool given = c.has(at), tokens = given && c.in_value(at).dtype == DType::i32;
  const int32_t* positions = tokens ? c.input<int32_t>(at) : nullptr;
  int64_t first = given && !tokens ? c.input<Scalars>(at)->position : 0;
  const DropoutRows dropout = dropout_rows(c, in::add_position::scalars, x);
  auto drop = CREST_SIMD_PICK(dropout_functions).row;
  const EmbeddingFunctions& f = functions();
  int threads = threads_for(c.threads, rows * cols, 1 << 15);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
  for (int64_t r = 0; r < rows; ++r) {
    int64_t position = std::clamp<int64_t>(positions ? positions[r] : first + r % length, 0, last);
    char* y = c.output<char>(out::add_position::y) + r * row_bytes(x);
    f.add_row(y, c.input<char>(in::add_position::x) + r * row_bytes(x), x.dtype,
              c.input<char>(in::add_position::table) + position * row_bytes(table), table.dtype, cols);
    if (dropout.scalars) drop(dropout, r, y, y, x.dtype, cols);
  }
}

std::string reject_position_grad(const KernelQuery& q) {
  if (std::string why = check_float(q.in(in::position_grad::dy)); !why.empty()) return why;
  if (std::string why = check_float(q.out(out::position_grad::dtable)); !why.empty()) return why;
  return q.has(in::position_grad::acc) ? check_same(q.in(in::position_grad::acc), q.out(out::position_grad::dtable))
                                       : std::string();
}

size_t position_workspace(const KernelQuery& q) {
  return lines(size_t(q.in(in::position_grad::dy).shape.rows()) * sizeof(void*));
}

void launch_position_grad(const KernelCall& c) {
  const Value &dy = c.in_value(in::position_grad::dy), &out = c.out_value(out::position_grad::dtable);
  int64_t batch = dy.shape[0], length = dy.shape[1], cols = dy.shape.back();
  auto** gradients = static_cast<const void**>(c.workspace);
  start_from(c, in::position_grad::acc);
  for (int64_t t = 0; t < length; ++t)
    for (int64_t b = 0; b < batch; ++b)
      gradients[t * batch + b] = c.input<char>(in::position_grad::dy) + (b * length + t) * row_bytes(dy);
  const EmbeddingFunctions& f = functions();
  int threads = threads_for(c.threads, batch * length * cols, 1 << 15);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
  for (int64_t t = 0; t < length; ++t)
    f.sum_rows(c.output<char>(out::position_grad::dtable) + t * row_bytes(out), out.dtype,
               c.has(in::position_grad::acc), gradients + t * batch, dy.dtype, batch, cols);
}

std::string reject_take(const KernelQuery& q) {
  if (!q.in(in::take_row::x).contiguous() || !q.out(out::take_row::y).contiguous()) return "takes contiguous values";
  return {};
}

void launch_take(const KernelCall& c) {
  const Value& x = c.in_value(in::take_row::x);
  int64_t row = std::clamp<int64_t>(c.input<Scalars>(in::take_row::scalars)->length - 1, 0, x.shape[1] - 1);
  for (int64_t b = 0; b < x.shape[0]; ++b)
    std::memcpy(c.output<char>(out::take_row::y) + b * row_bytes(x),
                c.input<char>(in::take_row::x) + (b * x.shape[1] + row) * row_bytes(x), size_t(row_bytes(x)));
}

}  // namespace

Kernel embedding_kernel() { return {"embedding", "cpu.embedding.simd", reject, nullptr, nullptr, launch}; }
Kernel embedding_grad_kernel() {
  return {"embedding_grad", "cpu.embedding_grad.simd", reject_grad, grad_workspace, nullptr, launch_grad};
}
Kernel add_position_kernel() {
  return {"add_position", "cpu.add_position.simd", reject_position, nullptr, nullptr, launch_position};
}
Kernel position_grad_kernel() {
  return {"position_grad", "cpu.position_grad.simd", reject_position_grad, position_workspace,
          nullptr,         launch_position_grad};
}
Kernel take_row_kernel() { return {"take_row", "cpu.take_row.host", reject_take, nullptr, nullptr, launch_take}; }

}  // namespace crest::cpu
