#include "backend/cuda/cublaslt.h"

#include <fmt/format.h>

#include "backend/cuda/blas_plan.h"
#include "backend/cuda/cublaslt_detail.h"
#include "backend/cuda/cudnn.h"
#include "backend/cuda/fp8.h"
#include "core/error.h"
#include "ops/fp8.h"

#if CREST_HAVE_CUDA
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>

#include "backend/choices.h"
#include "backend/cuda/algorithm_cache.h"
#include "backend/cuda/cublaslt_product.h"
#include "backend/cuda/gemm_sm90_entry.h"
#include "backend/cuda/kernel.h"
#include "backend/cuda/timing.h"
#include "core/lru_cache.h"
#include "ops/index.h"
#endif

namespace crest::cuda {

#if CREST_HAVE_CUDA
constexpr int built_for = CUBLAS_VER_MAJOR;
#else
constexpr int built_for = 13;
#endif

const Library& cublaslt_library() {
  const Library& wanted = library("cublasLt", built_for);
  if (wanted.handle) return wanted;
  const Library& other = library("cublasLt", built_for == 13 ? 12 : 13);
  return other.handle ? other : wanted;
}

std::string reject_without_cublaslt(const Device& device) {
  if (device.emulated) return "the emulation runs Crest's own kernels only";
  if (device.cublaslt) return "";
  const std::string& why = cublaslt_library().problem;
  return "cuBLASLt was not found: " + (why.empty() ? "the device is described without it" : why);
}

std::string reject_cublaslt(const KernelQuery& q) {
  if (std::string why = reject_without_cublaslt(q.device); !why.empty()) return why;
  if (std::string why = reject_tiled(q); !why.empty()) return why;
  Contraction c = contraction_of(q.program, q.instr);
  if (c.a.dtype != c.b.dtype) return "takes operands of one dtype";
  if (c.c.dtype != c.a.dtype && c.c.dtype != DType::f32)
    return fmt::format("makes f32 or {} of {} operands, not {}", name(c.a.dtype), name(c.a.dtype), name(c.c.dtype));
  return plan_blas(q.program, q.instr).problem;
}

// Why the opened library does not multiply with scales of blocks; empty if it does.
static std::string reject_blocks_of(const Contraction& what, const BlasPlan& plan, int device);

static std::string reject_fp8(const KernelQuery& q) {
  if (std::string why = reject_without_cublaslt(q.device); !why.empty()) return why;
  if (q.device.sm < 89) return "8-bit floats need compute capability 8.9";
  if (std::string why = reject_fp8_product(q); !why.empty()) return why;
  Contraction c = contraction_of(q.program, q.instr);
  if (c.a.dtype == DType::e5m2 && c.b.dtype == DType::e5m2) return "takes at most one operand of e5m2";
  if (c.bias && c.c.dtype == DType::f32) return "adds bf16 biases only to results of f32";
  if (c.n % fp8_multiple || c.k % fp8_multiple) return "takes features in multiples of 16";
  BlasPlan plan = plan_blas(q.program, q.instr);
  if (!plan.problem.empty() || c.blocks == Fp8Blocks::none) return plan.problem;
  if (q.device.sm != 90) return "takes scales of blocks on compute capability 9.0 only";
  if (c.m % 4) return "takes scales of blocks for rows in multiples of 4";
  return device_present(q.device) ? reject_blocks_of(c, plan, q.device.index) : "";
}

std::string reject_cublaslt_fp8(const KernelQuery& q) {
  return fp8_fast_accumulation(q.instr.attrs) ? "sums in f32" : reject_fp8(q);
}

std::string reject_cublaslt_fp8_fast(const KernelQuery& q) {
  return fp8_fast_accumulation(q.instr.attrs) ? reject_fp8(q) : "sums in fewer bits than f32";
}

size_t workspace_cublaslt(const KernelQuery&) { return cublaslt_workspace; }

#if CREST_HAVE_CUDA
namespace {

using Algorithm = Product::Algorithm;

// A way to compute a contraction: the epilogue of the library's product (none: Crest's own GEMM
// does everything), and whether Crest's GELU kernel follows.
struct Variant {
  const char* name;
  std::optional<Product> product;
  bool gelu_after;
  std::vector<Algorithm> algorithms;
};

struct Prepared {
  Contraction what;
  BlasPlan plan;
  cublasLtHandle_t handle = nullptr;
  std::string key;                // of everything a choice depends on
  std::vector<Variant> variants;  // empty: our tiled kernel runs
  size_t variant = 0;             // running kernel and its algorithm
  Algorithm algorithm = {};
};

int current_device() {
  int device = 0;
  check(cudaGetDevice(&device), "finding the current device");
  return device;
}

std::string key_of(const Contraction& c, const BlasPlan& p) {
  auto matrix = [](DType t, const BlasMatrix& x, int64_t stride, int64_t alignment) {
    return fmt::format("{}{}/{}/{}/{}", name(t), x.transposed ? "^T" : "", x.ld, stride, alignment);
  };
  std::string key =
      fmt::format("{}x{}x{} batch {} calls {} a {} b {} c {}", p.m, p.n, p.k, p.batch.size, p.calls(),
                  matrix(c.a.dtype, p.a, p.batch.a, p.alignment_a), matrix(c.b.dtype, p.b, p.batch.b, p.alignment_b),
                  matrix(c.c.dtype, p.c, p.batch.c, p.alignment_c));
  if (c.bias) key += " bias";
  if (c.gelu) key += c.keep ? " gelu_keep" : " gelu";
  if (c.accumulate) key += " accumulate";
  if (c.tf32) key += " tf32";
  if (c.fast_sums) key += " fast sums";
  if (c.blocks != Fp8Blocks::none) key += fmt::format(" blocks {}", name_of(c.blocks));
  return key;
}

// Layers repeat instructions; the library is asked
// once. The bound is far above a session's needs.
std::vector<Algorithm> algorithms_of(const Prepared& p, const Product& product, const char* variant, int device) {
  static LruCache<std::string, std::vector<Algorithm>> known(4096);
  return known.find_or_make(fmt::format("{} {} on {}", p.key, variant, device),
                            [&] { return product.algorithms(p.handle, p.plan); });
}

// Choices on a device, of all runs on machines like this one.
AlgorithmCache& cache_of(int device) {
  static std::mutex mutex;
  static std::map<int, AlgorithmCache> caches;
  std::lock_guard lock(mutex);
  auto it = caches.find(device);
  if (it == caches.end()) {
    cudaDeviceProp properties;
    int driver = 0;
    check(cudaGetDeviceProperties(&properties, device), "asking for the device's name");
    check(cudaDriverGetVersion(&driver), "asking for the driver's version");
    it = caches.try_emplace(device, algorithm_cache_path(properties.name, driver, cublaslt_version())).first;
  }
  return it->second;
}

char* at(const void* base, DType t, int64_t elements) {
  return const_cast<char*>(static_cast<const char*>(base)) + elements * int64_t(size_of(t));
}

void run(const Prepared& p, Variant& v, const Algorithm& algorithm, const KernelCall& c) {
  if (!v.product) return launch_gemm_sm90(c);
  const Contraction& w = p.what;
  void* result = v.gelu_after && w.keep ? c.out[out::linear_gelu::h] : c.out[0];
  v.product->bind(w.bias ? c.in[w.third] : nullptr, w.keep ? c.out[out::linear_gelu::h] : nullptr);
  if (w.scaled) v.product->bind_scales(c.in[in::linear_fp8::x_scale], c.in[in::linear_fp8::w_scale]);
  const auto &outer = p.plan.loops[0], &inner = p.plan.loops[1], &sum = p.plan.sum;
  for (int64_t i = 0; i < outer.size; ++i)
    for (int64_t j = 0; j < inner.size; ++j)
      for (int64_t s = 0; s < sum.size; ++s) {
        const char* a = at(c.in[0], w.a.dtype, i * outer.a + j * inner.a + s * sum.a);
        const char* b = at(c.in[1], w.b.dtype, i * outer.b + j * inner.b + s * sum.b);
        char* to = at(result, w.c.dtype, i * outer.c + j * inner.c);
        const void* acc = w.accumulate && s == 0 ? c.in[w.third] : to;
        v.product->run(p.handle, algorithm, a, b, w.accumulate || s > 0 ? 1.f : 0.f, acc, to, c.workspace,
                       static_cast<cudaStream_t>(c.stream));
      }
  if (v.gelu_after) launch_gelu(c, w.c.dtype, result, c.out[out::linear_gelu::a], w.m * w.n);
}

// The variant and algorithm of an earlier choice; false when the library does not take it.
bool use(Prepared& p, const std::string& variant, const std::string& hex) {
  Algorithm algorithm;
  if (!from_hex(hex, &algorithm, sizeof algorithm)) return false;
  for (size_t v = 0; v < p.variants.size(); ++v)
    if (auto& product = p.variants[v].product;
        variant == p.variants[v].name && (!product || product->accepts(p.handle, algorithm))) {
      p.variant = v;
      p.algorithm = algorithm;
      return true;
    }
  return false;
}

constexpr const char* weight = "weight";  // own kernel of linear_dw
constexpr const char* tiled = "tiled";    // the choice where none of the library's algorithms runs

// A session's choice as text: "gelu 4a00..".
std::string text_of(const Prepared& p) {
  if (p.variants.empty()) return tiled;
  return fmt::format("{} {}", p.variants[p.variant].name, to_hex(&p.algorithm, sizeof p.algorithm));
}
bool use(Prepared& p, const std::string& text) {
  size_t space = text.find(' ');
  if (space != std::string::npos) return use(p, text.substr(0, space), text.substr(space + 1));
  if (text != tiled) return false;
  p.variants.clear();
  return true;
}

}  // namespace

void fill_product_operands(const KernelCall& c) {
  for (size_t i = 0; i < c.instr.in.size(); ++i) {
    if (!c.has(i)) continue;
    const Value& v = c.in_value(i);
    int64_t extent = 1;  // of a view: to its last element
    for (int d = 0; d < v.shape.rank(); ++d) extent += (v.shape[d] - 1) * v.layout.strides[d];
    if (is_fp8(v.dtype))
      launch_fp8_numbers(c, c.in[i], extent, uint32_t(i));
    else
      launch_normal(c, v.dtype, c.in[i], extent, uint32_t(i));
  }
}

namespace {

// Times the variants and remembers the best in the cache.
void choose(Prepared& p, const KernelCall& c, AlgorithmCache& cache, const std::function<void()>& fill) {
  fill();
  check(cudaStreamSynchronize(static_cast<cudaStream_t>(c.stream)), "filling operands");
  std::vector<Alternative> alternatives;
  std::vector<std::pair<size_t, Algorithm>> chosen_by;
  for (size_t v = 0; v < p.variants.size(); ++v)
    for (const Algorithm& algorithm : p.variants[v].algorithms) {
      alternatives.push_back([&p, &c, v, &algorithm](void* stream) {
        KernelCall call = c;
        call.stream = stream;
        run(p, p.variants[v], algorithm, call);
      });
      chosen_by.emplace_back(v, algorithm);
    }
  std::vector<double> us = time_alternatives(alternatives);
  size_t best = size_t(std::min_element(us.begin(), us.end()) - us.begin());
  if (!std::isfinite(us[best])) {  // the library's own candidates fail: Crest's does not
    p.variants.clear();
    return;
  }
  p.variant = chosen_by[best].first;
  p.algorithm = chosen_by[best].second;
  cache.store(p.key, {p.variants[p.variant].name, to_hex(&p.algorithm, sizeof p.algorithm), us[best]});
}

}  // namespace

static std::shared_ptr<Prepared> prepared_variants(const Contraction& what, const BlasPlan& plan) {
  auto p = std::make_shared<Prepared>();
  p->what = what, p->plan = plan;
  p->key = key_of(p->what, p->plan);
  int device = current_device();
  p->handle = cublaslt_handle(device);
  const Contraction& w = p->what;
  auto offer = [&](const char* name, Epilogue epilogue, bool gelu_after) {
    Product product(w, p->plan, epilogue);
    auto algorithms = algorithms_of(*p, product, name, device);
    if (!algorithms.empty()) p->variants.push_back({name, std::move(product), gelu_after, std::move(algorithms)});
  };
  Epilogue plain = {w.bias, false, false}, fused = {w.bias, true, w.keep};
  if (!w.gelu) {
    offer("plain", plain, false);
  } else if (!w.keep) {
    offer("gelu", fused, false);
    offer("plain", plain, true);
  } else {
    offer("plain", plain, true);
    if (p->plan.c.ld % 8 == 0) offer("gelu", fused, false);  // the library's rule for the second output
  }
  if (!p->variants.empty()) p->algorithm = p->variants[0].algorithms[0];
  return p;
}

static std::shared_ptr<Prepared> prepared_variants(const KernelQuery& q) {
  return prepared_variants(contraction_of(q.program, q.instr), plan_blas(q.program, q.instr));
}

static std::string reject_blocks_of(const Contraction& what, const BlasPlan& plan, int device) {
  const size_t version = cublaslt_version(), first = 120900;
  if (version < first) return fmt::format("cuBLASLt {} has no scales of blocks; 12.9 has", version);
  const int before = current_device();
  check(cudaSetDevice(device), "selection of a device");
  const bool found = !prepared_variants(what, plan)->variants.empty();
  check(cudaSetDevice(before), "selection of a device");
  if (found) return "";
  return fmt::format("cuBLASLt {} has no algorithm for {} x {} x {} with scales of blocks ({})", version, plan.m,
                     plan.n, plan.k, name_of(what.blocks));
}

std::shared_ptr<void> prepare_cublaslt(const KernelQuery& q) { return prepared_variants(q); }

std::shared_ptr<void> prepare_cublaslt(const Contraction& what, const BlasPlan& plan) {
  return prepared_variants(what, plan);
}

std::shared_ptr<void> prepare_cublaslt_or_sm90(const KernelQuery& q) {
  std::shared_ptr<Prepared> p = prepared_variants(q);
  if (p->variants.empty()) return nullptr;
  const char* own = q.instr.op->name == std::string_view("linear_dw") ? weight : "pingpong";
  p->key += std::string(" or ") + own;  // choices without it do not hold here
  p->variants.push_back({own, std::nullopt, false, {Algorithm{}}});
  if (p->plan.has_odd_rows()) p->variant = p->variants.size() - 1, p->algorithm = {};
  return p;
}

void launch_cublaslt(const KernelCall& c) {
  auto& p = *static_cast<Prepared*>(c.prepared);
  if (p.variants.empty()) return p.what.scaled ? launch_fp8_tiled(c) : launch_tiled(c, p.what);
  if (!aligned({c.in[0]}, size_t(p.plan.alignment_a)) || !aligned({c.in[1]}, size_t(p.plan.alignment_b)) ||
      !aligned({c.out[0]}, size_t(p.plan.alignment_c)))
    fail_internal("an operand is not as aligned as its layout says", c.instr_name());
  run(p, p.variants[p.variant], p.algorithm, c);
}

void tune_cublaslt(const KernelCall& c) {
  tune_cublaslt(c, [&] { fill_product_operands(c); });
}

// The session's own choice comes first, then the cache, then timing.
void tune_cublaslt(const KernelCall& c, const std::function<void()>& fill) {
  auto& p = *static_cast<Prepared*>(c.prepared);
  if (p.variants.empty()) return;
  std::string scope = c.choices ? fmt::format("{}, cuBLASLt {}", c.device->name, cublaslt_version()) : "";
  auto known = c.choices ? c.choices->find(scope, p.key) : std::nullopt;
  if (!known || !use(p, *known)) {
    AlgorithmCache& cache = cache_of(current_device());
    auto cached = cache.find(p.key);
    if (!cached || !use(p, cached->variant, cached->algorithm)) choose(p, c, cache, fill);
  }
  if (c.choices) c.choices->use(scope, p.key, text_of(p));
}

void describe_cublaslt(const void* prepared, ProductDetail& detail) {
  auto& p = *static_cast<const Prepared*>(prepared);
  const Variant* v = p.variants.empty() ? nullptr : &p.variants[p.variant];
  if (v && v->product) return v->product->describe(p.handle, p.algorithm, detail);
  detail.algorithm = v ? v->name : tiled;  // Crest's own kernel: it uses the reserved workspace, or none
  if (detail.algorithm != weight) detail.requested_workspace = 0;
}

}  // namespace crest::cuda
#else
static void no_cuda() { fail_internal("a build without CUDA was asked to run cuBLASLt"); }

std::shared_ptr<void> prepare_cublaslt(const KernelQuery&) {
  no_cuda();
  return nullptr;
}
std::shared_ptr<void> prepare_cublaslt_or_sm90(const KernelQuery&) {
  no_cuda();
  return nullptr;
}
std::shared_ptr<void> prepare_cublaslt(const Contraction&, const BlasPlan&) {
  no_cuda();
  return nullptr;
}
void launch_cublaslt(const KernelCall&) { no_cuda(); }
void tune_cublaslt(const KernelCall&) { no_cuda(); }
void tune_cublaslt(const KernelCall&, const std::function<void()>&) { no_cuda(); }
void fill_product_operands(const KernelCall&) { no_cuda(); }
static std::string reject_blocks_of(const Contraction&, const BlasPlan&, int) { return ""; }
void describe_cublaslt(const void*, ProductDetail&) { no_cuda(); }

}  // namespace crest::cuda
#endif
