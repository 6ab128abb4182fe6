#include "backend/cuda/library_product.h"

#include "backend/cuda/cublaslt.h"
#include "core/error.h"

#if CREST_HAVE_CUDA
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "backend/cuda/cublaslt_api.h"
#include "backend/cuda/cublaslt_product.h"
#include "backend/cuda/kernel.h"
#include "backend/cuda/timing.h"
#include "backend/runtime.h"
#include "core/random.h"
#endif

namespace crest::cuda {

#if CREST_HAVE_CUDA
namespace {

// A precision as the library's types. Operands are x w^T in its column-major order: first operand
// w, transposed. It takes 8-bit operands in this order only.
struct Precision {
  const char *name, *how;
  int needs;  // compute capability
  cudaDataType_t operand, result, scale;
  cublasComputeType_t compute;
  size_t operand_bytes, result_bytes;
  bool fast_accumulation;  // fp8 on tensor cores: sums are kept in fewer bits between instructions
};

constexpr Precision precisions[] = {
    {"fp64", "fp64, sums in fp64", 0, CUDA_R_64F, CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F, 8, 8, false},
    {"fp8", "e4m3, sums in fp32 (fast accumulation), result bf16", 89, CUDA_R_8F_E4M3, CUDA_R_16BF, CUDA_R_32F,
     CUBLAS_COMPUTE_32F, 1, 2, true},
    {"int8", "int8, sums and result in int32", 75, CUDA_R_8I, CUDA_R_32I, CUDA_R_32I, CUBLAS_COMPUTE_32I, 1, 4, false},
};

const Precision* find(const std::string& name) {
  for (auto& p : precisions)
    if (name == p.name) return &p;
  return nullptr;
}

// The numbers in operands, exact in every precision: an element depends on its place only. Their
// count is prime, so rows do not repeat; random, because constant data takes less power and runs
// faster.
constexpr int64_t pattern_length = 1048573;
constexpr double choices[8] = {-2, -1.5, -1, -0.5, 0.5, 1, 1.5, 2};
constexpr uint8_t choices_e4m3[8] = {0xc0, 0xbc, 0xb8, 0xb0, 0x30, 0x38, 0x3c, 0x40};

size_t choice_at(uint64_t stream, int64_t element) {
  return size_t(random_bits(11, stream, uint64_t(element % pattern_length)) % 8);
}
// int8 has twice the number, a whole one.
double number_at(const Precision& p, uint64_t stream, int64_t element) {
  return choices[choice_at(stream, element)] * (p.operand == CUDA_R_8I ? 2 : 1);
}

std::vector<char> pattern(const Precision& p, uint64_t stream) {
  std::vector<char> bytes(size_t(pattern_length) * p.operand_bytes);
  for (int64_t i = 0; i < pattern_length; ++i) {
    double x = number_at(p, stream, i);
    if (p.operand == CUDA_R_64F)
      std::memcpy(&bytes[size_t(i) * 8], &x, 8);
    else
      bytes[size_t(i)] = p.operand == CUDA_R_8I ? char(int8_t(x)) : char(choices_e4m3[choice_at(stream, i)]);
  }
  return bytes;
}

class Products {
 public:
  Products(const Device& device, const Precision& p, int64_t m, int64_t n, int64_t k)
      : p_(p), m_(m), n_(n), k_(k), runtime_(make_runtime(device, nullptr)), handle_(cublaslt_handle(device.index)) {
    check_lt(lt_api().desc_create(&desc_, p.compute, p.scale), "describe a product");
    auto set = [&](cublasLtMatmulDescAttributes_t attribute, auto value) {
      check_lt(lt_api().desc_set(desc_, attribute, &value, sizeof value), "describe a product");
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, int32_t(CUBLAS_OP_T));
    set(CUBLASLT_MATMUL_DESC_TRANSB, int32_t(CUBLAS_OP_N));
    if (p.fast_accumulation) set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t(1));
    auto layout = [](cublasLtMatrixLayout_t& to, cudaDataType_t type, int64_t rows, int64_t columns) {
      check_lt(lt_api().layout_create(&to, type, uint64_t(rows), uint64_t(columns), rows), "describe a matrix");
    };
    layout(first_, p.operand, k, n);
    layout(second_, p.operand, k, m);
    layout(result_, p.result, n, m);
  }
  ~Products() {
    for (auto& [memory, bytes] : taken_) runtime_->release(memory, bytes);
    for (cublasLtMatrixLayout_t l : {first_, second_, result_})
      if (l) lt_api().layout_destroy(l);
    if (desc_) lt_api().desc_destroy(desc_);
  }
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  // The reason why there is no algorithm, or "".
  std::string choose() {
    cublasLtMatmulPreference_t preference = nullptr;
    check_lt(lt_api().preference_create(&preference), "make preferences");
    auto workspace = uint64_t(cublaslt_workspace);
    cublasStatus_t status =
        lt_api().preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
    std::vector<cublasLtMatmulHeuristicResult_t> found(8);
    int count = 0;
    if (status == CUBLAS_STATUS_SUCCESS)
      status = lt_api().heuristic(handle_, desc_, first_, second_, result_, result_, preference, int(found.size()),
                                  found.data(), &count);
    lt_api().preference_destroy(preference);
    std::string problem =
        fmt::format("cuBLASLt {} has no algorithm for {} of m {} n {} k {}", cublaslt_version(), p_.name, m_, n_, k_);
    if (status != CUBLAS_STATUS_SUCCESS) return fmt::format("{}: {}", problem, lt_api().status(status));
    take_memory();
    std::vector<Alternative> alternatives;
    std::vector<const cublasLtMatmulHeuristicResult_t*> offered;
    for (int i = 0; i < count; ++i)
      if (found[size_t(i)].state == CUBLAS_STATUS_SUCCESS) {
        alternatives.push_back([this, algorithm = found[size_t(i)].algo](void* stream) {
          launch(algorithm, static_cast<cudaStream_t>(stream));
        });
        offered.push_back(&found[size_t(i)]);
      }
    if (alternatives.empty()) return problem;
    std::vector<double> us = time_alternatives(alternatives);
    size_t best = size_t(std::min_element(us.begin(), us.end()) - us.begin());
    if (!std::isfinite(us[best])) return problem + " that runs";
    run_ = alternatives[best];
    detail_.kernel = "cuBLASLt";
    describe_algorithm(offered[best]->algo, detail_);
    detail_.requested_workspace = int64_t(offered[best]->workspaceSize);
    detail_.reserved_workspace = int64_t(cublaslt_workspace);
    return "";
  }

  const ProductDetail& detail() const { return detail_; }
  void run() {
    run_(nullptr);
    check(cudaStreamSynchronize(nullptr), "running a product");
  }

  // The result of a run against float64, where sums may differ by their type's rounding.
  void verify() {
    run();
    for (uint64_t sample = 0; sample < 16; ++sample) {
      int64_t row = int64_t(random_bits(13, 0, sample) % uint64_t(m_)),
              column = int64_t(random_bits(13, 1, sample) % uint64_t(n_));
      double expected = 0, squares = 0;
      for (int64_t i = 0; i < k_; ++i) {
        double x = number_at(p_, 0, row * k_ + i) * number_at(p_, 1, column * k_ + i);
        expected += x, squares += x * x;
      }
      double got = result_at(row * n_ + column);
      // bf16 rounds by 2^-9; sums of e4m3 products keep 13 bits of the largest.
      double tolerance = p_.result == CUDA_R_16BF ? std::abs(expected) / 256 + std::sqrt(squares) / 64 : 0;
      if (!(std::abs(got - expected) <= tolerance))
        fail(fmt::format("{} product: place {}, {} is {} and not {}", p_.name, row, column, got, expected),
             cublaslt_library().path);
    }
  }

 private:
  void* take(int64_t bytes) {
    taken_.emplace_back(runtime_->allocate(bytes), bytes);
    return taken_.back().first;
  }
  void fill(void* to, int64_t elements, uint64_t stream) {
    std::vector<char> numbers = pattern(p_, stream);
    auto all = elements * int64_t(p_.operand_bytes), piece = int64_t(numbers.size());
    for (int64_t done = 0; done < all; done += piece)
      runtime_->write(static_cast<char*>(to) + done, numbers.data(), std::min(piece, all - done));
  }
  void take_memory() {
    x_ = take(m_ * k_ * int64_t(p_.operand_bytes)), w_ = take(n_ * k_ * int64_t(p_.operand_bytes));
    y_ = take(m_ * n_ * int64_t(p_.result_bytes)), workspace_ = take(int64_t(cublaslt_workspace));
    fill(x_, m_ * k_, 0), fill(w_, n_ * k_, 1);
    runtime_->synchronize();
  }
  void launch(const cublasLtMatmulAlgo_t& algorithm, cudaStream_t stream) const {
    double one = 1, zero = 0;
    float one_f = 1, zero_f = 0;
    int32_t one_i = 1, zero_i = 0;
    const void* alpha = p_.scale == CUDA_R_64F   ? (const void*)&one
                        : p_.scale == CUDA_R_32F ? (const void*)&one_f
                                                 : &one_i;
    const void* beta = p_.scale == CUDA_R_64F   ? (const void*)&zero
                       : p_.scale == CUDA_R_32F ? (const void*)&zero_f
                                                : &zero_i;
    check_lt(lt_api().matmul(handle_, desc_, alpha, w_, first_, x_, second_, beta, y_, result_, y_, result_, &algorithm,
                             workspace_, cublaslt_workspace, stream),
             "run a product");
  }
  double result_at(int64_t element) {
    char bytes[8] = {};
    runtime_->read(bytes, static_cast<char*>(y_) + element * int64_t(p_.result_bytes), int64_t(p_.result_bytes));
    if (p_.result == CUDA_R_16BF) {
      uint16_t half = 0;
      std::memcpy(&half, bytes, 2);
      uint32_t bits = uint32_t(half) << 16;
      float x = 0;
      std::memcpy(&x, &bits, 4);
      return double(x);
    }
    if (p_.result == CUDA_R_32I) {
      int32_t x = 0;
      std::memcpy(&x, bytes, 4);
      return double(x);
    }
    double x = 0;
    std::memcpy(&x, bytes, 8);
    return x;
  }

  const Precision& p_;
  int64_t m_, n_, k_;
  std::unique_ptr<Runtime> runtime_;
  cublasLtHandle_t handle_;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t first_ = nullptr, second_ = nullptr, result_ = nullptr;
  void *x_ = nullptr, *w_ = nullptr, *y_ = nullptr, *workspace_ = nullptr;
  std::vector<std::pair<void*, int64_t>> taken_;
  Alternative run_;
  ProductDetail detail_;
};

}  // namespace

LibraryProduct library_product(const Device& device, const std::string& precision, int64_t m, int64_t n, int64_t k) {
  LibraryProduct product;
  const Precision* p = find(precision);
  if (!p) fail_internal("no product of " + precision);
  product.how = p->how;
  if (device.sm < p->needs)
    product.problem = fmt::format("{} needs compute capability {}.{}; this is {}.{}", p->name, p->needs / 10,
                                  p->needs % 10, device.sm / 10, device.sm % 10);
  else if (device.emulated || !cublaslt_library().handle)
    product.problem = device.emulated ? "the emulation has no library" : cublaslt_library().problem;
  if (!product.problem.empty()) return product;
  std::shared_ptr<Products> products;
  try {
    products = std::make_shared<Products>(device, *p, m, n, k);
    product.problem = products->choose();
  } catch (const Error& error) {  // the library refuses; lack of memory is the caller's to report
    if (error.code() == Exit::does_not_fit) throw;
    product.problem = error.problem();
  }
  if (!product.problem.empty()) return product;
  products->verify();
  product.detail = products->detail();
  product.run = [products] { products->run(); };
  return product;
}

#else

LibraryProduct library_product(const Device&, const std::string&, int64_t, int64_t, int64_t) {
  return {{}, "", "this build has no CUDA", {}};
}

#endif

}  // namespace crest::cuda
