// A failure in a rank's thread ends all of them.
#include <gtest/gtest.h>

#include <stdexcept>

#include "train/harness.h"

using namespace crest;

TEST(FailingRank, EndsTheOthersWithItsError) {
  Recipe r = tiny_recipe();
  r.data_parallel = 3;
  Engine engine = make_engine(r);
  uint64_t calls_per_rank = uint64_t(engine.validation_batch());
  SampleSource source = [&](uint64_t g, int32_t* x, int32_t* y, int32_t*) {
    if (g / calls_per_rank == 1) throw std::runtime_error("row of rank 1");
    synthetic(r, g, x, y);
  };
  try {
    engine.validate(2, source);
    FAIL() << "no error";
  } catch (const std::runtime_error& e) {
    EXPECT_STREQ(e.what(), "row of rank 1");
  }
}
