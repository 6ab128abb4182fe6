#include "backend/cpu/gemm.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <oneapi/dnnl/dnnl.hpp>
#include <vector>

#include "backend/cpu/common.h"
#include "core/error.h"
#include "core/lru_cache.h"
#include "core/text.h"

namespace crest {

OpenMpThreads::OpenMpThreads(int threads) : before_(omp_get_max_threads()) { omp_set_num_threads(threads); }
OpenMpThreads::~OpenMpThreads() { omp_set_num_threads(before_); }

namespace {

using MemoryDesc = dnnl::memory::desc;
using Dims = dnnl::memory::dims;

// The library runs the class named by CREST_ISA, like Crest's kernels; ONEDNN_MAX_CPU_ISA counts
// first.
void limit_library() {
  if (!std::getenv("CREST_ISA") || std::getenv("ONEDNN_MAX_CPU_ISA")) return;
  switch (active_isa()) {
    case Isa::generic: dnnl::set_max_cpu_isa(dnnl::cpu_isa::sse41); break;
    case Isa::avx2: dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx2); break;
    case Isa::avx512: dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx512_core); break;
    case Isa::avx512_bf16: dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx512_core_bf16); break;
    case Isa::amx: break;
  }
}

const dnnl::engine& engine() {
  static const dnnl::engine e = [] {
    limit_library();
    return dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
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

dnnl::primitive_attr product_attr(bool accumulate) {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (accumulate) {
    dnnl::post_ops ops;
    ops.append_sum(1.0f);
    attr.set_post_ops(ops);
  }
  return attr;
}

// f32 without a bias: the packed sgemm beats the matmul primitive in every orientation.
class Sgemm : public Gemm {
 public:
  explicit Sgemm(const GemmShape& s) : s_(s) {}
  size_t workspace() const override { return 0; }
  std::string implementation() const override { return "sgemm"; }
  bool allocates() const override { return true; }
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

// Inner products on plain layouts, run by oneDNN's packed gemm: forward with bias, and the gradient
// of the input for very long reductions.
class InnerProduct : public Gemm {
 public:
  explicit InnerProduct(const GemmShape& s) : threads_(s.threads), has_bias_(s.has_bias) {
    OpenMpThreads guard(s.threads);
    dnnl::primitive_attr attr = product_attr(false);
    auto training = dnnl::prop_kind::forward_training;
    if (s.b_transposed) {  // x[m,k], w[n,k], y[m,n]
      a_ = matrix(s.m, s.k, s.ab, false, s.k), b_ = matrix(s.n, s.k, s.ab, false, s.k);
      c_ = matrix(s.m, s.n, s.c, false, s.n);
      bias_ = {Dims{s.n}, type_of(s.bias), Dims{1}};
      auto kind = dnnl::prop_kind::forward_inference;
      auto desc = has_bias_ ? dnnl::inner_product_forward::desc(kind, a_, b_, bias_, c_)
                            : dnnl::inner_product_forward::desc(kind, a_, b_, c_);
      dnnl::inner_product_forward::primitive_desc pd(desc, attr, engine());
      scratch_ = pd.scratchpad_desc(), name_ = pd.impl_info_str();
      primitive_ = dnnl::inner_product_forward(pd);
      a_arg_ = DNNL_ARG_SRC, b_arg_ = DNNL_ARG_WEIGHTS, c_arg_ = DNNL_ARG_DST;
    } else {  // dy[m,k], w[k,n], dx[m,n]
      a_ = matrix(s.m, s.k, s.ab, false, s.k), b_ = matrix(s.k, s.n, s.ab, false, s.n);
      c_ = matrix(s.m, s.n, s.c, false, s.n);
      dnnl::inner_product_forward::primitive_desc hint({training, c_, b_, a_}, engine());
      dnnl::inner_product_backward_data::primitive_desc pd({c_, b_, a_}, attr, engine(), hint);
      scratch_ = pd.scratchpad_desc(), name_ = pd.impl_info_str();
      primitive_ = dnnl::inner_product_backward_data(pd);
      a_arg_ = DNNL_ARG_DIFF_DST, b_arg_ = DNNL_ARG_WEIGHTS, c_arg_ = DNNL_ARG_DIFF_SRC;
    }
  }
  size_t workspace() const override { return scratch_.get_size(); }
  std::string implementation() const override { return name_; }
  void run(const void* a, const void* b, const void* bias, void* c, void* workspace) const override {
    OpenMpThreads guard(threads_);
    std::unordered_map<int, dnnl::memory> args = {{a_arg_, wrap(a_, a)},
                                                  {b_arg_, wrap(b_, b)},
                                                  {c_arg_, wrap(c_, c)},
                                                  {DNNL_ARG_SCRATCHPAD, wrap(scratch_, workspace)}};
    if (has_bias_) args.emplace(DNNL_ARG_BIAS, wrap(bias_, bias));
    primitive_.execute(stream(), args);
    stream().wait();
  }

 private:
  int threads_;
  bool has_bias_;
  int a_arg_ = 0, b_arg_ = 0, c_arg_ = 0;
  MemoryDesc a_, b_, c_, bias_, scratch_;
  dnnl::primitive primitive_;
  std::string name_;
};

// A reorder into memory of the workspace.
struct Mover {
  MemoryDesc from, to, scratch;
  dnnl::reorder primitive;
  Mover() = default;
  Mover(const MemoryDesc& f, const MemoryDesc& t) : from(f), to(t) {
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    dnnl::reorder::primitive_desc pd(engine(), from, engine(), to, attr);
    scratch = pd.scratchpad_desc();
    primitive = dnnl::reorder(pd);
  }
  void run(const void* source, void* target, void* scratch_at) const {
    primitive.execute(stream(), {{DNNL_ARG_FROM, wrap(from, source)},
                                 {DNNL_ARG_TO, wrap(to, target)},
                                 {DNNL_ARG_SCRATCHPAD, wrap(scratch, scratch_at)}});
  }
};

// The matmul primitive; b is first moved to the
// fastest layout where measurements showed a gain.
class Matmul : public Gemm {
 public:
  Matmul(const GemmShape& s, bool pack_b) : s_(s), pack_b_(pack_b) {
    OpenMpThreads guard(s.threads);
    a_ = matrix(s.m, s.k, s.ab, s.a_transposed, s.lda);
    b_ = matrix(s.k, s.n, s.ab, s.b_transposed, s.ldb);
    c_ = matrix(s.m, s.n, s.c, false, s.ldc);
    bias_ = {Dims{1, s.n}, type_of(s.bias), Dims{s.n, 1}};
    MemoryDesc b = pack_b ? MemoryDesc(Dims{s.k, s.n}, type_of(s.ab), dnnl::memory::format_tag::any) : b_;
    auto desc = s.has_bias ? dnnl::matmul::desc(a_, b, bias_, c_) : dnnl::matmul::desc(a_, b, c_);
    dnnl::matmul::primitive_desc pd(desc, product_attr(s.accumulate), engine());
    scratch_ = pd.scratchpad_desc(), name_ = pd.impl_info_str();
    primitive_ = dnnl::matmul(pd);
    packed_at_ = bytes_ = aligned(scratch_.get_size());
    if (!pack_b) return;
    move_b_ = Mover(b_, pd.weights_desc());
    packed_at_ = std::max(bytes_, aligned(move_b_.scratch.get_size()));
    bytes_ = packed_at_ + aligned(move_b_.to.get_size());
  }
  size_t workspace() const override { return bytes_; }
  std::string implementation() const override { return name_; }
  void run(const void* a, const void* b, const void* bias, void* c, void* workspace) const override {
    OpenMpThreads guard(s_.threads);
    auto* scratch = static_cast<char*>(workspace);
    if (pack_b_) move_b_.run(b, scratch + packed_at_, scratch);
    std::unordered_map<int, dnnl::memory> args = {
        {DNNL_ARG_SRC, wrap(a_, a)},
        {DNNL_ARG_WEIGHTS, pack_b_ ? wrap(move_b_.to, scratch + packed_at_) : wrap(b_, b)},
        {DNNL_ARG_DST, wrap(c_, c)},
        {DNNL_ARG_SCRATCHPAD, wrap(scratch_, scratch)}};
    if (s_.has_bias) args.emplace(DNNL_ARG_BIAS, wrap(bias_, bias));
    primitive_.execute(stream(), args);
    stream().wait();
  }

 private:
  GemmShape s_;
  bool pack_b_;
  MemoryDesc a_, b_, c_, bias_, scratch_;
  dnnl::matmul primitive_;
  Mover move_b_;
  std::string name_;
  size_t bytes_ = 0, packed_at_ = 0;
};

// Rows of c computed by a product in panels at a time.
int64_t panel_rows(const GemmShape& s) {
  int64_t count = std::max<int64_t>(1, s.m / (768 * std::max(2, s.threads)));
  return std::min(s.m, ((s.m + count - 1) / count + 63) / 64 * 64);
}

// Weight gradients of bf16: panels of rows of c, so the transposed copy of a panel of a stays in
// the cache (and the workspace small), with b packed once. An f32 result is cleared and added to:
// the primitive then writes c directly, faster than with its own first product.
class Panels : public Gemm {
 public:
  explicit Panels(const GemmShape& s) : s_(s), adds_(s.accumulate || s.c == DType::f32) {
    OpenMpThreads guard(s.threads);
    panel_ = panel_rows(s);
    b_ = MemoryDesc(Dims{s.k, s.n}, type_of(s.ab), dnnl::memory::format_tag::any);
    size_t scratch = 0;
    for (int64_t rows : {panel_, s.m % panel_}) {
      if (rows == 0) continue;
      Panel p;
      p.move_a = Mover(matrix(rows, s.k, s.ab, s.a_transposed, s.lda), matrix(rows, s.k, s.ab, false, s.k));
      p.c = matrix(rows, s.n, s.c, false, s.ldc);
      dnnl::matmul::primitive_desc pd({p.move_a.to, b_, p.c}, product_attr(adds_), engine());
      b_ = pd.weights_desc();  // the last panel reads the layout of the others
      p.scratch = pd.scratchpad_desc(), name_ = pd.impl_info_str();
      p.primitive = dnnl::matmul(pd);
      scratch = std::max({scratch, p.scratch.get_size(), p.move_a.scratch.get_size()});
      panels_.push_back(p);
    }
    move_b_ = Mover(matrix(s.k, s.n, s.ab, s.b_transposed, s.ldb), b_);
    a_at_ = aligned(std::max(scratch, move_b_.scratch.get_size()));
    b_at_ = a_at_ + aligned(panels_[0].move_a.to.get_size());
    bytes_ = b_at_ + aligned(b_.get_size());
  }
  size_t workspace() const override { return bytes_; }
  std::string implementation() const override { return name_; }
  void run(const void* a, const void* b, const void*, void* c, void* workspace) const override {
    OpenMpThreads guard(s_.threads);
    auto* scratch = static_cast<char*>(workspace);
    move_b_.run(b, scratch + b_at_, scratch);
    for (int64_t i = 0; i < s_.m; i += panel_) {
      int64_t rows = std::min(panel_, s_.m - i);
      const Panel& p = panels_[rows == panel_ ? 0 : 1];
      char* target = static_cast<char*>(c) + i * s_.ldc * int64_t(size_of(s_.c));
      if (adds_ && !s_.accumulate) clear(target, rows);
      p.move_a.run(static_cast<const char*>(a) + i * (s_.a_transposed ? 1 : s_.lda) * int64_t(size_of(s_.ab)),
                   scratch + a_at_, scratch);
      p.primitive.execute(stream(), {{DNNL_ARG_SRC, wrap(p.move_a.to, scratch + a_at_)},
                                     {DNNL_ARG_WEIGHTS, wrap(b_, scratch + b_at_)},
                                     {DNNL_ARG_DST, wrap(p.c, target)},
                                     {DNNL_ARG_SCRATCHPAD, wrap(p.scratch, scratch)}});
    }
    stream().wait();
  }

 private:
  struct Panel {
    Mover move_a;
    MemoryDesc c, scratch;
    dnnl::matmul primitive;
  };
  void clear(char* c, int64_t rows) const {
#pragma omp parallel for schedule(static) num_threads(s_.threads) if (s_.threads > 1)
    for (int64_t r = 0; r < rows; ++r)
      std::memset(c + r * s_.ldc * int64_t(size_of(s_.c)), 0, size_t(s_.n) * size_of(s_.c));
  }

  GemmShape s_;
  bool adds_;
  int64_t panel_ = 0;
  MemoryDesc b_;
  std::vector<Panel> panels_;  // whole, and the last one
  Mover move_b_;
  std::string name_;
  size_t bytes_ = 0, a_at_ = 0, b_at_ = 0;
};

// The choices of docs/results/cpu_gemm.md.
enum class How { sgemm, inner_product, matmul, packed_matmul, panels };

How choose(const GemmShape& s) {
  bool plain = !s.a_transposed && s.lda == s.k && s.ldb == (s.b_transposed ? s.k : s.n) && s.ldc == s.n;
  if (s.ab == DType::f32) {
    if (s.has_bias && plain && s.b_transposed) return How::inner_product;
    return !s.has_bias || s.bias == DType::f32 ? How::sgemm : How::matmul;
  }
  bool long_reduction = s.k > 8192;
  if (plain && !s.b_transposed && !s.accumulate && !s.has_bias && s.c == s.ab && long_reduction)
    return How::inner_product;
  bool small = s.m * s.n * s.k < int64_t(1) << 23;  // the copies would cost more than they gain
  if (small) return How::matmul;
  if (s.a_transposed) return How::panels;
  return s.b_transposed ? How::matmul : How::packed_matmul;
}

std::shared_ptr<const Gemm> make(const GemmShape& s) {
  switch (choose(s)) {
    case How::sgemm: return std::make_shared<Sgemm>(s);
    case How::inner_product: return std::make_shared<InnerProduct>(s);
    case How::matmul: return std::make_shared<Matmul>(s, false);
    case How::packed_matmul: return std::make_shared<Matmul>(s, true);
    case How::panels: return std::make_shared<Panels>(s);
  }
  return nullptr;
}

// A product that this machine cannot run: plans for another class of processors need its workspace.
class Estimated : public Gemm {
 public:
  Estimated(const GemmShape& s, Isa isa) : bytes_(estimated_workspace(s, isa)) {}
  size_t workspace() const override { return bytes_; }
  std::string implementation() const override { return "of another class of processors"; }
  void run(const void*, const void*, const void*, void*, void*) const override {
    fail_internal("a product that was planned for another class of processors");
  }

 private:
  size_t bytes_;
};

}  // namespace

size_t estimated_workspace(const GemmShape& s, Isa isa) {
  auto copy = [&](int64_t rows, int64_t columns) {
    return size_t((rows + 63) / 64 * 64) * size_t((columns + 63) / 64 * 64) * size_of(s.ab);
  };
  size_t scratch = size_t(s.threads) * (isa == Isa::amx ? 384 << 10 : 256 << 10);
  switch (choose(s)) {
    case How::sgemm: return 0;
    case How::inner_product: return aligned(size_t(s.m * s.n) * 4) + scratch;
    case How::matmul: return scratch;
    case How::packed_matmul: return copy(s.k, s.n) + scratch;
    case How::panels: return copy(panel_rows(s), s.k) + copy(s.k, s.n) + scratch;
  }
  return 0;
}

static LruCache<GemmShape, FoundGemm>& gemms() {
  static LruCache<GemmShape, FoundGemm> made(most_gemms);
  return made;
}

size_t kept_gemms() { return gemms().size(); }

FoundGemm find_gemm(const GemmShape& s) {
  return gemms().find_or_make(s, [&]() -> FoundGemm {
    try {
      return {make(s), {}};
    } catch (const dnnl::error& e) {
      const char* limit = std::getenv("ONEDNN_MAX_CPU_ISA");
      return {nullptr, fmt::format("oneDNN refuses the product {} x {} x {} of {}{}: {}", s.m, s.n, s.k, name(s.ab),
                                   limit ? " with ONEDNN_MAX_CPU_ISA=" + printable(limit) : "", e.what())};
    }
  });
}

FoundGemm find_gemm(const GemmShape& s, const Device& device) {
  Isa isa = cpu::isa_of(device);
  if (s.ab == DType::bf16 && (isa != active_isa() || isa > best_isa()))
    return {std::make_shared<Estimated>(s, isa), {}};
  return find_gemm(s);
}

}  // namespace crest
