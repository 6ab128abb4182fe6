// Times predicted from measured steps.
#include "predict/time_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace crest::test {

namespace {

// A step with kernels of known times: a product at 1 TFLOP/s plus 10 us, a norm at 100 GB/s.
Profile step(double flops, double bytes, int layers = 2, bool measured = true) {
  Profile p;
  p.rates = {{"fp32", 2e12, "given"}, {"bandwidth", 2e11, "given"}};
  for (int i = 0; i < layers; ++i) {
    ProfileInstr product, norm;
    product.op = "linear", product.kernel = "cpu.linear", product.op_class = "contraction";
    norm.op = "norm", norm.kernel = "cpu.norm", norm.op_class = "normalization";
    for (ProfileInstr* r : {&product, &norm}) r->type = "fp32[2,3]", r->arithmetic = "fp32";
    product.flops = flops, product.bytes = flops / 100, norm.flops = norm.bytes = bytes;
    product.ms = 0.01 + flops / 1e9, norm.ms = bytes / 1e8;
    p.instrs.push_back(product), p.instrs.push_back(norm);
  }
  double sum = 0;
  for (auto& r : p.instrs) sum += r.ms;
  if (measured)
    p.step_ms = {sum};
  else
    for (auto& r : p.instrs) r.ms = 0;
  return p;
}

double total(const Profile& p) { return p.step_ms[0]; }

TimeModel model() {
  TimeModel m;
  for (double scale : {1.0, 3.0, 10.0, 40.0}) m.add(step(1e7 * scale, 1e6 * scale));
  return m;
}

}  // namespace

TEST(FitNonnegative, FindsTheCoefficientsAndNoneBelowZero) {
  auto x = fit_nonnegative({{1, 2}, {2, 1}, {3, 5}}, {8, 7, 21});
  EXPECT_NEAR(x[0], 2, 1e-9);
  EXPECT_NEAR(x[1], 3, 1e-9);
  x = fit_nonnegative({{1, 1}, {2, 1}, {3, 1}}, {1, 3, 5});  // 2 a - 1 without the constraint
  EXPECT_GE(x[0], 0);
  EXPECT_EQ(x[1], 0);
}

TEST(TimeModel, PredictsSizesBetweenAndBeyondThoseThatWereMeasured) {
  TimeModel m = model();
  for (double scale : {2.0, 7.0, 100.0})
    for (int layers : {1, 12}) {
      Profile p = step(1e7 * scale, 1e6 * scale, layers);
      double measured = total(p);
      StepPrediction s = m.predict(step(1e7 * scale, 1e6 * scale, layers, false));
      EXPECT_NEAR(s.ms / measured, 1, 0.02) << scale << " " << layers;
      EXPECT_LE(s.low_ms, measured);
      EXPECT_GE(s.high_ms, measured);
      EXPECT_EQ(s.known, 1);
    }
}

TEST(TimeModel, AMeasuredSizeGetsItsMeasuredTime) {
  TimeModel m = model();
  Profile slow = step(5e7, 5e6);
  for (auto& r : slow.instrs) r.ms *= 1.5;  // a badly running size
  slow.step_ms[0] *= 1.5;
  m.add(slow);
  EXPECT_NEAR(m.predict(step(5e7, 5e6, 2, false)).ms / slow.step_ms[0], 1, 0.02);
}

TEST(TimeModel, OneStepIsEnoughToScaleWithTheWork) {
  TimeModel m;
  m.add(step(1e8, 1e7));
  StepPrediction s = m.predict(step(1e9, 1e8, 2, false));
  EXPECT_NEAR(s.ms / total(step(1e9, 1e8)), 1, 0.15);
  EXPECT_GE(s.high_ms / s.ms, 1.2);  // one step says little
}

TEST(TimeModel, AKernelThatWasNotMeasuredIsAsFarAboveItsFloorAsOthersOfItsKind) {
  TimeModel m = model();
  Profile other = step(1e8, 1e7, 2, false);
  for (auto& r : other.instrs)
    if (r.op == "linear") r.kernel = "cpu.linear.other";
  StepPrediction s = m.predict(other);
  EXPECT_LT(s.known, 0.7);
  EXPECT_GT(s.known, 0);
  EXPECT_NEAR(s.ms / total(step(1e8, 1e7)), 1, 0.3);
  EXPECT_GT(s.high_ms / s.low_ms, 1.4);
}

TEST(TimeModel, AKernelThatWasNotMeasuredIsLikeTheOneThatDoesItsMainWork) {
  for (auto [measured, other] : {std::pair{"cuda.linear.sm90_or_cublaslt", "cuda.linear_swiglu.sm90"},
                                 {"cuda.linear_dx_gelu_grad.sm90", "cuda.linear_dx_swiglu_grad.sm90"},
                                 {"cuda.adamw", "cuda.fused_update.adamw"}}) {
    auto named = [](Profile p, const char* kernel) {
      for (auto& r : p.instrs)
        if (r.op == "linear") r.kernel = kernel;
      return p;
    };
    TimeModel m;
    for (double scale : {1.0, 3.0, 10.0, 40.0}) m.add(named(step(1e7 * scale, 1e6 * scale), measured));
    StepPrediction known = m.predict(named(step(1e8, 1e7, 2, false), measured));
    StepPrediction like = m.predict(named(step(1e8, 1e7, 2, false), other));
    EXPECT_DOUBLE_EQ(like.ms, known.ms);
    EXPECT_DOUBLE_EQ(like.known, 1);
    // Measured since: its own times count.
    Profile slower = named(step(1e8, 1e7), other);
    for (auto& r : slower.instrs) r.ms *= r.op == "linear" ? 2 : 1;
    slower.step_ms = {slower.step_ms[0] + slower.instrs[0].ms};
    m.add(slower);
    EXPECT_GT(m.predict(named(step(1e8, 1e7, 2, false), other)).ms, 1.3 * known.ms);
  }
}

TEST(TimeModel, ErrorsAreThoseOfStepsThatWereHeldOut) {
  TimeModel m = model();
  Profile odd = step(2e7, 2e6);
  for (auto& r : odd.instrs) r.ms *= 3;
  odd.step_ms[0] *= 3;
  m.add(odd);
  std::vector<double> errors = m.errors();
  ASSERT_EQ(errors.size(), 5u);
  EXPECT_GT(errors.back(), 0.5);  // nothing predicts it but itself
}

TEST(TimeModel, SurvivesItsJson) {
  TimeModel m = model(), read = TimeModel::from_json(m.to_json(), "x");
  EXPECT_EQ(read.steps(), m.steps());
  EXPECT_EQ(read.rate("fp32"), 2e12);
  EXPECT_EQ(read.predict(step(2e7, 3e6, 5, false)).ms, m.predict(step(2e7, 3e6, 5, false)).ms);
}

TEST(TimeModel, ReadsTheSpellingOfVersion01) {
  auto json = model().to_json(), old = json;
  EXPECT_EQ(old["classes"][1][1], "normalization");
  old["classes"][1][1] = "normalisation";
  EXPECT_EQ(TimeModel::from_json(old, "x").to_json(), json);
}

TEST(TimeModel, RefusesWhatIsNoCalibration) {
  auto good = model().to_json();
  auto refuses = [&](auto change) {
    auto json = good;
    change(json);
    try {
      TimeModel::from_json(json, "file.json");
      ADD_FAILURE() << json.dump().substr(0, 200);
    } catch (const Error& e) {
      EXPECT_EQ(e.where(), "file.json");
      EXPECT_NE(e.problem().find("not a calibration"), std::string::npos);
    }
  };
  refuses([](auto& j) { j.erase("steps"); });
  refuses([](auto& j) { j["steps"] = nlohmann::ordered_json::array(); });
  refuses([](auto& j) { j["steps"][0]["step_ms"] = 0; });
  refuses([](auto& j) { j["steps"][0].erase("step_ms"); });
  refuses([](auto& j) { j["steps"][0]["rows"][0][0] = 99; });
  refuses([](auto& j) { j["steps"][0]["rows"][0][0] = 0.5; });
  refuses([](auto& j) { j["steps"][0]["rows"][0][1] = 0; });
  refuses([](auto& j) { j["steps"][0]["rows"][0][4] = -1; });
  refuses([](auto& j) { j["steps"][0]["rows"][0][4] = "x"; });
  refuses([](auto& j) { j["steps"][0]["rows"][0].erase(0); });
  refuses([](auto& j) { j["classes"][0] = 3; });
  refuses([](auto& j) { j["rates"][0] = 3; });
  refuses([](auto& j) { j["rates"][0]["source"] = 3; });
  refuses([](auto& j) { j["steps"][0]["rows"] = nlohmann::ordered_json::array(); });
  refuses([](auto& j) { j = nlohmann::ordered_json::array(); });
}

}  // namespace crest::test
