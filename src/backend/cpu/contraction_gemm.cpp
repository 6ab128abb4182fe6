#include "backend/cpu/contraction_gemm.h"

#include <fmt/format.h>
#include <omp.h>

#include <cstring>
#include <map>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>

#include "backend/cpu/isa.h"
#include "core/error.h"

namespace crest {

OpenMpThreads::OpenMpThreads(int threads) : before_(omp_get_max_threads()) { omp_set_num_threads(threads); }
OpenMpThreads::~OpenMpThreads() { omp_set_num_threads(before_); }

// oneDNN 2.6 multiplies bf16 on any AVX-512 machine, but without native support slower than f32 does after conversion.
bool bf16_gemm_available() { return has_native_bf16() && best_isa() == Isa::avx512; }

namespace {

using MemoryDesc = dnnl::memory::desc;
using Dims = dnnl::memory::dims;

const dnnl::engine& engine() {
  static const dnnl::engine e(dnnl::engine::kind::cpu, 0);
  return e;
}

// Streams are not shared between threads: batched products run one per thread.
dnnl::stream& stream() {
  thread_local dnnl::stream s(engine());
  return s;
}

dnnl::memory::data_type type_of(DType t) {
  return t == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

MemoryDesc matrix(int64_t rows, int64_t cols, DType t, bool transposed, int64_t ld) {
  return {Dims{rows, cols}, type_of(t), transposed ? Dims{1, ld} : Dims{ld, 1}};
}

dnnl::memory wrap(const MemoryDesc& desc, const void* p) { return dnnl::memory(desc, engine(), const_cast<void*>(p)); }

size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

// f32 without a bias: the packed sgemm beats the matmul primitive in every orientation.
class Sgemm : public Gemm {
 public:
  explicit Sgemm(const GemmShape& s) : s_(s) {}
  size_t workspace() const override { return 0; }
  void run(const void* a, const void* b, const void* bias, void* c, void*) const override {
    OpenMpThreads guard(s_.threads);
    auto* out = static_cast<float*>(c);
    if (s_.has_bias) {
#pragma omp parallel for schedule(static) num_threads(s_.threads) if (s_.threads > 1)
      for (int64_t i = 0; i < s_.m; ++i) std::memcpy(out + i * s_.ldc, bias, size_t(s_.n) * 4);
    }
    auto status = dnnl::sgemm(s_.a_transposed ? 'T' : 'N', s_.b_transposed ? 'T' : 'N', s_.m, s_.n, s_.k, 1.0f,
                              static_cast<const float*>(a), s_.lda, static_cast<const float*>(b), s_.ldb,
                              s_.accumulate || s_.has_bias ? 1.0f : 0.0f, out, s_.ldc);
    if (status != dnnl::status::success) fail_internal("oneDNN's sgemm failed");
  }

 private:
  GemmShape s_;
};

// Forward and input-gradient inner products on plain layouts: the packed gemm inside oneDNN with bias, and the better
// choice for very long reductions of bf16.
class InnerProduct : public Gemm {
 public:
  explicit InnerProduct(const GemmShape& s) : m_(s.threads) {
    OpenMpThreads guard(s.threads);
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    a_ = matrix(s.m, s.k, s.ab, false, s.k), c_ = matrix(s.m, s.n, s.c, false, s.n);
    has_bias_ = s.has_bias, forward_ = s.b_transposed;
    if (forward_) {
      b_ = matrix(s.n, s.k, s.ab, false, s.k);
      bias_ = {Dims{s.n}, type_of(s.bias), Dims{1}};
      auto kind = dnnl::prop_kind::forward_inference;
      auto desc = has_bias_ ? dnnl::inner_product_forward::desc(kind, a_, b_, bias_, c_)
                            : dnnl::inner_product_forward::desc(kind, a_, b_, c_);
      dnnl::inner_product_forward::primitive_desc pd(desc, attr, engine());
      scratch_ = pd.scratchpad_desc();
      primitive_ = dnnl::inner_product_forward(pd);
    } else {
      b_ = matrix(s.k, s.n, s.ab, false, s.n);
      dnnl::inner_product_forward::primitive_desc hint({dnnl::prop_kind::forward_training, c_, b_, a_}, engine());
      dnnl::inner_product_backward_data::primitive_desc pd({c_, b_, a_}, attr, engine(), hint);
      scratch_ = pd.scratchpad_desc();
      primitive_ = dnnl::inner_product_backward_data(pd);
    }
  }
  size_t workspace() const override { return scratch_.get_size(); }
  void run(const void* a, const void* b, const void* bias, void* c, void* workspace) const override {
    OpenMpThreads guard(m_);
    std::unordered_map<int, dnnl::memory> args = {{forward_ ? DNNL_ARG_SRC : DNNL_ARG_DIFF_DST, wrap(a_, a)},
                                                  {DNNL_ARG_WEIGHTS, wrap(b_, b)},
                                                  {forward_ ? DNNL_ARG_DST : DNNL_ARG_DIFF_SRC, wrap(c_, c)},
                                                  {DNNL_ARG_SCRATCHPAD, wrap(scratch_, workspace)}};
    if (has_bias_) args.emplace(DNNL_ARG_BIAS, wrap(bias_, bias));
    primitive_.execute(stream(), args);
    stream().wait();
  }

 private:
  int m_;
  bool has_bias_ = false, forward_ = true;
  MemoryDesc a_, b_, c_, bias_, scratch_;
  dnnl::primitive primitive_;
};

// The matmul primitive, with operands first moved to a layout that it reads faster where that was measured to pay.
class Matmul : public Gemm {
 public:
  Matmul(const GemmShape& s, bool copy_a, bool pack_b) : s_(s) {
    OpenMpThreads guard(s.threads);
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (s.accumulate) {
      dnnl::post_ops ops;
      ops.append_sum(1.0f);
      attr.set_post_ops(ops);
    }
    user_a_ = matrix(s.m, s.k, s.ab, s.a_transposed, s.lda);
    user_b_ = matrix(s.k, s.n, s.ab, s.b_transposed, s.ldb);
    c_ = matrix(s.m, s.n, s.c, false, s.ldc);
    a_ = copy_a ? matrix(s.m, s.k, s.ab, false, s.k) : user_a_;
    b_ = pack_b ? MemoryDesc(Dims{s.k, s.n}, type_of(s.ab), dnnl::memory::format_tag::any) : user_b_;
    bias_ = {Dims{1, s.n}, type_of(s.bias), Dims{s.n, 1}};
    auto desc = s.has_bias ? dnnl::matmul::desc(a_, b_, bias_, c_) : dnnl::matmul::desc(a_, b_, c_);
    dnnl::matmul::primitive_desc pd(desc, attr, engine());
    b_ = pd.weights_desc();
    scratch_ = pd.scratchpad_desc();
    primitive_ = dnnl::matmul(pd);
    bytes_ = aligned(scratch_.get_size());
    if (a_ != user_a_) mover(user_a_, a_, move_a_, move_a_scratch_, attr_user_scratch());
    if (b_ != user_b_) mover(user_b_, b_, move_b_, move_b_scratch_, attr_user_scratch());
    // A reorder's own scratchpad is free again before the product starts, so they share one.
    for (const MemoryDesc& scratch : {move_a_scratch_, move_b_scratch_})
      bytes_ = std::max(bytes_, aligned(scratch.get_size()));
    offset_a_ = bytes_;
    if (a_ != user_a_) bytes_ += aligned(a_.get_size());
    offset_b_ = bytes_;
    if (b_ != user_b_) bytes_ += aligned(b_.get_size());
  }
  size_t workspace() const override { return bytes_; }
  void run(const void* a, const void* b, const void* bias, void* c, void* workspace) const override {
    OpenMpThreads guard(s_.threads);
    auto* scratch = static_cast<char*>(workspace);
    dnnl::memory ma = wrap(user_a_, a), mb = wrap(user_b_, b);
    if (a_ != user_a_) ma = move(move_a_, ma, a_, scratch + offset_a_, move_a_scratch_, scratch);
    if (b_ != user_b_) mb = move(move_b_, mb, b_, scratch + offset_b_, move_b_scratch_, scratch);
    std::unordered_map<int, dnnl::memory> args = {{DNNL_ARG_SRC, ma},
                                                  {DNNL_ARG_WEIGHTS, mb},
                                                  {DNNL_ARG_DST, wrap(c_, c)},
                                                  {DNNL_ARG_SCRATCHPAD, wrap(scratch_, scratch)}};
    if (s_.has_bias) args.emplace(DNNL_ARG_BIAS, wrap(bias_, bias));
    primitive_.execute(stream(), args);
    stream().wait();
  }

 private:
  static dnnl::primitive_attr attr_user_scratch() {
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    return attr;
  }
  static void mover(const MemoryDesc& from, const MemoryDesc& to, dnnl::reorder& primitive, MemoryDesc& scratch,
                    const dnnl::primitive_attr& attr) {
    dnnl::reorder::primitive_desc pd(engine(), from, engine(), to, attr);
    scratch = pd.scratchpad_desc();
    primitive = dnnl::reorder(pd);
  }
  static dnnl::memory move(const dnnl::reorder& reorder, dnnl::memory& from, const MemoryDesc& to, void* at,
                           const MemoryDesc& scratch_desc, void* scratch) {
    dnnl::memory out = wrap(to, at);
    reorder.execute(stream(),
                    {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, out}, {DNNL_ARG_SCRATCHPAD, wrap(scratch_desc, scratch)}});
    return out;
  }

  GemmShape s_;
  MemoryDesc user_a_, user_b_, a_, b_, c_, bias_, scratch_, move_a_scratch_, move_b_scratch_;
  dnnl::matmul primitive_;
  dnnl::reorder move_a_, move_b_;
  size_t bytes_ = 0, offset_a_ = 0, offset_b_ = 0;
};

// The choices of docs/results/cpu_gemm.md.
std::shared_ptr<const Gemm> make(const GemmShape& s) {
  bool plain = !s.a_transposed && s.lda == s.k && s.ldb == (s.b_transposed ? s.k : s.n) && s.ldc == s.n;
  if (s.ab == DType::f32) {
    if (s.has_bias && plain && s.b_transposed) return std::make_shared<InnerProduct>(s);
    if (!s.has_bias || s.bias == DType::f32) return std::make_shared<Sgemm>(s);
    return std::make_shared<Matmul>(s, false, false);
  }
  bool long_reduction = s.k > 8192;
  if (plain && !s.b_transposed && !s.accumulate && !s.has_bias && s.c == s.ab && long_reduction)
    return std::make_shared<InnerProduct>(s);
  bool small = s.m * s.n * s.k < int64_t(1) << 22;  // the copies would cost more than they gain
  if (s.a_transposed) return std::make_shared<Matmul>(s, !small, !small);
  return std::make_shared<Matmul>(s, false, !s.b_transposed && !small);
}

}  // namespace

std::shared_ptr<const Gemm> find_gemm(const GemmShape& s) {
  static std::mutex mutex;
  static std::map<GemmShape, std::shared_ptr<const Gemm>> made;
  std::lock_guard lock(mutex);
  auto& entry = made[s];
  if (!entry) try {
      entry = make(s);
    } catch (const dnnl::error& e) {
      fail_internal(
          fmt::format("oneDNN refuses the product {} x {} x {} of {}: {}", s.m, s.n, s.k, name(s.ab), e.what()));
    }
  return entry;
}

}  // namespace crest
