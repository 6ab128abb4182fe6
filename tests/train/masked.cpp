// Uncounted targets, and documents sharing a row.
#include <gtest/gtest.h>

#include <cmath>

#include "run/generate.h"
#include "train/harness.h"

using namespace crest;

namespace {

// Samples with very different counts: sample 2 of each 8 has no counted target, sample 5 has one,
// sample 0 has only counted ones.
void masked(const Recipe& r, uint64_t sample, int32_t* tokens, int32_t* targets) {
  synthetic(r, sample, tokens, targets);
  int64_t counts[] = {r.seq_length(), 4, 0, 9, 2, 1, 12, 3};
  for (int64_t t = counts[sample % 8]; t < r.seq_length(); ++t) targets[t] = t % 2 ? -1 : -100;
}

struct Result {
  std::vector<double> losses, norms;
  std::vector<int64_t> targets;
  std::vector<float> weights;
  double validation = 0;
};

Result train_with(const Recipe& r, int steps, double lr, const SampleSource& source, int64_t validation_batches = 0) {
  Engine e = make_engine(r);
  e.read_whole_steps(true);
  Result result;
  for (int s = 0; s < steps; ++s) {
    StepResult step = e.step(s, lr, 11, source);
    result.losses.push_back(step.loss), result.norms.push_back(step.grad_norm);
    result.targets.push_back(step.targets);
    EXPECT_FALSE(step.skipped);
  }
  if (validation_batches) result.validation = e.validate(validation_batches, source);
  for (auto& p : parameters(e.rank(0))) {
    size_t at = result.weights.size();
    result.weights.resize(at + size_t(p.numel()));
    p.get(result.weights.data() + at);
  }
  return result;
}

// || a - b || / || b - start ||: how much two updates differ.
double update_distance(const Result& a, const Result& b, const Result& start) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.weights.size(); ++i) {
    difference += std::pow(double(a.weights[i]) - b.weights[i], 2);
    norm += std::pow(double(b.weights[i]) - start.weights[i], 2);
  }
  return std::sqrt(difference / norm);
}

// Plain descent: an update is the gradient times the rate.
Recipe descent(bool llama) {
  Recipe r = tiny_recipe(llama);
  r.optimizer = "sgd", r.clip = 0, r.weight_decay = 0;
  return r;
}

}  // namespace

class Masked : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Models, Masked, testing::Bool(), [](auto& info) { return info.param ? "Llama" : "Gpt2"; });

// Compared with -log softmax of the logits of decoding, in double.
TEST_P(Masked, LossIsTheMeanOverTheTargetsThatCount) {
  Recipe r = tiny_recipe(GetParam());
  SessionUse use;
  use.train = use.update = use.validation = use.sampling = true;
  Engine e(compile(r, test::test_device(2), session_programs(r, use)));
  e.initialize_weights(3);
  e.read_whole_steps(true);
  SampleSource source = [&](uint64_t g, int32_t* x, int32_t* y, int32_t*) { masked(r, g, x, y); };
  int64_t seq = r.seq_length(), count = 0;
  std::vector<int32_t> x(static_cast<size_t>(seq)), y(x.size());
  double sum = 0;
  Decoder decoder(e.rank(0));
  for (uint64_t g = 0; g < 4; ++g) {
    masked(r, g, x.data(), y.data());
    decoder.reset();
    for (size_t t = 0; t < x.size(); ++t) {
      auto logits = decoder.feed({&x[t], 1});
      if (y[t] < 0) continue;
      double total = 0;
      for (float l : logits) total += std::exp(double(l));
      sum += std::log(total) - double(logits[size_t(y[t])]);
      ++count;
    }
  }
  EXPECT_NEAR(e.validate(1, source), sum / double(count), 2e-6);
  StepResult step = e.step(0, 1e-3, 1, source);
  EXPECT_NEAR(step.loss, sum / double(count), 2e-6);
  EXPECT_EQ(step.targets, count);
  EXPECT_EQ(count, 17 + 4 + 9);
}

// The mean is over the whole step. It is no mean of the means of micro steps or ranks.
TEST_P(Masked, AccumulationAndRanksAreOneBigBatch) {
  Recipe one = tiny_recipe(GetParam());
  one.batch = 8;
  SampleSource source = [&](uint64_t g, int32_t* x, int32_t* y, int32_t*) { masked(one, g, x, y); };
  Result expected = train_with(one, 4, 1e-3, source, 2), start = train_with(one, 0, 0, source);
  struct Split {
    int64_t batch, accumulation;
    int ranks;
  };
  for (Split s : {Split{2, 4, 1}, {4, 1, 2}, {2, 2, 2}, {1, 4, 2}}) {
    SCOPED_TRACE(testing::Message() << s.batch << " x " << s.accumulation << " x " << s.ranks);
    Recipe r = one;
    r.batch = s.batch, r.grad_accumulation = s.accumulation, r.data_parallel = s.ranks;
    Result split = train_with(r, 4, 1e-3, source, 16 / (s.batch * s.ranks));
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(split.losses[i], expected.losses[i], 1e-5 * expected.losses[i]);
      EXPECT_NEAR(split.norms[i], expected.norms[i], 1e-4 * expected.norms[i]);
      EXPECT_EQ(split.targets[i], expected.targets[i]);
    }
    EXPECT_LT(update_distance(split, expected, start), 1e-2);  // AdamW magnifies rounding where a gradient is near 0
    EXPECT_NEAR(split.validation, expected.validation, 1e-5 * expected.validation);
  }
}

TEST_P(Masked, NothingThatCountsIsNoGradient) {
  Recipe r = descent(GetParam());
  SampleSource nothing = [&](uint64_t g, int32_t* x, int32_t* y, int32_t*) {
    synthetic(r, g, x, y);
    std::fill_n(y, r.seq_length(), -1);
  };
  Result result = train_with(r, 2, 0.1, nothing, 1), start = train_with(r, 0, 0, nothing);
  EXPECT_EQ(result.losses[1], 0);
  EXPECT_EQ(result.norms[1], 0);
  EXPECT_EQ(result.validation, 0);
  EXPECT_EQ(result.weights, start.weights);
}

namespace {

// Rows of documents of these lengths, two of them padded at the end.
const std::vector<std::vector<int64_t>> rows = {{5, 7, 3}, {17}, {1, 1, 12, 2}, {9, 8}};

// Row r as one sample with positions.
void packed_row(const Recipe& r, uint64_t row, int32_t* x, int32_t* y, int32_t* positions) {
  int64_t seq = r.seq_length(), at = 0;
  std::vector<int32_t> tokens(static_cast<size_t>(seq)), targets(tokens.size());
  std::fill_n(x, seq, 0), std::fill_n(y, seq, -1), std::fill_n(positions, seq, 0);
  for (size_t d = 0; d < rows[row].size(); ++d) {
    synthetic(r, row * 10 + d, tokens.data(), targets.data());
    for (int64_t t = 0; t < rows[row][d]; ++t, ++at)
      x[at] = tokens[size_t(t)], y[at] = t % 4 == 1 ? -1 : targets[size_t(t)], positions[at] = int32_t(t);
  }
}

// Document number `sample` alone in a row; the tokens after it do not count.
void lonely_document(const Recipe& r, uint64_t sample, int32_t* x, int32_t* y) {
  for (size_t row = 0; row < rows.size(); ++row)
    for (size_t d = 0; d < rows[row].size(); ++d)
      if (sample-- == 0) {
        synthetic(r, row * 10 + d, x, y);
        for (int64_t t = 0; t < r.seq_length(); ++t)
          if (t >= rows[row][d] || t % 4 == 1) y[t] = -1;
        return;
      }
}

Recipe packed(Recipe r) {
  r.pass_settings["packing"] = "documents";
  r.batch = 4;
  return r;
}

}  // namespace

// Loss and gradient are the same as for each document alone, with every kernel of attention.
TEST_P(Masked, DocumentsThatShareARowDoNotSeeEachOther) {
  Recipe alone = descent(GetParam());
  alone.batch = 10;
  SampleSource lonely = [&](uint64_t g, int32_t* x, int32_t* y, int32_t*) { lonely_document(alone, g % 10, x, y); };
  Result expected = train_with(alone, 1, 1, lonely), start = train_with(alone, 0, 0, lonely);
  int differ = 0;
  for (std::string attention : {"flash", "naive"})
    for (std::string fusion : {"on", "off"})
      for (std::string recompute : {"none", "selective", "full"}) {
        SCOPED_TRACE(attention + " " + fusion + " " + recompute);
        Recipe r = packed(descent(GetParam()));
        r.attention = attention, r.fusion = fusion, r.recompute = recompute;
        SampleSource source = [&](uint64_t g, int32_t* x, int32_t* y, int32_t* p) {
          ASSERT_NE(p, nullptr);
          packed_row(r, g % 4, x, y, p);
        };
        Result result = train_with(r, 1, 1, source, 1);
        EXPECT_EQ(result.targets, expected.targets);
        EXPECT_NEAR(result.losses[0], expected.losses[0], 1e-6 * expected.losses[0]);
        EXPECT_NEAR(result.norms[0], expected.norms[0], 1e-5 * expected.norms[0]);
        EXPECT_LT(update_distance(result, expected, start), 2e-5);
      }
  // Without the borders of documents the gradient differs, so this test can fail.
  Recipe r = packed(descent(GetParam()));
  SampleSource blurred = [&](uint64_t g, int32_t* x, int32_t* y, int32_t* p) {
    packed_row(r, g % 4, x, y, p);
    for (int32_t t = 0; t < int32_t(r.seq_length()); ++t) p[t] = t;
  };
  differ += update_distance(train_with(r, 1, 1, blurred), expected, start) > 1e-2;
  EXPECT_EQ(differ, 1);
}

TEST_P(Masked, LossInPiecesIsTheSame) {
  for (bool pack : {false, true}) {
    Recipe whole = pack ? packed(tiny_recipe(GetParam())) : tiny_recipe(GetParam());
    whole.batch = 4, whole.grad_accumulation = 2, whole.pass_settings["loss-chunk"] = "off";
    Recipe pieces = whole;
    pieces.pass_settings["loss-chunk"] = "20";
    SampleSource source = [&](uint64_t g, int32_t* x, int32_t* y, int32_t* p) {
      pack ? packed_row(whole, g % 4, x, y, p) : masked(whole, g, x, y);
    };
    Result a = train_with(whole, 4, 1e-3, source, 2), b = train_with(pieces, 4, 1e-3, source, 2);
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(a.losses[i], b.losses[i], 1e-5 * a.losses[i]);
      EXPECT_NEAR(a.norms[i], b.norms[i], 1e-4 * a.norms[i]);
      EXPECT_EQ(a.targets[i], b.targets[i]);
    }
    EXPECT_NEAR(a.validation, b.validation, 1e-5 * a.validation);
  }
}

TEST_P(Masked, PackedRowsTrainInHalfPrecisionWithDropoutAndRanks) {
  Recipe r = packed(tiny_recipe(GetParam()));
  r.precision = "bf16", r.batch = 1, r.data_parallel = 2, r.grad_accumulation = 2, r.model.dropout = 0.1;
  SampleSource source = [&](uint64_t g, int32_t* x, int32_t* y, int32_t* p) { packed_row(r, g % 4, x, y, p); };
  Result result = train_with(r, 30, 3e-3, source, 2);
  EXPECT_LT(result.losses.back(), 0.8 * result.losses.front());
}
