#include "lab/kinds.h"

#include <cstddef>

namespace crest::lab {

const std::vector<KindInfo>& kinds() {
  static const std::vector<KindInfo> table = {
      {Kind::arithmetic, "arithmetic", "none: quantities alone", false},
      {Kind::plan, "plan", "a recipe, planned and not run"},
      {Kind::bench, "bench", "a recipe, timed", true, true, false, false, true},
      {Kind::profile, "profile", "a recipe, timed instruction by instruction", true, true, true},
      {Kind::gemm, "gemm", "a matrix product", true, true, false, false, true},
      {Kind::train, "train", "a recipe, trained on text", true, true, false, true},
      {Kind::comm, "comm", "a collective between ranks", true, true},
  };
  return table;
}

const KindInfo& info(Kind kind) { return kinds()[std::size_t(kind)]; }

}  // namespace crest::lab
