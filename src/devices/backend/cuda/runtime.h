// One GPU: memory, a CUDA stream per Stream, Programs replayed as CUDA graphs or launched kernel by
// kernel.
#pragma once
#include "backend/runtime.h"

namespace crest::cuda {

std::unique_ptr<Runtime> make_runtime(const Device& device, const MeshGroups* groups,
                                      const RuntimeOptions& options = {});

}  // namespace crest::cuda
