#include "measure/collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "comm/pattern.h"
#include "core/text.h"

namespace crest {

namespace {

constexpr double sample_seconds = 2e-3;  // shorter calls are repeated, since ranks leave a barrier microseconds apart
constexpr int64_t most_calls = 200;
constexpr int64_t chunk_elements = 1 << 18;  // per copy between host and device

struct DeviceBuffer {
  DeviceBuffer(Runtime& runtime, int64_t n) : runtime_(runtime), bytes(n), data(runtime.allocate(n)) {}
  ~DeviceBuffer() { runtime_.release(data, bytes); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  Runtime& runtime_;
  int64_t bytes;
  void* data;
};

}  // namespace

std::vector<double> gather_values(Communicator& comm, Runtime& runtime, double value) {
  int64_t bytes = int64_t(sizeof value);
  DeviceBuffer own(runtime, bytes), all(runtime, bytes * comm.size());
  runtime.write(own.data, &value, bytes);
  runtime.synchronize();
  comm.all_gather(own.data, all.data, DType::f64, 1);
  comm.synchronize();
  std::vector<double> values(size_t(comm.size()));
  runtime.read(values.data(), all.data, all.bytes);
  return values;
}

double measure_link(Communicator& comm, Runtime& runtime, int64_t bytes) {
  int n = comm.size(), next = (comm.rank() + 1) % n, previous = (comm.rank() + n - 1) % n;
  DeviceBuffer out(runtime, bytes), in(runtime, bytes);
  runtime.synchronize();
  Samples seconds;
  for (int i = 0; i < 12; ++i) {
    comm.barrier();
    double own = time_once([&] {
      comm.send_receive(out.data, next, in.data, previous, bytes);
      comm.synchronize();
    });
    auto all = gather_values(comm, runtime, own);
    if (i >= 2) seconds.add(*std::max_element(all.begin(), all.end()));
  }
  return double(bytes) / seconds.median();
}

CollectiveMeasure::CollectiveMeasure(Communicator& comm, Runtime& runtime, Collective collective, DType dtype,
                                     int64_t largest_bytes)
    : comm_(comm), runtime_(runtime), collective_(collective), dtype_(dtype) {
  int64_t elements = elements_for(collective, comm.size(), dtype, largest_bytes);
  whole_bytes_ = elements * int64_t(size_of(dtype));
  part_bytes_ = buffer_bytes(collective, comm.size(), dtype, elements) - whole_bytes_;
  whole_ = runtime_.allocate(whole_bytes_);
  if (part_bytes_ > 0) part_ = runtime_.allocate(part_bytes_);
}

CollectiveMeasure::~CollectiveMeasure() {
  runtime_.release(whole_, whole_bytes_);
  if (part_) runtime_.release(part_, part_bytes_);
}

void CollectiveMeasure::call(int64_t elements) {
  switch (collective_) {
    case Collective::all_reduce: return comm_.all_reduce(whole_, dtype_, elements, false);
    case Collective::all_gather: return comm_.all_gather(part_, whole_, dtype_, elements / comm_.size());
    case Collective::reduce_scatter: return comm_.reduce_scatter(whole_, part_, dtype_, elements / comm_.size());
    case Collective::broadcast: return comm_.broadcast(whole_, dtype_, elements, 0);
    case Collective::all_to_all: return comm_.all_to_all(whole_, part_, dtype_, elements / comm_.size());
    case Collective::send_receive: {
      const int n = comm_.size(), next = (comm_.rank() + 1) % n, previous = (comm_.rank() + n - 1) % n;
      return comm_.send_receive(whole_, next, part_, previous, elements * int64_t(size_of(dtype_)));
    }
  }
}

// Zeros, because other values would grow with every sum to infinity.
void CollectiveMeasure::prepare(int64_t elements) {
  runtime_.zero(whole_, elements * int64_t(size_of(dtype_)));
  if (part_) runtime_.zero(part_, part_bytes_);
  runtime_.synchronize();
}

double CollectiveMeasure::timed(int64_t elements, int64_t calls) {
  comm_.barrier();
  double own = time_once([&] {
    for (int64_t i = 0; i < calls; ++i) call(elements);
    comm_.synchronize();
  });
  // All ranks know all times, so they stop together.
  auto all = gather_values(comm_, runtime_, own);
  return *std::max_element(all.begin(), all.end()) / double(calls);
}

double CollectiveMeasure::first_call(int64_t bytes) {
  return timed(elements_for(collective_, comm_.size(), dtype_, bytes), 1);
}

CollectiveTime CollectiveMeasure::run(int64_t bytes, const StoppingRule& rule, const std::function<void()>& between) {
  int64_t elements = elements_for(collective_, comm_.size(), dtype_, bytes);
  CollectiveTime t;
  t.bytes = elements * int64_t(size_of(dtype_));
  prepare(elements);
  double once = INFINITY;
  double spent = 0;  // the same on all ranks
  for (int i = 0; i < std::max(1, rule.warmup) && (i == 0 || spent <= rule.max_seconds / 4); ++i) {
    const double seconds = timed(elements, 1);
    once = std::min(once, seconds), spent += seconds;
  }
  t.calls = std::clamp(int64_t(sample_seconds / once), int64_t(1), most_calls);
  while (!rule.done(t.seconds, spent)) {
    if (between) between();
    t.seconds.add(timed(elements, t.calls));
    spent += t.seconds.values().back() * double(t.calls);
  }
  check(bytes);
  return t;
}

void CollectiveMeasure::check(int64_t bytes) {
  int rank = comm_.rank(), ranks = comm_.size();
  int64_t elements = elements_for(collective_, ranks, dtype_, bytes), size = int64_t(size_of(dtype_));
  bool gather = collective_ == Collective::all_gather;
  int64_t given = gather ? elements / ranks : elements;
  std::vector<char> host(size_t(chunk_elements * size));
  prepare(elements);
  for (int64_t i = 0; i < given; i += chunk_elements) {
    int64_t n = std::min(chunk_elements, given - i);
    fill_pattern(host.data(), dtype_, n, rank, i);
    runtime_.write(static_cast<char*>(gather ? part_ : whole_) + i * size, host.data(), n * size);
  }
  runtime_.synchronize();
  call(elements);
  comm_.synchronize();
  ExpectedResult expected(collective_, rank, ranks, elements);
  const char* result = static_cast<const char*>(part_ && !gather ? part_ : whole_);
  int64_t wrong = -1;
  double found = 0;
  for (int64_t i = 0; i < expected.count() && wrong < 0; i += chunk_elements) {
    int64_t n = std::min(chunk_elements, expected.count() - i);
    runtime_.read(host.data(), result + i * size, n * size);
    for (int64_t j = 0; j < n && wrong < 0; ++j)
      if (found = load_element(host.data(), dtype_, j); found != expected.at(i + j)) wrong = i + j;
  }
  // All ranks report the same error, whichever rank has the wrong value.
  auto places = gather_values(comm_, runtime_, double(wrong)), values = gather_values(comm_, runtime_, found);
  for (int r = 0; r < ranks; ++r) {
    if (places[size_t(r)] < 0) continue;
    auto place = int64_t(places[size_t(r)]);
    fail(fmt::format("{} of {} gave a wrong value: element {} of rank {} is {}, must be {}", name(collective_),
                     format_bytes(double(elements * size)), place, r, values[size_t(r)],
                     ExpectedResult(collective_, r, ranks, elements).at(place)),
         fmt::format("{} ranks", ranks), "The library, the network or the memory is broken.");
  }
}

}  // namespace crest
