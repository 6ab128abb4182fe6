// Which samples were taken while the machine was slowed down: by power or temperature (GPU), by a lower clock, a
// used-up quota of the control group, or another virtual machine that had the CPU.
#pragma once
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "device/conditions.h"

namespace crest {

// What slowed the machine down since the last call; empty: nothing that it tells of.
using ThrottlePoll = std::function<std::set<std::string>()>;
ThrottlePoll throttle_poll(const Device& device);

// On the CPU, from two readings: "steal" (more than 2% of the time of all CPUs), "quota", "thermal". `cpus`: of the
// machine.
std::set<std::string> cpu_throttles(const CpuCounters& before, const CpuCounters& now, int cpus);

// Asks at most once an interval, as asking may take longer than a short sample. What an answer says holds for all
// samples since the one before.
class ThrottleWatch {
 public:
  explicit ThrottleWatch(ThrottlePoll poll, double interval_seconds = 0.02);
  // After every sample, outside of its time. Samples to be thrown away count, too.
  void sampled();
  // Of the last `count` samples, in order. Asks once more where the last ones have no answer yet.
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
