// The used functions of cuBLASLt, as its header
// declares them; the library is opened at run time.
#pragma once
#if CREST_HAVE_CUDA
#include <cublasLt.h>

namespace crest::cuda {

struct LtApi {
  decltype(&::cublasLtGetVersion) version;
  decltype(&::cublasLtGetStatusString) status;
  decltype(&::cublasLtCreate) create;
  decltype(&::cublasLtMatmul) matmul;
  decltype(&::cublasLtMatmulDescCreate) desc_create;
  decltype(&::cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&::cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&::cublasLtMatrixLayoutCreate) layout_create;
  decltype(&::cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&::cublasLtMatrixLayoutSetAttribute) layout_set;
  decltype(&::cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&::cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&::cublasLtMatmulPreferenceSetAttribute) preference_set;
  decltype(&::cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&::cublasLtMatmulAlgoCheck) algorithm_check;
  decltype(&::cublasLtMatmulAlgoConfigGetAttribute) algorithm_get;

  LtApi();
};

const LtApi& lt_api();
// Throws "cuBLASLt cannot WHAT: reason".
void check_lt(cublasStatus_t status, const char* what);

}  // namespace crest::cuda
#endif
