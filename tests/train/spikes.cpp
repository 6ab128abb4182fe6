#include <cmath>
#include <nlohmann/json.hpp>

#include "core/io.h"
#include "core/random.h"
#include "train/run_fixture.h"
#include "train/run_state.h"
#include "train/spike_watch.h"
#include "train/spiked_data.h"

using namespace crest;
using namespace crest::test;

namespace {

double uniform(int64_t i) { return random_bits(1, 2, uint64_t(i)) / 4294967296.0; }

// Normal numbers around a falling loss, with a standard deviation of `noise`.
double falling(int64_t step, double noise) {
  const double u = uniform(2 * step), v = uniform(2 * step + 1);
  return 3 + 7 * std::exp(-double(step) / 50) + noise * std::sqrt(-2 * std::log(1 - u)) * std::cos(2 * M_PI * v);
}

}  // namespace

TEST(SpikeWatch, IsSilentAtAnyNoiseAndReportsAJumpOnce) {
  for (double noise : {0.0, 0.01, 0.1, 0.5}) {
    SpikeWatch watch;
    for (int64_t step = 1; step <= 5000; ++step)
      ASSERT_FALSE(watch.add(step, falling(step, noise))) << noise << ", step " << step;
    // Single outliers and missing losses are none.
    EXPECT_FALSE(watch.add(5001, NAN));
    const double jump = 1 + 12 * noise / std::sqrt(5.0);
    int64_t risen = 0, back = 0;
    for (int64_t step = 5002; step <= 5060; ++step)
      if (auto e = watch.add(step, falling(step, noise) + (step <= 5030 ? jump : 0))) {
        (e->rises ? risen : back) = step;
        EXPECT_NEAR(e->from, 3, 0.2 + 2 * noise);
        EXPECT_LT(e->calm_step, 5002) << noise;
      }
    EXPECT_TRUE(5002 <= risen && risen <= 5007) << noise << " " << risen;
    EXPECT_TRUE(5031 <= back && back <= 5036) << noise << " " << back;
  }
}

TEST(SpikeWatch, TakesALossThatStaysHighAsTheNewLevel) {
  SpikeWatch watch;
  int events = 0;
  for (int64_t step = 1; step <= 1000; ++step)
    events += watch.add(step, step < 200 ? 3 : step < 600 ? 4 : 5).has_value();
  EXPECT_EQ(events, 2);
}

class Spikes : public RunTest {
 protected:
  static constexpr int64_t noisy = 62, calm = 68;  // steps that train on noise
  void SetUp() override {
    RunTest::SetUp();
    const TrainOptions o = options();
    prepare_spiked(folder.path(), "spikes", size_t(o.recipe.seq_length()), o.seed, 2 * noisy, 2 * calm);
  }
  std::string read(const std::string& name) const { return read_file(folder / name, uint64_t(1) << 30); }
  TrainOptions with(const std::string& run, const std::string& on_spike, int64_t steps) const {
    TrainOptions o = options();
    o.data = {folder / "spikes"}, o.out = folder / run;
    o.steps = steps, o.on_spike = on_spike, o.save_every = 20, o.keep = 0;
    o.schedule = "constant", o.warmup = 1, o.lr = 3e-3;
    return o;
  }
};

TEST_F(Spikes, RollbackLeavesOutTheirSamplesAndContinuesExactly) {
  std::vector<double> warned, undone;
  TrainOptions o = with("warned", "warn", 90);
  o.on_step = [&](const StepRow& r) { warned.push_back(r.loss); };
  run_training(o);
  ASSERT_EQ(warned.size(), 90u);
  ASSERT_GT(warned[noisy + 2], 2 * warned[noisy - 1]) << "the text of the test has no spike";

  o = with("undone", "rollback", 90);
  o.on_step = [&](const StepRow& r) {
    undone.resize(size_t(r.step) - 1);
    undone.push_back(r.loss);
  };
  run_training(o);
  ASSERT_EQ(undone.size(), 90u);
  // The calmest steps end before the checkpoint of step 60, so the run returns to step 40.
  EXPECT_TRUE(std::equal(undone.begin(), undone.begin() + 40, warned.begin()));
  for (size_t i = 40; i < 90; ++i) EXPECT_LT(undone[i], warned[noisy + 2] / 2) << "step " << i + 1;
  const auto state = nlohmann::json::parse(read("undone/checkpoints/step-000090/state.json"));
  const auto skipped = state.at("state").at("skipped_samples").get<int64_t>();
  // A jump shows within five steps, and ten more are left out.
  EXPECT_TRUE(skipped > 2 * (noisy + 10 - 40) && skipped <= 2 * (noisy + 15 - 40)) << skipped;

  // A continued run leaves out the same samples.
  run_training(with("more", "rollback", 96));
  o = with("undone", "warn", 96);
  o.resume = true;
  run_training(o);
  EXPECT_TRUE(read("undone/checkpoints/step-000096/model.safetensors") ==
              read("more/checkpoints/step-000096/model.safetensors"));
}

TEST_F(Spikes, RollbackNeedsCheckpoints) {
  TrainOptions o = with("", "rollback", 2);
  o.out.clear();
  EXPECT_THROW(run_training(o), Error);
  o = with("late", "rollback", 75);
  o.save_every = 0;  // there is no checkpoint to return to
  std::vector<int64_t> steps;
  o.on_step = [&](const StepRow& r) { steps.push_back(r.step); };
  run_training(o);
  EXPECT_EQ(steps.size(), 75u);
}
