// The power of a device while samples are taken: from its energy counter (NVML; RAPL of a CPU, if
// readable), or without a counter from repeated readings of its power.
#pragma once
#include <functional>
#include <optional>

#include "backend/backend.h"

namespace crest {

struct EnergyReading {
  double seconds = 0;                   // steady clock
  std::optional<double> joules, watts;  // a counter that only grows; the power now
};
using EnergyPoll = std::function<EnergyReading()>;
EnergyPoll energy_poll(const Device& device);

struct Energy {
  double joules = 0, seconds = 0;
  // Mean power; absent below a second, as devices count energy some 10 to 50 times a second.
  std::optional<double> watts() const;
  static constexpr double least_seconds = 1;
};

// Reads at most once an interval. Counts from one change of the counter to another, since its value
// may be old.
class EnergyWatch {
 public:
  explicit EnergyWatch(EnergyPoll poll, double interval_seconds = 0.02);
  void begin();    // earlier values do not count
  void sampled();  // after every sample, outside of its time
  // Runs until a second is counted; not at all where there is nothing to read, and for 3 seconds at
  // most.
  void complete(const std::function<void()>& run);
  const Energy& energy() const { return energy_; }

 private:
  void read();
  EnergyPoll poll_;
  double interval_, asked_ = 0;
  std::optional<EnergyReading> last_;
  bool changed_ = false;  // the counter changed at last_
  Energy energy_;
};

}  // namespace crest
