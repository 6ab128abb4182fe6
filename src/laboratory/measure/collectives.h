// Measures collectives of one communicator.
#pragma once
#include <functional>

#include "backend/runtime.h"
#include "comm/collective.h"
#include "stats/samples.h"

namespace crest {

struct CollectiveTime {
  int64_t bytes = 0;  // of the whole buffer
  int64_t calls = 1;  // calls per sample, sequential
  Samples seconds;    // per call, of the slowest rank
  double algorithm_bandwidth() const { return double(bytes) / seconds.median(); }
};

// Buffers for sizes up to a maximum, in the runtime's memory. All ranks call every function.
class CollectiveMeasure {
 public:
  CollectiveMeasure(Communicator& comm, Runtime& runtime, Collective collective, DType dtype, int64_t largest_bytes);
  ~CollectiveMeasure();
  CollectiveMeasure(const CollectiveMeasure&) = delete;

  // Measures, then checks the values. A wrong value throws an Error with rank, position and both
  // values. between: called between samples (a stop request throws there).
  CollectiveTime run(int64_t bytes, const StoppingRule& rule, const std::function<void()>& between = {});
  // Runs the collective once on known data and checks every value of every rank.
  void check(int64_t bytes);
  // Seconds of the very first call.
  double first_call(int64_t bytes);

 private:
  void call(int64_t elements);
  void prepare(int64_t elements);
  double timed(int64_t elements, int64_t calls);

  Communicator& comm_;
  Runtime& runtime_;
  Collective collective_;
  DType dtype_;
  int64_t whole_bytes_, part_bytes_;
  void* whole_;           // the full buffer, of the given size
  void* part_ = nullptr;  // the second buffer, if the collective has one: a rank's part, or another whole
};

// Every rank's value, by rank.
std::vector<double> gather_values(Communicator& comm, Runtime& runtime, double value);
// Bytes per second that every rank sends to the next while it receives as many: the capacity of a
// ring.
double measure_link(Communicator& comm, Runtime& runtime, int64_t bytes);

}  // namespace crest
