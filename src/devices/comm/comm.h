// Collectives between the ranks of a run, called by the operations of class communication.
// Implementations: local (threads of one process), gloo (processes on CPUs), nccl (processes on
// GPUs).
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/error.h"

namespace crest {

// Another rank keeps a collective from finishing. rank: -1 if unknown.
class PeerLost : public Error {
 public:
  PeerLost(int rank, std::string what, std::string where, std::string advice = {});
  int rank() const { return rank_; }

 private:
  int rank_;
};

// All ranks call the same functions in the same order. Floating dtypes. Data is in host memory
// (local, gloo) or on the rank's device (nccl). Host implementations return when the result is
// ready. On a device, calls are ordered on the stream of set_stream(), and synchronize() waits for
// it. Throws PeerLost if another rank is gone, fails, or does not take part in time.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // On a device: the stream (a cudaStream_t) for later calls. Null, the initial value, is the
  // default stream. No effect on the host.
  virtual void set_stream(void* stream) { (void)stream; }
  // Whether a graph can capture a call's work and repeat it without the host.
  virtual bool capturable() const { return true; }
  // Sum (or mean) over all ranks, in place. The result is bitwise identical on every rank.
  virtual void all_reduce(void* data, DType dtype, int64_t n, bool mean) = 0;
  // Gathers n elements from each rank, in rank order, on every rank. out has n * size() elements.
  virtual void all_gather(const void* in, void* out, DType dtype, int64_t n) = 0;
  // Sums `in` (n * size() elements) over all ranks. Rank r receives elements r n .. (r + 1) n. `in`
  // is undefined afterwards.
  virtual void reduce_scatter(void* in, void* out, DType dtype, int64_t n) = 0;
  // Sends n elements of rank `root` to all, in place.
  virtual void broadcast(void* data, DType dtype, int64_t n, int root) = 0;
  // Sends `bytes` to rank `to` while receiving as many from rank `from`. Both may be this rank.
  virtual void send_receive(const void* out, int to, void* in, int from, int64_t bytes) = 0;
  // Sends n elements to each rank and receives as many from each: part r of `in` goes to rank r,
  // and part r of `out` is from rank r.
  virtual void all_to_all(const void* in, void* out, DType dtype, int64_t n);
  // Between ranks that have allocated alike: copies what rank `from` has at `place`, an address of
  // this rank's memory. A device copies without its multiprocessors. False, on all ranks, and
  // nothing was done: they cannot.
  virtual bool pull(const void* place, void* in, int from, int64_t bytes) {
    (void)place, (void)in, (void)from, (void)bytes;
    return false;
  }
  // A barrier for pull(), in two parts: this rank's stream tells the others that its work so far
  // has ended, and later goes on when all of them have told the same. flag: program/barriers.h.
  // Nothing for no_barrier, or where ranks cannot pull.
  virtual void arrive_at(int flag) { (void)flag; }
  virtual void wait_at(int flag) { (void)flag; }
  // Before device memory is freed: others may have mapped it. wait: on all ranks together, until
  // none has it mapped; a rank that fails does not wait.
  virtual void released(const void* allocation, bool wait) { (void)allocation, (void)wait; }
  // Sends `bytes` to rank `to`. That rank calls receive() for them: send number n belongs to
  // receive number n. Each may wait for the other, so all ranks follow one order (plan/schedule.h).
  virtual void send(const void* data, int64_t bytes, int to);
  virtual void receive(void* data, int64_t bytes, int from);
  // Returns after all ranks have called it.
  virtual void barrier() = 0;
  // A communicator of some of these ranks. All ranks call it together, each with its own group.
  // members: numbers of ranks here, in the order of their numbers there. This object must outlive
  // the result.
  virtual std::unique_ptr<Communicator> split(const std::vector<int>& members);
  // This rank has failed. Between threads, the calls of others then throw PeerLost instead of
  // waiting; processes find out by Control. No more calls may follow: work on a device may never
  // end, and nobody waits for it.
  virtual void leave() {}
  // A rank is lost. Waiting calls throw this now, not when connections break, and so does check().
  // Any thread may call it.
  virtual void interrupt(const PeerLost& lost) { (void)lost; }
  virtual void synchronize() {}
  // For code busy with a device, or waiting for it: throws PeerLost if another rank is gone or NCCL
  // reports an error. Does not wait. Any thread may call it on a host implementation.
  virtual void check() {}
  // Bytes of device memory in the library's use.
  virtual int64_t device_bytes() const { return 0; }
};

}  // namespace crest
