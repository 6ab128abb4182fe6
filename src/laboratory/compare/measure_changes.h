// Measures recipes with some of the changes between two compared recipes (compare/attribution.h).
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "bench/bench_options.h"
#include "compare/attribution.h"
#include "store/record.h"

namespace crest {

// A differing recipe setting: the given text of both sides, "" if not given.
struct GivenChange {
  std::string key, a, b;
};

// Settings given differently and with a possible effect on time, in declared order.
std::vector<GivenChange> changes_between(const RecipeOptions& a, const RecipeOptions& b);
// A's recipe with some of B's changes.
RecipeOptions with_changes(const RecipeOptions& a, const RecipeOptions& b, const std::vector<GivenChange>& changes,
                           ChangeSet set);

// Step time of a set / step time of A, measured interleaved.
struct SetRatio {
  ChangeSet set = 0;
  double ratio = 1, error = 0;  // half a 95% interval
  int64_t tokens = 0;           // of a step
};

// Document "changes" of the record of B.
struct MeasuredChanges {
  std::string other;  // uid of A's record
  std::vector<GivenChange> changes;
  std::vector<SetRatio> sets;
  std::string missing;  // why some sets were not measured
};
Json to_json(const MeasuredChanges& changes);
// Has no changes if to_json did not write the document.
MeasuredChanges changes_from_json(const Json& json);

}  // namespace crest
