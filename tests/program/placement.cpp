// The parts of a dimension on each rank.
#include "program/placement.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"

using namespace crest;

TEST(Placement, ChunksAreTheFirstAndTheLastOfWhatIsLeft) {
  const Placement chunks = Placement::chunks(1, 3);
  EXPECT_EQ(text(chunks), "chunks(1,3)");
  using Ranges = std::vector<DimRange>;
  EXPECT_EQ(ranges_of(chunks, 12, 0, 2), (Ranges{{0, 3}, {9, 12}}));
  EXPECT_EQ(ranges_of(chunks, 12, 1, 2), (Ranges{{3, 6}, {6, 9}}));
  // Two sequences one after the other.
  EXPECT_EQ(ranges_of(chunks, 24, 0, 2), (Ranges{{0, 3}, {9, 12}, {12, 15}, {21, 24}}));
  EXPECT_THROW(ranges_of(chunks, 18, 0, 2), Error);
}

// A query sees the keys up to its own: all ranks have as many pairs.
TEST(Placement, ChunksAreEqualWork) {
  for (int ranks : {2, 3, 8}) {
    const int64_t tokens = 10;
    std::vector<int64_t> pairs;
    for (int r = 0; r < ranks; ++r) {
      int64_t sum = 0;
      for (const DimRange& range : ranges_of(Placement::chunks(0, tokens), 2 * tokens * ranks, r, ranks))
        for (int64_t query = range.begin; query < range.end; ++query) sum += query + 1;
      pairs.push_back(sum);
    }
    EXPECT_EQ(std::count(pairs.begin(), pairs.end(), pairs[0]), ranks);
  }
}
