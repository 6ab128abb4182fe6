// cuBLASLt: the kernels of every contraction that its layouts can express (blas_plan.h). The
// library is opened at run time (loader.h).
#pragma once
#include "backend/cuda/contraction.h"
#include "backend/cuda/loader.h"

namespace crest::cuda {

// The version that this build was made for, else another one that it knows; without either,
// Library::problem says so.
const Library& cublaslt_library();

// Workspace of every contraction: algorithms that need more are not asked for.
inline constexpr size_t cublaslt_workspace = size_t(32) << 20;

// Parts of a Kernel, for every contraction. Where the library has no algorithm for a product,
// prepare() chooses our tiled kernel.
std::string reject_cublaslt(const KernelQuery& query);
std::string reject_cublaslt_fp8(const KernelQuery& query);  // of linear_fp8
size_t workspace_cublaslt(const KernelQuery& query);
std::shared_ptr<void> prepare_cublaslt(const KernelQuery& query);
// The same with one more alternative that timing may choose: Crest's own GEMM (gemm_sm90_entry.h).
// Where nothing is timed, it runs for operands with odd rows (BlasPlan), else cuBLASLt.
std::shared_ptr<void> prepare_cublaslt_or_sm90(const KernelQuery& query);
void launch_cublaslt(const KernelCall& call);
void tune_cublaslt(const KernelCall& call);

}  // namespace crest::cuda
