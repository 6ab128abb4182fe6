// Shared by the kernel files of the CUDA backend on the host side: launching, choosing a type,
// reasons to reject. A file holds device code on top, the host entry (launch) below it, the Kernel
// with its reject and workspace at the end; everything but the device code is compiled on machines
// without CUDA too.
#pragma once
#include <algorithm>
#include <string>
#include <utility>

#include "backend/backend.h"
#include "backend/cuda/launch.h"
#include "core/error.h"

namespace crest::cuda {

// Throws an Error naming the call unless `code` (a cudaError_t) is success.
void check(int code, const char* what);

// The launch of a Kernel. A build without CUDA plans for GPUs: it has reasons to reject and sizes
// of workspaces, and no device code; its tests run device code on the emulation.
#define CREST_HAS_DEVICE_CODE (CREST_HAVE_CUDA || CREST_EMULATION)
#if CREST_HAS_DEVICE_CODE
#define CREST_DEVICE_CODE(launch) launch
#else
#define CREST_DEVICE_CODE(launch) nullptr
#endif

inline LaunchOn launch_on(const KernelCall& call) { return {call.stream, call.overlap}; }

#if defined(__CUDACC__) || !CREST_HAVE_CUDA
// start_kernel() for an instruction.
template <class... P, class... A>
void launch(const KernelCall& call, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, A&&... args) {
#if defined(__CUDACC__)
  check(start_kernel(launch_on(call), kernel, grid, block, shared, std::forward<A>(args)...), call.instr_name());
#else
  uint64_t waits = emulator::waits(), threads = uint64_t(grid.x) * grid.y * grid.z * block.x * block.y * block.z;
  emulator::run(grid, block, shared, [&] { kernel(static_cast<P>(args)...); });
  if (emulator::waits() - waits != threads)
    fail_internal("a kernel does not wait for its predecessors, once in every thread", call.instr_name());
#endif
}
#endif

// Calls body(T()) with the storage type of a float dtype (f32, bf16, f16).
template <class Body>
auto with_type(DType t, Body&& body) {
  switch (t) {
    case DType::f32: return body(float());
    case DType::bf16: return body(bfloat16());
    case DType::f16: return body(float16());
    default: fail_internal("a CUDA kernel was given a dtype that it rejects");
  }
}

// Why a kernel cannot take these values; empty if it can. Every present input and output tensor of
// floats is contiguous f32, bf16 or f16.
std::string reject_unless_float(const KernelQuery& q);
// `v` is contiguous f32, bf16 or f16.
std::string reject_value(const Value& v);
// The same for kernels with row pitch (Value::pitch).
std::string reject_unless_float_rows(const KernelQuery& q);
std::string reject_rows(const Value& v);

// Whether n elements of each of these addresses can be read in vectors of 16 bytes.
inline bool aligned(std::initializer_list<const void*> pointers, size_t bytes = 16) {
  for (auto* p : pointers)
    if (reinterpret_cast<uintptr_t>(p) % bytes) return false;
  return true;
}

inline unsigned blocks_for(int64_t work, int64_t per_block) { return unsigned((work + per_block - 1) / per_block); }

}  // namespace crest::cuda
