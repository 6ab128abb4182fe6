// Collectives between the ranks of a run. The operations of class communication call this; how ranks talk is the
// implementation's business (local: threads of one process; later files add Gloo and NCCL).
#pragma once
#include <cstdint>

#include "core/dtype.h"

namespace crest {

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Sum (or mean) over all ranks, in place; every rank gets the same bits. Blocks until done.
  virtual void all_reduce(void* data, DType dtype, int64_t n, bool mean) = 0;
  virtual void barrier() = 0;
};

}  // namespace crest
