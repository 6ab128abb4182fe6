// Where the time of a run goes, and MFU and HFU over all of it.
#include "train/run_time.h"

#include <nlohmann/json.hpp>

#include "model/parameters.h"
#include "plan/flops_rate.h"
#include "train/harness.h"
#include "train/run.h"

namespace crest::test {

namespace {

Engine engine_with(const std::string& recompute, int ranks = 1) {
  Recipe r = tiny_recipe();
  r.recompute = recompute, r.data_parallel = ranks;
  return make_engine(r, 1);
}

StepRow row(double ms, double wait_ms, double communication_ms) {
  StepRow r;
  r.step_ms = ms, r.wait_ms = wait_ms, r.communication_ms = communication_ms;
  return r;
}

// crest flops of the same step.
FlopsRate rate_of(const Recipe& r, const std::string& recompute) {
  TimedStep step;
  step.model = r.model, step.sequences = r.batch, step.seq = r.seq, step.seconds = 1, step.recompute = recompute;
  return flops_rates(step)[0];
}

}  // namespace

TEST(RunTime, PartsSumToTheTimeAndThePeakIsOverAllOfIt) {
  Engine e = engine_with("none");
  TrainOptions o;
  o.peak = 1e9;
  RunTime t;
  t.begin(e.session(), o);
  t.add(row(1000, 100, 50));
  t.add(row(3000, 300, 250));
  auto json = to_json(t, 8, {1, 2, 0.5});
  double sum = 0;
  for (auto& [name, seconds] : json["time"].items()) sum += seconds.get<double>();
  EXPECT_DOUBLE_EQ(sum, 8);
  EXPECT_EQ(json["time"]["data_seconds"], 0.4);
  EXPECT_EQ(json["time"]["communication_seconds"], 0.3);
  EXPECT_EQ(json["time"]["compute_seconds"], 3.3);
  EXPECT_EQ(json["time"]["rest_seconds"], 0.5);
  const double flops = rate_of(e.session().recipe, "none").model;
  EXPECT_DOUBLE_EQ(json["mfu"].get<double>(), 2 * flops / 8 / 1e9) << "two steps in eight seconds";
  EXPECT_EQ(json["hfu"], json["mfu"]) << "nothing is repeated";
  EXPECT_EQ(json["peak_flops_per_second"], 1e9);
  EXPECT_EQ(t.parts_text(), "; 0.40 s of them waiting for data; 0.30 s of them communication");
  EXPECT_NE(t.peak_text(8).find("of 1.00 GFLOP/s"), std::string::npos) << t.peak_text(8);
}

TEST(RunTime, WithoutAPeakNothingIsSaid) {
  Engine e = engine_with("none");
  RunTime t;
  t.begin(e.session(), {});
  t.add(row(1000, 0, -1));
  EXPECT_EQ(t.peak_text(2), "");
  auto json = to_json(t, 2, {});
  for (const char* key : {"mfu", "hfu", "peak_flops_per_second"}) EXPECT_TRUE(json[key].is_null()) << key;
  EXPECT_TRUE(json["time"]["communication_seconds"].is_null()) << "unknown";
  EXPECT_EQ(json["time"]["compute_seconds"], 1);
  EXPECT_EQ(t.parts_text(), "");
}

// The convention of crest flops: its full recompute is a whole forward pass of the layers, of which
// Crest leaves out what nothing needs again. Attention alone is the same in both.
TEST(RunTime, HardwareFlopsAreThoseOfCrestFlops) {
  auto recomputed = [](const std::string& level) {
    Engine e = engine_with(level);
    EXPECT_EQ(step_flops(e.session()).model, rate_of(e.session().recipe, "none").model);
    return step_flops(e.session()).hardware - step_flops(e.session()).model;
  };
  const Recipe r = tiny_recipe();
  const FlopsRate full = rate_of(r, "full"), selective = rate_of(r, "selective");
  EXPECT_EQ(recomputed("none"), 0);
  EXPECT_EQ(recomputed("pointwise"), 0) << "no matmul is repeated";
  EXPECT_LE(recomputed("full"), full.hardware - full.model);
  EXPECT_GT(recomputed("full"), 0.5 * (full.hardware - full.model));
  // Without the last projection of each layer, whose result nothing needs.
  const double tokens = double(r.batch * r.seq), projection = 2.0 * double(r.model.width * r.model.ff) * tokens;
  EXPECT_DOUBLE_EQ(recomputed("full"), full.hardware - full.model - double(r.model.layers) * projection);
  EXPECT_GT(selective.hardware, selective.model);
}

// A rank's time in collectives counts, also where threads of one process are the ranks.
TEST(RunTime, CollectivesCountWhereSeveralRanksTrain) {
  auto communication = [](int ranks) {
    Engine e = engine_with("none", ranks);
    const Recipe r = e.session().recipe;
    SampleSource source = [&](uint64_t g, int32_t* x, int32_t* y, int32_t*) { synthetic(r, g, x, y); };
    const StepResult result = e.step(0, 1e-3, 1, source);
    EXPECT_LE(result.communication_seconds, result.seconds);
    return result.communication_seconds;
  };
  EXPECT_EQ(communication(1), 0);
  if (test_device(1).kind == "cpu") {
    EXPECT_GT(communication(2), 0);
  }
}

}  // namespace crest::test
