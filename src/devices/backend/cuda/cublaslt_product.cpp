#include "backend/cuda/cublaslt_product.h"

#if CREST_HAVE_CUDA
#include <fmt/format.h>

#include <map>
#include <mutex>
#include <tuple>

#include "backend/cuda/cublaslt.h"
#include "backend/cuda/cublaslt_api.h"
#include "backend/cuda/cublaslt_names.h"
#include "core/error.h"

namespace crest::cuda {

namespace {

constexpr size_t most_algorithms = 24, most_algorithms_if_slow = 16;
constexpr double slow_flops = 1e12;  // milliseconds a run

// Of cublasLtMatmulMatrixScale_t, from CUDA 12.9 on: ..._VEC128_32F and ..._BLK128x128_32F.
constexpr int32_t scales_1x128 = 4, scales_128x128 = 5;

cudaDataType_t data_type(DType t) {
  if (t == DType::e4m3) return CUDA_R_8F_E4M3;
  if (t == DType::e5m2) return CUDA_R_8F_E5M2;
  return t == DType::bf16 ? CUDA_R_16BF : t == DType::f16 ? CUDA_R_16F : CUDA_R_32F;
}

// Descriptors check the alignment of addresses
// bound later: bias and aux start a storage.
void* const some_storage = reinterpret_cast<void*>(uintptr_t(64));

void make_layout(cublasLtMatrixLayout_t& layout, DType t, const BlasMatrix& x, int64_t rows, int64_t cols,
                 int64_t batch, int64_t stride) {
  if (x.transposed) std::swap(rows, cols);
  check_lt(lt_api().layout_create(&layout, data_type(t), uint64_t(cols), uint64_t(rows), x.ld), "describe a matrix");
  if (batch == 1) return;
  auto count = int32_t(batch);
  check_lt(lt_api().layout_set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count), "describe a batch");
  check_lt(lt_api().layout_set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride),
           "describe a batch");
}

uint32_t epilogue_of(Epilogue e) {
  if (e.aux) return e.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
  if (e.gelu) return e.bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
  return e.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

}  // namespace

cublasLtHandle_t cublaslt_handle(int device) {
  static std::mutex mutex;
  static std::map<int, cublasLtHandle_t> handles;
  std::lock_guard lock(mutex);
  auto [it, added] = handles.try_emplace(device, nullptr);
  if (added) check_lt(lt_api().create(&it->second), "make a handle");
  return it->second;
}

size_t cublaslt_version() { return lt_api().version(); }

template <class T>
void Product::set(cublasLtMatmulDescAttributes_t attribute, T value) {
  check_lt(lt_api().desc_set(desc_, attribute, &value, sizeof value), "describe a product");
}

Product::Product(const Contraction& what, const BlasPlan& plan, Epilogue epilogue)
    : epilogue_(epilogue), result_type_(what.c.dtype) {
  // f32 products are f32 throughout unless TF32 is allowed; half-precision operands are always
  // summed in f32.
  bool tf32 = what.tf32 && what.a.dtype == DType::f32;
  check_lt(lt_api().desc_create(&desc_, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F),
           "describe a product");
  set(CUBLASLT_MATMUL_DESC_TRANSA, int32_t(plan.b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N));
  set(CUBLASLT_MATMUL_DESC_TRANSB, int32_t(plan.a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N));
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(epilogue));
  if (epilogue.aux) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, plan.c.ld);
  // Without fast accumulation, sums of 8-bit products regularly move to f32 registers, so small
  // terms of a long sum are not lost.
  if (what.fast_sums) set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t(1));
  if (what.scaled) bind_scales(some_storage, some_storage);
  if (what.blocks != Fp8Blocks::none) {  // its first operand is our b
    set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, what.blocks == Fp8Blocks::squares ? scales_128x128 : scales_1x128);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, scales_1x128);
  }
  bind(some_storage, some_storage);
  make_layout(first_, what.b.dtype, plan.b, plan.k, plan.n, plan.batch.size, plan.batch.b);
  make_layout(second_, what.a.dtype, plan.a, plan.m, plan.k, plan.batch.size, plan.batch.a);
  make_layout(result_, what.c.dtype, plan.c, plan.m, plan.n, plan.batch.size, plan.batch.c);
}

Product::~Product() {
  if (desc_) lt_api().desc_destroy(desc_);
  for (cublasLtMatrixLayout_t l : {first_, second_, result_})
    if (l) lt_api().layout_destroy(l);
}

Product::Product(Product&& o) noexcept
    : epilogue_(o.epilogue_),
      result_type_(o.result_type_),
      desc_(std::exchange(o.desc_, nullptr)),
      first_(std::exchange(o.first_, nullptr)),
      second_(std::exchange(o.second_, nullptr)),
      result_(std::exchange(o.result_, nullptr)) {}

std::vector<Product::Algorithm> Product::algorithms(cublasLtHandle_t handle, const BlasPlan& plan) const {
  cublasLtMatmulPreference_t preference = nullptr;
  check_lt(lt_api().preference_create(&preference), "make preferences");
  auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    check_lt(lt_api().preference_set(preference, attribute, &value, sizeof value), "set a preference");
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t(cublaslt_workspace));
  // Partial sums (split-K) meet in the workspace in a fixed order, in f32. Not in place: there the
  // order differs from run to run. Not in a half-precision output type: each would be rounded
  // first.
  uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  if (result_type_ == DType::f32) schemes |= CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, schemes);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, uint32_t(plan.alignment_b));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, uint32_t(plan.alignment_a));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, uint32_t(plan.alignment_c));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, uint32_t(plan.alignment_c));
  double flops = 2.0 * double(plan.m) * double(plan.n) * double(plan.k) * double(plan.batch.size);
  std::vector<cublasLtMatmulHeuristicResult_t> found(flops > slow_flops ? most_algorithms_if_slow : most_algorithms);
  int count = 0;
  cublasStatus_t status = lt_api().heuristic(handle, desc_, first_, second_, result_, result_, preference,
                                             int(found.size()), found.data(), &count);
  lt_api().preference_destroy(preference);
  std::vector<Algorithm> usable;
  if (status != CUBLAS_STATUS_SUCCESS) return usable;  // says NOT_SUPPORTED where it has none
  for (int i = 0; i < count; ++i)
    if (found[size_t(i)].state == CUBLAS_STATUS_SUCCESS && found[size_t(i)].workspaceSize <= cublaslt_workspace)
      usable.push_back(found[size_t(i)].algo);
  return usable;
}

bool Product::accepts(cublasLtHandle_t handle, const Algorithm& algorithm) const {
  cublasLtMatmulHeuristicResult_t result = {};
  cublasStatus_t status =
      lt_api().algorithm_check(handle, desc_, first_, second_, result_, result_, &algorithm, &result);
  return status == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= cublaslt_workspace;
}

// An attribute unknown to the library counts as 0: not set.
void describe_algorithm(const cublasLtMatmulAlgo_t& algorithm, ProductDetail& detail) {
  auto attribute = [&](cublasLtMatmulAlgoConfigAttributes_t which, auto value) {
    size_t written = 0;
    cublasStatus_t status = lt_api().algorithm_get(&algorithm, which, &value, sizeof value, &written);
    return status == CUBLAS_STATUS_SUCCESS ? uint32_t(value) : 0u;
  };
  detail.algorithm = fmt::format("algorithm {}", attribute(CUBLASLT_ALGO_CONFIG_ID, int32_t(0)));
  auto add = [&](const char* name, const std::string& text) {
    if (!text.empty()) detail.algorithm += fmt::format(", {} {}", name, text);
  };
  add("stages", stages_of(attribute(CUBLASLT_ALGO_CONFIG_STAGES_ID, uint32_t(0))));
  add("cluster", cluster_of(attribute(CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, uint16_t(0))));
  auto splits = int32_t(attribute(CUBLASLT_ALGO_CONFIG_SPLITK_NUM, int32_t(0)));  // -1: the library's choice
  if (splits > 1) add("split-k", std::to_string(splits));
  uint32_t id = attribute(CUBLASLT_ALGO_CONFIG_TILE_ID, uint32_t(0));
  std::tie(detail.tile_n, detail.tile_m) = tile_of(id);  // its rows are our columns
  if (detail.tile_m)
    detail.tile = fmt::format("{}x{}", detail.tile_m, detail.tile_n);
  else if (id)
    add("tile", fmt::format("number {}", id));
}

void Product::describe(cublasLtHandle_t handle, const Algorithm& algorithm, ProductDetail& detail) const {
  describe_algorithm(algorithm, detail);
  cublasLtMatmulHeuristicResult_t result = {};
  if (lt_api().algorithm_check(handle, desc_, first_, second_, result_, result_, &algorithm, &result) ==
      CUBLAS_STATUS_SUCCESS)
    detail.requested_workspace = int64_t(result.workspaceSize);
}

void Product::bind(const void* bias, void* aux) {
  if (epilogue_.bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  if (epilogue_.aux) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux);
}

void Product::bind_scales(const void* a, const void* b) {
  set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, b);  // its first operand is our b
  set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, a);
}

void Product::run(cublasLtHandle_t handle, const Algorithm& algorithm, const void* a, const void* b, float beta,
                  const void* acc, void* c, void* workspace, cudaStream_t stream) const {
  float alpha = 1;
  check_lt(lt_api().matmul(handle, desc_, &alpha, b, first_, a, second_, &beta, acc, result_, c, result_, &algorithm,
                           workspace, cublaslt_workspace, stream),
           "run a product");
}

}  // namespace crest::cuda
#endif
