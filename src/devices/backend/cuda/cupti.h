// Records of the work a GPU ran, from CUPTI's activity
// interface: start and end of each kernel, copy and memset,
// and its graph node. Needs no root. One subscriber a process.
#pragma once
#if CREST_HAVE_CUDA
#include <cuda_runtime.h>

#include <vector>

#include "backend/cuda/work_map.h"

namespace crest::cuda {

class Cupti {
 public:
  // Opens the library and subscribes, once. Throws when it is not there or another profiler (nsys,
  // ncu) holds it.
  static Cupti& get();

  // Recording costs time on every launch; while it is off there is none but for graphs captured
  // while it was on.
  void record(bool on);
  // Work since the last call; the caller has waited
  // for the device. Throws if records were dropped.
  std::vector<WorkRecord> take();
  // The id of a captured graph's node in records,
  // once the graph is instantiated (the copy's id).
  uint64_t id_of(cudaGraphNode_t node) const;

 private:
  Cupti();
};

}  // namespace crest::cuda
#endif
