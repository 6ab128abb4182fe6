// A run's defaults: no more memory than it needs.
#include <algorithm>
#include <numeric>

#include "model/config_files.h"
#include "train/defaults_of_first.h"
#include "train/run_fixture.h"
#include "train/trainer.h"

using namespace crest;
using namespace crest::test;

namespace {

class Defaults : public RunTest {
 protected:
  // A cache for this model's whole context takes 512 MiB. Training fits in an eighth of it.
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

// A sequence too long for memory is no fault of the data.
TEST_F(Defaults, MemoryIsCheckedBeforeTheLengthOfTheData) {
  TrainOptions o = long_context();
  o.recipe.seq = 1 << 16;
  EXPECT_TRUE(contains(error_of([&] { run_training(o); }), "the plan needs"));
}

// A run stores its defaults and continues with them on any machine.
TEST_F(Defaults, AreKeptByARunThatIsContinued) {
  write_file_atomic(folder / "tiny.toml", to_toml(long_context().recipe.model));
  TrainRequest request = new_run({{"model", folder / "tiny.toml"},
                                  {"vocab", "257"},
                                  {"data", folder / "data"},
                                  {"steps", "2"},
                                  {"batch", "1"},
                                  {"val-every", "0"},
                                  {"precision", "fp32"},
                                  {"device", "cpu"},
                                  {"threads", "1"},
                                  {"memory-limit", "4MiB"}});
  request.train.out = folder / "run";
  std::string said;
  request.print = [&](const std::string& line) { said += line; };
  train(request);
  auto seq = [&] { return read_run_config(folder / "run", {}, {}, {}); };
  const FlagLayer before = seq();
  TrainRequest more = continued_run(folder / "run", {{"steps", "3"}, {"memory-limit", "1GiB"}});
  more.train.quiet = true;
  train(more);
  EXPECT_EQ(values_in(seq(), "--seq"), values_in(before, "--seq"));
  EXPECT_TRUE(contains(said, "sequences of " + values_in(before, "--seq").at(0) + " tokens")) << said;
}

TEST(DefaultsOfRanks, AreThoseOfRank0) {
  Recipe first = tiny_recipe(), own = tiny_recipe();
  first.seq = 9, first.precision = "bf16", first.recompute = "full";
  const std::string told = chosen_defaults(first);
  own.seq = 5, own.precision = "fp32", own.recompute = "none";
  Recipe given = take_defaults(own, told);
  EXPECT_TRUE(given.seq == 5 && given.precision == "fp32" && given.recompute == "none")
      << "ranks compare what was given";
  own.seq = 0, own.precision = "auto", own.recompute = "budget=1GiB";
  Recipe taken = take_defaults(own, told);
  EXPECT_TRUE(taken.seq == 9 && taken.precision == "bf16" && taken.recompute == "full");
}

// The text is licenses, found in every Debian, read as bytes. With the learning rate of larger
// steps, the mean loss of five steps would rise by 2.
TEST_F(Defaults, StepsOfFewTokensTrainWithoutSpikes) {
  PrepareOptions p;
  for (const char* name : {"GPL-2", "GPL-3", "Apache-2.0", "LGPL-2.1", "Artistic"})
    p.inputs.push_back(fmt::format("/usr/share/common-licenses/{}", name));
  for (auto& input : p.inputs)
    if (!std::filesystem::exists(input)) GTEST_SKIP() << input << " is missing";
  p.out = folder / "licenses", p.tokenizer = "bytes";
  prepare(p);
  TrainOptions o = options();
  o.recipe.model = load_model_config("nano"), o.recipe.model.vocab = 257;
  o.recipe.seq = 64, o.recipe.precision = "fp32";
  o.data = {p.out}, o.out = "", o.lr = 0, o.steps = 60, o.seed = 2, o.val_every = 20, o.val_batches = 16;
  std::vector<double> losses, means, validation;
  o.on_validation = [&](const ValidationRow& row) { validation.push_back(row.val_loss); };
  o.on_step = [&](const StepRow& row) { losses.push_back(row.loss); };
  run_training(o);
  ASSERT_EQ(losses.size(), 60u);
  for (size_t i = 12; i + 5 <= losses.size(); ++i)  // after the warm-up
    means.push_back(std::accumulate(losses.begin() + int64_t(i), losses.begin() + int64_t(i) + 5, 0.0) / 5);
  double best = means[0], rise = 0;
  for (double mean : means) rise = std::max(rise, mean - best), best = std::min(best, mean);
  EXPECT_LT(rise, 0.6);
  EXPECT_LT(validation.back(), 1.05 * *std::min_element(validation.begin(), validation.end()));
}
