#include "backend/cuda/timing.h"

#include "core/error.h"

#if CREST_HAVE_CUDA
#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <memory>

#include "backend/cuda/kernel.h"
#include "core/timer.h"

namespace crest::cuda {

namespace {

constexpr double warm_up_ms = 40;
constexpr double sample_us = 300;  // a graph repeats its work until about this is reached: events resolve 0.5 us
constexpr int turns = 5;

class EventTimer {
 public:
  EventTimer() {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "creating a stream");
    check(cudaEventCreate(&start_), "creating an event");
    check(cudaEventCreate(&stop_), "creating an event");
  }
  ~EventTimer() {
    cudaEventDestroy(start_);
    cudaEventDestroy(stop_);
    cudaStreamDestroy(stream_);
  }
  EventTimer(const EventTimer&) = delete;
  EventTimer& operator=(const EventTimer&) = delete;

  cudaStream_t stream() const { return stream_; }
  void wait() { check(cudaStreamSynchronize(stream_), "timing algorithms"); }
  // Microseconds of the work put on the stream by `work`.
  template <class Work>
  double time(const Work& work) {
    check(cudaEventRecord(start_, stream_), "recording an event");
    work();
    check(cudaEventRecord(stop_, stream_), "recording an event");
    check(cudaEventSynchronize(stop_), "timing algorithms");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, start_, stop_), "timing algorithms");
    return double(ms) * 1e3;
  }

 private:
  cudaStream_t stream_ = nullptr;
  cudaEvent_t start_ = nullptr, stop_ = nullptr;
};

// `runs` runs of an alternative as one graph: the host's launch time does not show.
class Repeated {
 public:
  Repeated(const Alternative& alternative, int runs, cudaStream_t stream) : runs_(runs) {
    cudaGraph_t graph = nullptr;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "capturing");
    try {
      for (int i = 0; i < runs; ++i) alternative(stream);
    } catch (...) {
      cudaStreamEndCapture(stream, &graph);
      if (graph) cudaGraphDestroy(graph);
      throw;
    }
    check(cudaStreamEndCapture(stream, &graph), "capturing");
    cudaError_t made = cudaGraphInstantiate(&exec_, graph, 0);
    cudaGraphDestroy(graph);
    check(made, "instantiating a graph");
  }
  ~Repeated() { cudaGraphExecDestroy(exec_); }
  Repeated(const Repeated&) = delete;
  Repeated& operator=(const Repeated&) = delete;

  double time(EventTimer& timer) const {
    return timer.time([&] { check(cudaGraphLaunch(exec_, timer.stream()), "launching a graph"); }) / runs_;
  }

 private:
  int runs_;
  cudaGraphExec_t exec_ = nullptr;
};

double median(std::vector<double> x) {
  std::nth_element(x.begin(), x.begin() + std::ptrdiff_t(x.size() / 2), x.end());
  return x[x.size() / 2];
}

void warm_up(const Alternative& alternative, EventTimer& timer) {
  static std::atomic<bool> done = false;
  if (done.exchange(true)) return;
  for (Timer time; 1e3 * time.seconds() < warm_up_ms;) {
    for (int i = 0; i < 4; ++i) alternative(timer.stream());
    timer.wait();
  }
}

}  // namespace

std::vector<double> time_alternatives(const std::vector<Alternative>& alternatives) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  std::vector<double> us(alternatives.size(), infinity);
  check(cudaDeviceSynchronize(), "timing algorithms");
  EventTimer timer;
  double best = infinity;
  for (size_t i = 0; i < alternatives.size(); ++i) {
    auto run = [&] { alternatives[i](timer.stream()); };
    try {
      run();  // loads the code
    } catch (const Error&) {
      continue;  // not for these operands after all
    }
    timer.wait();
    warm_up(alternatives[i], timer);
    us[i] = timer.time(run);
    best = std::min(best, us[i]);
  }

  // Single runs of short work mostly measure the host's launches: then only far outliers are
  // dropped.
  auto drop = [&](std::vector<size_t>& list, double factor) {
    std::erase_if(list, [&](size_t i) {
      bool slow = us[i] > factor * best;
      if (slow) us[i] = infinity;
      return slow;
    });
  };
  std::vector<size_t> rest;
  for (size_t i = 0; i < us.size(); ++i)
    if (std::isfinite(us[i])) rest.push_back(i);
  drop(rest, best > 200 ? 1.2 : 2);

  std::vector<std::unique_ptr<Repeated>> graphs(us.size());
  std::vector<std::vector<double>> samples(us.size());
  std::erase_if(rest, [&](size_t i) {
    try {
      int runs = std::clamp(int(sample_us / std::max(us[i], 1.0)), 1, 64);
      graphs[i] = std::make_unique<Repeated>(alternatives[i], runs, timer.stream());
      graphs[i]->time(timer);  // the first launch uploads it
      return false;
    } catch (const Error&) {  // graphs are how it would run
      us[i] = infinity;
      return true;
    }
  });
  for (int turn = 0; turn < turns && rest.size() > 1; ++turn) {
    for (size_t i : rest) samples[i].push_back(graphs[i]->time(timer));
    best = infinity;
    for (size_t i : rest) best = std::min(best, us[i] = median(samples[i]));
    drop(rest, best > 2000 ? 1.03 : best > 200 ? 1.05 : 1.1);
  }
  return us;
}

}  // namespace crest::cuda
#else
namespace crest::cuda {

std::vector<double> time_alternatives(const std::vector<Alternative>&) {
  fail_internal("a build without CUDA was asked to time device code");
}

}  // namespace crest::cuda
#endif
