// Measures recipes with some of the changes between two compared recipes (compare/attribution.h).
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "bench/bench_options.h"
#include "compare/attribution.h"
#include "store/record.h"

namespace crest {

// A recipe setting that differs, as given: text of both sides, "" where it was not given.
struct GivenChange {
  std::string key, a, b;
};

// The settings that were given differently and affect time, in the order of the settings.
std::vector<GivenChange> changes_between(const RecipeOptions& a, const RecipeOptions& b);
// A's recipe with some of the changes of B's.
RecipeOptions with_changes(const RecipeOptions& a, const RecipeOptions& b, const std::vector<GivenChange>& changes,
                           ChangeSet set);

// The step time of a set relative to the step time of A, interleaved with A.
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
  std::string missing;  // why not all sets were measured
};
Json to_json(const MeasuredChanges& changes);
// Without changes where the document is not what to_json writes.
MeasuredChanges changes_from_json(const Json& json);

}  // namespace crest
