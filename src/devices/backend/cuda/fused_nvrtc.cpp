// Fused bodies as dedicated kernels, compiled at run time (fused_source.h).
#include <map>
#include <mutex>

#include "backend/cuda/fused_body.h"
#include "backend/cuda/fused_source.h"
#include "backend/cuda/kernel.h"
#include "backend/cuda/nvrtc.h"
#include "core/error.h"

namespace crest::cuda {

namespace {

std::string reject(const KernelQuery& q) {
  if (std::string why = reject_unless_float(q); !why.empty()) return why;
  std::string why;
  flatten_body(q.instr, why);
  if (why.empty() && !q.device.nvrtc) why = "needs NVRTC (libnvrtc), which compiles kernels at run time";
  return why;
}

size_t workspace(const KernelQuery& q) {
  std::string why;
  FusedBody body = flatten_body(q.instr, why);
  return partial_bytes(body, vector_width(body), q.device);
}

#if CREST_HAVE_CUDA

struct Functions {
  cudaKernel_t vector = nullptr, scalar = nullptr;
};

// Compiled and loaded once per process; instructions with the same body share it. Code stays loaded
// to the end.
Functions functions_of(const std::string& source, bool has_vector, int sm) {
  static std::mutex mutex;
  static std::map<std::pair<int, std::string>, Functions> loaded;
  std::lock_guard lock(mutex);
  auto [it, added] = loaded.try_emplace({sm, source});
  Functions& f = it->second;
  if (added) {
    try {
      std::string image = compile_cached(source, sm);
      cudaLibrary_t code = nullptr;
      check(cudaLibraryLoadData(&code, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0), "a compiled kernel");
      check(cudaLibraryGetKernel(&f.scalar, code, fused_scalar_kernel), fused_scalar_kernel);
      if (has_vector) check(cudaLibraryGetKernel(&f.vector, code, fused_vector_kernel), fused_vector_kernel);
    } catch (...) {
      loaded.erase(it);
      throw;
    }
  }
  // Code reaches a device at its first use there,
  // and this must not be a captured launch.
  cudaFuncAttributes ignored;
  for (cudaKernel_t k : {f.vector, f.scalar})
    if (k) check(cudaFuncGetAttributes(&ignored, reinterpret_cast<const void*>(k)), "a compiled kernel");
  return f;
}

struct Prepared {
  FusedBody body;
  Functions functions;
  Device device;
};

std::shared_ptr<void> prepare(const KernelQuery& q) {
  auto p = std::make_shared<Prepared>();
  std::string why;
  p->body = flatten_body(q.instr, why);
  p->device = q.device;
  p->functions = functions_of(fused_source(p->body).text(), vector_width(p->body) > 1, q.device.sm);
  return p;
}

void launch(const KernelCall& c) {
  const Prepared& p = *static_cast<const Prepared*>(c.prepared);
  FusedLaunch l = fused_launch(c, p.body, p.device);
  cudaKernel_t kernel = l.vector ? p.functions.vector : p.functions.scalar;
  auto arguments = l.arguments();
  auto* address = reinterpret_cast<const void*>(kernel);
  cudaLaunchAttribute attribute;
  cudaLaunchConfig_t config =
      launch_config(launch_on(c), address, dim3(l.grid[0], l.grid[1]), dim3(l.block[0], l.block[1]), 0, &attribute);
  check(cudaLaunchKernelExC(&config, address, arguments.data()), c.instr_name());
  for (size_t i = 0; i < p.body.sums.size(); ++i)
    reduce_partials(c, p.body.sums[i], l.partials + int64_t(i) * l.grid[1] * p.body.columns, l.grid[1], p.body.columns);
}

#else

std::shared_ptr<void> prepare(const KernelQuery&) { fail_internal("this build of Crest has no CUDA"); }
void launch(const KernelCall&) { fail_internal("this build of Crest has no CUDA"); }

#endif

}  // namespace

Kernel fused_nvrtc_kernel() { return {"fused", "cuda.fused.nvrtc", reject, workspace, prepare, launch}; }

}  // namespace crest::cuda
