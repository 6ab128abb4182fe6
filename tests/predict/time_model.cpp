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

// A GPU's products of 2^31 FLOPs and 2^20 bytes: result m x n, k from the FLOPs.
namespace {

Profile products(const std::vector<std::pair<int, int>>& shapes, double ms, int calls = 1) {
  Profile p;
  p.rates = {{"bf16", 1e14, "given"}, {"bandwidth", 1e12, "given"}};
  for (auto& [m, n] : shapes) {
    ProfileInstr r;
    r.op = "linear", r.kernel = "cuda.linear.cublaslt", r.op_class = "contraction", r.arithmetic = "bf16";
    r.type = "bf16[1," + std::to_string(m) + "," + std::to_string(n) + "]";
    r.calls = calls, r.flops = calls * 0x1p31, r.bytes = calls * 0x1p20, r.ms = calls * ms;
    p.instrs.push_back(r);
  }
  p.step_ms = {ms * calls * double(shapes.size())};
  return p;
}

TimeModel model_of_products() {
  TimeModel m;
  m.set_multiprocessors(132);
  m.add(products({{4096, 256}}, 0.1)), m.add(products({{256, 4096}}, 0.2)), m.add(products({{1024, 1024}}, 0.1));
  return m;
}

}  // namespace

TEST(TimeModel, ProductsOfTheSameSizeDifferByTheirShape) {
  const TimeModel m = model_of_products();
  EXPECT_NEAR(m.predict(products({{4096, 256}}, 0)).ms / 0.1, 1, 0.02);
  EXPECT_NEAR(m.predict(products({{256, 4096}}, 0)).ms / 0.2, 1, 0.02);
  // A file without shapes, by an older version, knows one time for all of them.
  auto old = m.to_json();
  for (auto& step : old["steps"]) ASSERT_EQ(step.erase("products"), 1u);
  old.erase("multiprocessors");
  const TimeModel before = TimeModel::from_json(old, "x");
  EXPECT_EQ(before.predict(products({{4096, 256}}, 0)).ms, before.predict(products({{256, 4096}}, 0)).ms);
}

TEST(TimeModel, ProductsOfLongStepsRunAtTheClockOfThePowerLimit) {
  const TimeModel m = model_of_products();
  const double one = m.predict(products({{1024, 1024}}, 0)).instr_ms[0],
               many = m.predict(products({{1024, 1024}}, 0, 10000)).instr_ms[0] / 10000;
  EXPECT_NEAR(many / one, 1.277, 0.01);
  // A quarter of the slowdown where products take half the time.
  TimeModel both = model_of_products();
  Profile mixed = products({{1024, 1024}}, 0.1, 10000);
  ProfileInstr norm;
  norm.op = "norm", norm.kernel = "cuda.norm", norm.op_class = "normalization", norm.type = "bf16[2,3]";
  norm.arithmetic = "fp32", norm.bytes = 1e9, norm.ms = 1000;
  mixed.instrs.push_back(norm), mixed.step_ms = {2000};
  both.add(mixed);
  for (ProfileInstr& r : mixed.instrs) r.ms = 0;
  const double half = both.predict(mixed).instr_ms[0] / 10000;
  EXPECT_NEAR(half / both.predict(products({{1024, 1024}}, 0)).instr_ms[0], 1.07, 0.01);
  auto old = m.to_json();
  for (auto& step : old["steps"]) step.erase("products");
  const TimeModel before = TimeModel::from_json(old, "x");
  EXPECT_NEAR(before.predict(products({{1024, 1024}}, 0, 10000)).instr_ms[0] / 10000,
              before.predict(products({{1024, 1024}}, 0)).instr_ms[0], 1e-9);
}

// Attention of one size in FLOPs and bytes: many short sequences or a long one.
namespace {

Profile attention(const AttentionShape& shape, double ms, const char* kernel = "cuda.attention.sm90.d64") {
  Profile p = products({{1, 1}}, ms);
  ProfileInstr& r = p.instrs[0];
  r.op = "attention", r.op_class = "attention", r.kernel = kernel, r.attention = shape;
  r.flops = 2.0 * double(shape.batch * shape.heads * shape.head_dim * shape.queries) * double(shape.keys);
  p.rates[0].per_second = 2e15;
  return p;
}

TimeModel model_of_attention() {
  TimeModel m;
  m.set_multiprocessors(132);
  m.add(attention({64, 1024, 1024, 16, 16, 64}, 0.2)), m.add(attention({1, 8192, 8192, 16, 4, 64}, 0.1));
  m.add(attention({4, 4096, 4096, 16, 4, 64}, 0.11));
  return m;
}

}  // namespace

TEST(TimeModel, AttentionOfTheSameSizeDiffersByItsShape) {
  const TimeModel m = model_of_attention();
  EXPECT_NEAR(m.predict(attention({64, 1024, 1024, 16, 16, 64}, 0)).ms / 0.2, 1, 0.03);
  EXPECT_NEAR(m.predict(attention({1, 8192, 8192, 16, 4, 64}, 0)).ms / 0.1, 1, 0.03);
  auto old = m.to_json();
  for (auto& step : old["steps"]) ASSERT_EQ(step.erase("attention"), 1u);
  const TimeModel before = TimeModel::from_json(old, "x");
  EXPECT_EQ(before.predict(attention({64, 1024, 1024, 16, 16, 64}, 0)).ms,
            before.predict(attention({1, 8192, 8192, 16, 4, 64}, 0)).ms);
}

// A rank's share of a sequence is attended to by the kernels of whole ones.
TEST(TimeModel, AttentionToSharedSequencesIsLikeThatOfWholeOnes) {
  const TimeModel m = model_of_attention();
  const auto predicted = [&](int64_t queries) {
    const StepPrediction s = m.predict(attention({1, queries, 8192, 16, 4, 64}, 0, "cuda.attention_rows.sm90.d64"));
    EXPECT_EQ(s.known, 1);
    return s.instr_ms[0];
  };
  EXPECT_NEAR(predicted(8192), 0.1, 1e-3);
  EXPECT_GT(predicted(4096), 0.04);
  EXPECT_LT(predicted(4096), 0.07);
}

TEST(TimeModel, ShapesAndMultiprocessorsSurviveItsJson) {
  TimeModel m = model_of_products();
  m.add(attention({1, 4096, 8192, 16, 4, 64, 100, true}, 0.1));
  const TimeModel read = TimeModel::from_json(m.to_json(), "x");
  EXPECT_EQ(read.multiprocessors(), 132);
  EXPECT_EQ(read.to_json(), m.to_json());
  EXPECT_EQ(read.errors(), m.errors());
  EXPECT_EQ(read.predict(products({{1200, 900}}, 0)).ms, m.predict(products({{1200, 900}}, 0)).ms);
}

TEST(ProductShape, IsThatOfTheResultOfALinearLayerOnAGpu) {
  auto shape = [](const char* op, const char* kernel, const char* type) {
    ProfileInstr r;
    r.op = op, r.kernel = kernel, r.type = type;
    return product_shape(r);
  };
  EXPECT_EQ(shape("linear", "cuda.linear.sm90_or_cublaslt", "bf16[2,1024,4800]"), (ProductShape{2048, 4800}));
  EXPECT_EQ(shape("linear_dw", "cuda.linear_dw.sm90", "f32[1600,6400]"), (ProductShape{1600, 6400}));
  EXPECT_EQ(shape("linear_swiglu", "cuda.linear_swiglu.sm90", "bf16[1,512,8192]"), (ProductShape{512, 16384}));
  EXPECT_FALSE(shape("linear", "cpu.linear.onednn", "fp32[2,3]").known());
  EXPECT_FALSE(shape("attention", "cuda.attention.sm90.d64", "bf16[2,1024,1600]").known());
  for (const char* type :
       {"bf16[7]", "bf16", "bf16[2,x]", "bf16[2,0]", "bf16[9000000000,9000000000,2]", "bf16[2,3", "]2,3["})
    EXPECT_FALSE(shape("linear", "cuda.linear.cublaslt", type).known()) << type;
}

TEST(TileFactor, CountsWholeTilesAndTheLastRound) {
  const auto factor = [](int64_t m, int64_t n, int64_t multiprocessors) {
    return tile_factor({m, n}, 1000, multiprocessors);
  };
  EXPECT_DOUBLE_EQ(factor(128 * 132, 256, 132), 1);
  EXPECT_DOUBLE_EQ(factor(256 * 132, 256, 132), 1);
  EXPECT_GT(factor(128 * 133, 256, 132), 1.05);    // a second round for one tile
  EXPECT_LT(factor(128 * 133, 256, 132), 1.4);     // of which a share is waited for
  EXPECT_DOUBLE_EQ(factor(128 * 133, 256, 0), 1);  // unknown: whole tiles only
  EXPECT_DOUBLE_EQ(factor(129, 128, 0), 192.0 / 129);
  EXPECT_GT(factor(1024, 256, 132), factor(4096, 256, 132));
  // A long sum is shared by blocks that had no tile.
  EXPECT_LT(tile_factor({1024, 256}, 8192, 132), factor(1024, 256, 132));
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
  refuses([](auto& j) { j["steps"][0]["products"] = {{99, 2, 3}}; });
  refuses([](auto& j) { j["steps"][0]["products"] = {{0, 2}}; });
  refuses([](auto& j) { j["steps"][0]["products"] = {{0, 2, 0}}; });
  refuses([](auto& j) { j["steps"][0]["products"] = {{0, 2, 1.5}}; });
  refuses([](auto& j) { j["steps"][0]["products"] = 3; });
  refuses([](auto& j) { j["steps"][0]["attention"] = 3; });
  refuses([](auto& j) { j["steps"][0]["attention"] = {{0, 1, 64, 64, 2, 2, 64, 0}}; });
  refuses([](auto& j) { j["steps"][0]["attention"] = {{99, 1, 64, 64, 2, 2, 64, 0, 0}}; });
  refuses([](auto& j) { j["steps"][0]["attention"] = {{0, 1, 64, 96, 2, 2, 64, 0, 0}}; });
  refuses([](auto& j) { j["steps"][0]["attention"] = {{0, 1, 64, 64, 3, 2, 64, 0, 0}}; });
  refuses([](auto& j) { j["steps"][0]["attention"] = {{0, 1, 1 << 25, 1 << 25, 2, 2, 64, 0, 0}}; });
  refuses([](auto& j) { j["multiprocessors"] = -1; });
  refuses([](auto& j) { j["multiprocessors"] = "x"; });
  refuses([](auto& j) { j["classes"][0] = 3; });
  refuses([](auto& j) { j["rates"][0] = 3; });
  refuses([](auto& j) { j["rates"][0]["source"] = 3; });
  refuses([](auto& j) { j["steps"][0]["rows"] = nlohmann::ordered_json::array(); });
  refuses([](auto& j) { j = nlohmann::ordered_json::array(); });
}

}  // namespace crest::test
