// One matrix product of cuBLASLt: its descriptors,
// the library's algorithms for it, and running it.
#pragma once
#if CREST_HAVE_CUDA
#include <cublasLt.h>

#include <utility>
#include <vector>

#include "backend/cuda/blas_plan.h"
#include "backend/product_detail.h"

namespace crest::cuda {

// The library's state on a device: one per device and process, made on first use with this device
// current.
cublasLtHandle_t cublaslt_handle(int device);
size_t cublaslt_version();

// The product's own work on a b before it is stored.
struct Epilogue {
  bool bias = false;
  bool gelu = false;
  bool aux = false;  // gelu: its argument is stored too
};

// "algorithm 66, stages 64x4, cluster 2x1x1" and the tile, of any product.
void describe_algorithm(const cublasLtMatmulAlgo_t& algorithm, ProductDetail& detail);

// The library is column-major: a row-major matrix is its transpose there, and c = a b is c^T = b^T
// a^T. So its first operand is our b, its second our a, its rows are our n and its columns our m.
class Product {
 public:
  using Algorithm = cublasLtMatmulAlgo_t;

  Product(const Contraction& what, const BlasPlan& plan, Epilogue epilogue);
  ~Product();
  Product(Product&& other) noexcept;
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  // The library's candidates, its favorite first, none above the workspace, none with bits varying
  // from run to run; empty if there is none.
  std::vector<Algorithm> algorithms(cublasLtHandle_t handle, const BlasPlan& plan) const;
  // Whether an algorithm from an earlier run is usable.
  bool accepts(cublasLtHandle_t handle, const Algorithm& algorithm) const;

  // Its number, tile, stages, cluster, splits of k, and workspace.
  void describe(cublasLtHandle_t handle, const Algorithm& algorithm, ProductDetail& detail) const;

  // The addresses of the epilogue, for the
  // following runs; unused ones are ignored.
  void bind(const void* bias, void* aux);
  // The addresses of the factors of 8-bit operands, on the device.
  void bind_scales(const void* a, const void* b);
  // c = epilogue(a b + beta acc).
  void run(cublasLtHandle_t handle, const Algorithm& algorithm, const void* a, const void* b, float beta,
           const void* acc, void* c, void* workspace, cudaStream_t stream) const;

 private:
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, T value);

  Epilogue epilogue_;
  DType result_type_;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t first_ = nullptr, second_ = nullptr, result_ = nullptr;
};

}  // namespace crest::cuda
#endif
