// What a run takes where nobody chose: no more memory than it needs.
#include "train/run_fixture.h"

using namespace crest;
using namespace crest::test;

namespace {

class Defaults : public RunTest {
 protected:
  // A model whose cache for its whole context has 512 MiB, in an eighth of that.
  TrainOptions long_context() const {
    TrainOptions o = options();
    o.recipe = tiny_recipe(true);
    o.recipe.model.vocab = 257, o.recipe.model.context = 1 << 20, o.recipe.batch = 2;
    o.memory_limit = int64_t(64) << 20;
    return o;
  }
};

}  // namespace

TEST_F(Defaults, OnlySamplesThatAreAskedForTakeMemory) {
  TrainOptions o = long_context();
  const int64_t plain = run_training(o).held_bytes;
  o.out = folder / "sampled", o.sample_every = 2, o.sample_tokens = 5;
  EXPECT_LT(run_training(o).held_bytes, plain + 65536) << "a cache for 6 tokens";
  EXPECT_TRUE(contains(read_file(o.out + "/samples.txt", 1 << 20), "--- step 4\n"));
  o.out = "";
  EXPECT_NO_THROW(run_training(o)) << "samples are for the caller too";
}
