// cuBLASLt: kernels of every contraction its layouts can express (blas_plan.h). The library is
// opened at run time (loader.h).
#pragma once
#include <functional>

#include "backend/cuda/blas_plan.h"
#include "backend/cuda/contraction.h"
#include "backend/cuda/loader.h"

namespace crest::cuda {

// The version this build was made for, else another known one; without either, Library::problem
// says so.
const Library& cublaslt_library();

// Workspace of every contraction: algorithms with larger needs are not requested.
inline constexpr size_t cublaslt_workspace = size_t(32) << 20;

// Why the library cannot be used on a device; empty if it can.
std::string reject_without_cublaslt(const Device& device);

// Parts of a Kernel, for every contraction. Where the library has no algorithm for a product,
// prepare() chooses our tiled kernel.
std::string reject_cublaslt(const KernelQuery& query);
// For linear_fp8. With scales of blocks and a
// present device, asks the library for an algorithm.
std::string reject_cublaslt_fp8(const KernelQuery& query);
std::string reject_cublaslt_fp8_fast(const KernelQuery& query);
size_t workspace_cublaslt(const KernelQuery& query);
std::shared_ptr<void> prepare_cublaslt(const KernelQuery& query);
// The same with one more alternative for timing: Crest's own GEMM (gemm_sm90_entry.h). Without
// timing, it runs for operands with odd rows (BlasPlan), else cuBLASLt.
std::shared_ptr<void> prepare_cublaslt_or_sm90(const KernelQuery& query);
// For a contraction other than the instruction's: its calls have other operands.
std::shared_ptr<void> prepare_cublaslt(const Contraction& what, const BlasPlan& plan);
void launch_cublaslt(const KernelCall& call);
void tune_cublaslt(const KernelCall& call);
// fill: writes numbers to time with into the operands, on the call's stream.
void tune_cublaslt(const KernelCall& call, const std::function<void()>& fill);
void fill_product_operands(const KernelCall& call);  // of the instruction

}  // namespace crest::cuda
