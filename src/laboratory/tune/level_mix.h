// Estimates from plans of whole levels of recompute where a mix of levels would bring most.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plan/recompute_budget.h"
#include "tune/combinations.h"

namespace crest {

// Steps have equal tokens, so their times compare.
class LevelMix {
 public:
  // A planned step with one level in all layers. settings: everything besides the batch and the
  // level.
  void add(size_t settings, int64_t batch, const std::string& level, int64_t bytes, double ms);

  struct Promise {
    size_t settings;
    int64_t batch;
    double ms;  // estimated time of the best mix of two levels
  };
  // The batches for which a mix promises less time than each of the fitting levels, fastest first.
  std::vector<Promise> promises(int64_t limit) const;
  // The least time of all steps, also of those that do not fit.
  double fastest() const;

 private:
  struct Cost {
    int64_t bytes;
    double ms;
  };
  using Levels = std::map<std::string, Cost>;
  static Levels at(const std::map<int64_t, Levels>& batches, int64_t batch);

  std::map<size_t, std::map<int64_t, Levels>> planned_;  // by settings and batch
};

// The combination with the fastest recompute of each layer that fits `limit` bytes of a rank, and
// the values of plan/memory_choices.h with it. None if nothing fits, or settings conflict.
// combination: its recipe has the batch.
std::optional<TuneCombination> mixed(const TuneCombination& combination, const Device& device, int64_t limit,
                                     const StepTimer& timer);

}  // namespace crest
