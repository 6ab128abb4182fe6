// Collectives between GPUs. A Program has them only when several ranks run it.
#include "backend/backend.h"

namespace crest::cuda {

static std::string reject(const KernelQuery&) {
  return "several ranks on CUDA are not supported yet: use --data-parallel 1, or --device cpu";
}

Kernel all_reduce_kernel() { return {"all_reduce", "cuda.all_reduce", reject}; }

}  // namespace crest::cuda
