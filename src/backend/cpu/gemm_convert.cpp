#include "backend/cpu/gemm_convert.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "backend/cpu/cast.h"
#include "backend/cpu/common.h"
#include "backend/cpu/contraction.h"
#include "backend/cpu/gemm.h"

namespace crest::cpu {
namespace {

// Blocks of output features whose f32 weights take about 4 MB.
int64_t block_of(const LinearShape& s) { return std::min(s.n, std::max<int64_t>(64, (1 << 20) / s.k / 64 * 64)); }

class Converted : public ConvertedLinear {
 public:
  explicit Converted(const LinearShape& s) : s_(s), block_(block_of(s)) {
    gemm_[0] = find_gemm(product(block_, false));
    gemm_[1] = s.n % block_ ? find_gemm(product(s.n % block_, false)) : gemm_[0];
    gemm_[2] = find_gemm(product(block_, true));
    gemm_[3] = s.n % block_ ? find_gemm(product(s.n % block_, true)) : gemm_[2];
    size_t rows_k = float_lines(s.rows * s.k), block_k = float_lines(block_ * s.k),
           rows_n = float_lines(s.rows * block_);
    // Forward: x, block of w, block of y, bias. dx: sum, block of w, block of dy. dw: x, block of dw, block of dy.
    at_[1] = rows_k, at_[2] = at_[1] + block_k, at_[3] = at_[2] + rows_n, at_[4] = at_[3] + float_lines(block_);
    gemm_at_ = at_[4];
    size_t most = 0;
    for (auto& g : gemm_) most = std::max(most, g->workspace());
    bytes_ = gemm_at_ + most;
  }

  size_t workspace() const override { return bytes_; }

  void run(const void* a, const void* b, const void* bias, void* out, void* h, void* workspace) const override {
    auto* base = static_cast<char*>(workspace);
    auto* whole = reinterpret_cast<float*>(base);
    auto* weights = reinterpret_cast<float*>(base + at_[1]);
    auto* rows = reinterpret_cast<float*>(base + at_[2]);
    auto* bias_block = reinterpret_cast<float*>(base + at_[3]);
    void* scratch = base + gemm_at_;
    if (s_.kind == LinearKind::dw)
      widen(whole, b, s_.k, s_.rows, s_.k);
    else if (s_.kind != LinearKind::dx)
      widen(whole, a, s_.k, s_.rows, s_.k);
    for (int64_t j = 0; j < s_.n; j += block_) {
      int64_t n = std::min(block_, s_.n - j);
      bool tail = n != block_;
      if (s_.kind == LinearKind::dx) {
        widen(weights, at(b, s_.dtype, j * s_.k), s_.k, n, s_.k);
        widen(rows, at(a, s_.dtype, j), s_.n, s_.rows, n);
        gemm_[(j ? 2 : 0) + tail]->run(rows, weights, nullptr, whole, scratch);
      } else if (s_.kind == LinearKind::dw) {
        widen(rows, at(a, s_.dtype, j), s_.n, s_.rows, n);
        void* target = at(out, s_.dw, j * s_.k);
        bool direct = s_.dw == DType::f32;
        if (!direct && s_.accumulate) convert_rows(weights, DType::f32, s_.k, target, s_.dw, s_.k, n, s_.k, s_.threads);
        gemm_[(s_.accumulate ? 2 : 0) + tail]->run(rows, whole, nullptr, direct ? target : weights, scratch);
        if (!direct) convert_rows(target, s_.dw, s_.k, weights, DType::f32, s_.k, n, s_.k, s_.threads);
      } else {
        widen(weights, at(b, s_.dtype, j * s_.k), s_.k, n, s_.k);
        if (s_.has_bias) convert_rows(bias_block, DType::f32, n, at(bias, s_.bias, j), s_.bias, n, 1, n, 1);
        gemm_[tail]->run(whole, weights, bias_block, rows, scratch);
        if (s_.kind == LinearKind::forward) narrow(at(out, s_.dtype, j), rows, n);
        if (s_.kind == LinearKind::forward_gelu) {
          if (h) narrow(at(h, s_.dtype, j), rows, n);
          gelu(rows, rows, DType::f32, s_.rows * n, s_.threads);
          narrow(at(out, s_.dtype, j), rows, n);
        }
      }
    }
    if (s_.kind == LinearKind::dx)
      convert_rows(out, s_.dtype, s_.k, whole, DType::f32, s_.k, s_.rows, s_.k, s_.threads);
  }

 private:
  GemmShape product(int64_t n, bool accumulate) const {
    GemmShape g;
    g.threads = s_.threads, g.accumulate = accumulate;
    switch (s_.kind) {
      case LinearKind::forward:
      case LinearKind::forward_gelu:
        g.m = s_.rows, g.n = n, g.k = s_.k, g.b_transposed = true;
        g.lda = g.ldb = s_.k, g.ldc = n;
        g.has_bias = s_.has_bias && !accumulate;
        break;
      case LinearKind::dx:
        g.m = s_.rows, g.n = s_.k, g.k = n;
        g.lda = n, g.ldb = g.ldc = s_.k;
        break;
      case LinearKind::dw:
        g.m = n, g.n = s_.k, g.k = s_.rows, g.a_transposed = true;
        g.lda = n, g.ldb = g.ldc = s_.k;
        break;
    }
    return g;
  }
  static const char* at(const void* p, DType t, int64_t i) {
    return static_cast<const char*>(p) + i * int64_t(size_of(t));
  }
  static char* at(void* p, DType t, int64_t i) { return static_cast<char*>(p) + i * int64_t(size_of(t)); }
  void widen(float* to, const void* from, int64_t ld, int64_t rows, int64_t cols) const {
    convert_rows(to, DType::f32, cols, from, s_.dtype, ld, rows, cols, s_.threads);
  }
  // A block of columns back into rows of n elements.
  void narrow(void* to, const float* from, int64_t cols) const {
    convert_rows(to, s_.dtype, s_.n, from, DType::f32, cols, s_.rows, cols, s_.threads);
  }

  LinearShape s_;
  int64_t block_;
  std::shared_ptr<const Gemm> gemm_[4];  // whole and last block; the same, added to what is there
  size_t at_[5] = {}, gemm_at_ = 0, bytes_ = 0;
};

}  // namespace

std::shared_ptr<const ConvertedLinear> find_converted_linear(const LinearShape& s) {
  static std::mutex mutex;
  static std::map<LinearShape, std::shared_ptr<const ConvertedLinear>> made;
  std::lock_guard lock(mutex);
  auto& entry = made[s];
  if (!entry) entry = std::make_shared<Converted>(s);
  return entry;
}

}  // namespace crest::cpu
