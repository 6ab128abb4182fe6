// cuBLASLt's description of a product's algorithm.
#pragma once
#include "backend/product_detail.h"

namespace crest::cuda {

// prepared: of prepare_cublaslt or prepare_cublaslt_or_sm90, after tune_cublaslt.
void describe_cublaslt(const void* prepared, ProductDetail& detail);

}  // namespace crest::cuda
