// Detects samples taken while the machine was slowed down: by power or temperature (GPU), a lower
// clock, a used-up control group quota, or another virtual machine on the CPU.
#pragma once
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "device/conditions.h"

namespace crest {

// The reasons for a slower machine since the last call; empty: none reported.
using ThrottlePoll = std::function<std::set<std::string>()>;
ThrottlePoll throttle_poll(const Device& device);

// CPU, from two readings: "steal" (more than 2% of the time of all CPUs), "quota", "thermal".
// `cpus`: number of CPUs of the machine.
std::set<std::string> cpu_throttles(const CpuCounters& before, const CpuCounters& now, int cpus);

// Asks at most once per interval, because asking may take longer than a short sample. An answer
// applies to all samples since the previous one.
class ThrottleWatch {
 public:
  explicit ThrottleWatch(ThrottlePoll poll, double interval_seconds = 0.02);
  // Call it after every sample, outside its timing. Discarded samples count too.
  void sampled();
  // The marks of the last `count` samples, in order. Asks once more if the last ones have no answer
  // yet.
  std::vector<bool> last(size_t count);
  const std::set<std::string>& reasons() const { return reasons_; }  // of all samples

 private:
  void ask();
  ThrottlePoll poll_;
  double interval_, asked_;
  size_t open_ = 0;  // samples without an answer
  std::vector<bool> marks_;
  std::set<std::string> reasons_;
};

}  // namespace crest
