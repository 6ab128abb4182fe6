#include "backend/cuda/cublaslt_api.h"

#if CREST_HAVE_CUDA
#include <fmt/format.h>

#include <type_traits>

#include "backend/cuda/cublaslt.h"
#include "core/error.h"

namespace crest::cuda {

LtApi::LtApi() {
  const Library& l = cublaslt_library();
  auto load = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbol(l, name));
  };
  load(version, "cublasLtGetVersion");
  load(status, "cublasLtGetStatusString");
  load(create, "cublasLtCreate");
  load(matmul, "cublasLtMatmul");
  load(desc_create, "cublasLtMatmulDescCreate");
  load(desc_destroy, "cublasLtMatmulDescDestroy");
  load(desc_set, "cublasLtMatmulDescSetAttribute");
  load(layout_create, "cublasLtMatrixLayoutCreate");
  load(layout_destroy, "cublasLtMatrixLayoutDestroy");
  load(layout_set, "cublasLtMatrixLayoutSetAttribute");
  load(preference_create, "cublasLtMatmulPreferenceCreate");
  load(preference_destroy, "cublasLtMatmulPreferenceDestroy");
  load(preference_set, "cublasLtMatmulPreferenceSetAttribute");
  load(heuristic, "cublasLtMatmulAlgoGetHeuristic");
  load(algorithm_check, "cublasLtMatmulAlgoCheck");
  load(algorithm_get, "cublasLtMatmulAlgoConfigGetAttribute");
}

const LtApi& lt_api() {
  static const LtApi functions;
  return functions;
}

void check_lt(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    fail(fmt::format("cuBLASLt cannot {}: {}", what, lt_api().status(status)), cublaslt_library().path);
}

}  // namespace crest::cuda
#endif
