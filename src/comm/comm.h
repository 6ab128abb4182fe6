// Collectives between the ranks of a run. The operations of class communication call this; how ranks talk is the
// implementation's business: local (threads of one process), gloo (processes on CPUs), nccl (processes on GPUs).
#pragma once
#include <cstdint>
#include <string>

#include "core/dtype.h"
#include "core/error.h"

namespace crest {

// A collective could not end because of another rank. rank: -1 when it is not known which.
class PeerLost : public Error {
 public:
  PeerLost(int rank, std::string what, std::string where, std::string advice = {});
  int rank() const { return rank_; }

 private:
  int rank_;
};

// All ranks call the same functions in the same order. Floating dtypes. Data lies where the implementation works: host
// memory (local, gloo) or the rank's device (nccl). Host implementations return when the result is there; on a device
// calls are ordered on a stream, and synchronize() waits for them. Throws PeerLost when another rank is gone, fails, or
// does not take part in time.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Sum (or mean) over all ranks, in place; every rank gets the same bits.
  virtual void all_reduce(void* data, DType dtype, int64_t n, bool mean) = 0;
  // n elements of each rank, in rank order, to every rank: out holds n * size().
  virtual void all_gather(const void* in, void* out, DType dtype, int64_t n) = 0;
  // Sums `in` (n * size() elements) over all ranks; rank r gets elements r n .. (r + 1) n. What `in` holds afterwards
  // is not defined.
  virtual void reduce_scatter(void* in, void* out, DType dtype, int64_t n) = 0;
  // n elements of rank `root` to all, in place.
  virtual void broadcast(void* data, DType dtype, int64_t n, int root) = 0;
  // Sends `bytes` to rank `to` while as many come from rank `from`.
  virtual void send_receive(const void* out, int to, void* in, int from, int64_t bytes) = 0;
  // Returns once all ranks have called it.
  virtual void barrier() = 0;
  virtual void synchronize() {}
};

}  // namespace crest
