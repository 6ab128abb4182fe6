// Every optimizer end to end: it learns, its formula is the published one, ranks and checkpoints
// keep its state.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "checkpoint/checkpoint.h"
#include "core/error.h"
#include "memory_folder.h"
#include "train/harness.h"
#include "train/run_state.h"

using namespace crest;

namespace {

struct Choice {
  const char* name;
  double lr;     // the scale recommended by docs/reference/optimizers.md
  double bytes;  // of state a parameter, with fp32 weights (bf16 weights for adamw-bf16*); an upper bound to 5%
  bool bf16 = false;
};

std::ostream& operator<<(std::ostream& out, const Choice& c) { return out << c.name; }

const Choice choices[] = {{"adamw", 3e-3, 8},
                          {"adamw-unfused", 3e-3, 8},
                          {"adamw-bf16", 3e-3, 4, true},
                          {"adamw-bf16-kahan", 3e-3, 6, true},
                          {"adamw-bf16-stochastic", 3e-3, 4, true},
                          {"adamw-8bit", 3e-3, 2.4},
                          {"adamw-fp8", 3e-3, 2.4},
                          {"sgd", 0.3, 4},
                          {"lion", 6e-4, 4},
                          {"adafactor", 3e-3, 0.4},
                          {"adafactor-momentum", 3e-3, 4.4},
                          {"muon", 3e-3, 5.2},
                          {"adamw", 3e-3, 10, true},  // masters in halves
                          {"adamw-8bit", 3e-3, 4.4, true},
                          {"adamw-fp8", 3e-3, 4.4, true}};

Recipe recipe_of(const Choice& c) {
  Recipe r = tiny_recipe();
  r.optimizer = c.name;
  if (c.bf16) r.precision = "bf16";
  return r;
}

Recipe recipe_of(const char* name) {
  for (auto& c : choices)
    if (std::string(name) == c.name) return recipe_of(c);
  return {};
}

// Of the test of a choice.
std::string choice_name(const Choice& c) {
  std::string n = c.name;
  if (c.bf16 && n.find("bf16") == std::string::npos) n += "_halves";
  std::replace(n.begin(), n.end(), '-', '_');
  return n;
}

}  // namespace

class Optimizers : public testing::TestWithParam<Choice> {
 protected:
  Recipe recipe() const { return recipe_of(GetParam()); }
};

TEST_P(Optimizers, Learns) {
  Trained t = train(recipe(), 60, GetParam().lr);
  EXPECT_GT(t.losses.front(), 4.3);
  EXPECT_LT(t.losses.back(), 0.8 * t.losses.front());
}

// The same result with two instructions instead of a flat one, with micro steps, and on two ranks:
// an update sees sums of gradients only. Stochastic rounding, too, because its random bits have
// coordinates.
TEST_P(Optimizers, FusionAccumulationAndRanksChangeNothing) {
  Recipe r = recipe(), unfused = r, micro_steps = r, ranks = r;
  double tolerance = GetParam().bf16 ? 5e-3 : 1e-3;  // lion: a sign may flip where the momentum is nearly zero
  unfused.fusion = "off";
  micro_steps.batch = 2, micro_steps.grad_accumulation = 2;
  ranks.batch = 2, ranks.data_parallel = 2;
  double lr = GetParam().lr / 3;
  Trained expected = train(r, 4, lr);
  EXPECT_LT(distance(train(unfused, 4, lr), expected), tolerance) << "fusion off";
  EXPECT_LT(distance(train(micro_steps, 4, lr), expected), tolerance) << "micro steps";
  EXPECT_LT(distance(train(ranks, 4, lr), expected), tolerance) << "ranks";
}

// Where all rates are the same, groups of their own change nothing.
TEST(Optimizer, RatesOfGroupsFollowTheRateOfTheStep) {
  const double lr = 1e-3;
  for (const char* name : {"adamw", "muon"}) {
    SCOPED_TRACE(name);
    Recipe plain = recipe_of(name);
    plain.lr = lr;
    Recipe same = plain, other = plain;
    for (const char* group : {"lr-embedding", "lr-vectors"})
      same.pass_settings[group] = "0.001", other.pass_settings[group] = "0.02";
    Recipe ranks = other;
    ranks.batch = 2, ranks.data_parallel = 2;
    ranks.pass_settings["shard"] = "optimizer";
    const Trained expected = train(plain, 3, lr), changed = train(other, 3, lr);
    EXPECT_EQ(distance(train(same, 3, lr), expected), 0);
    EXPECT_GT(distance(changed, expected), 1e-3);
    EXPECT_LT(distance(train(ranks, 3, lr), changed), 1e-3);
  }
}

TEST_P(Optimizers, StateTakesTheBytesThatTheGuideSays) {
  Engine e = make_engine(recipe());
  double parameters = 0;
  for (auto& p : crest::parameters(e.rank(0))) parameters += double(p.numel());
  int64_t state = 0;
  for (auto& b : e.session().persistent)
    if (b.category == Category::optimizer_state && b.name != "scalars") state += b.bytes;
  EXPECT_GT(double(state), 0);
  // Padding of the vocabulary and of groups: at most a fifth in a model this small.
  EXPECT_LE(double(state) / parameters, GetParam().bytes * 1.35);
  EXPECT_GE(double(state) / parameters, GetParam().bytes * 0.5);
}

// Three steps, a checkpoint, three more: the same bits as six in one go.
TEST_P(Optimizers, ACheckpointContinuesBitForBit) {
  Recipe r = recipe();
  SampleSource source = [&](uint64_t g, int32_t* x, int32_t* y, int32_t*) { synthetic(r, g, x, y); };
  auto steps = [&](Engine& e, int from, int to) {
    for (int s = from; s < to; ++s) e.step(s, GetParam().lr, 11, source);
  };
  auto weights = [](Engine& e) {
    std::vector<std::vector<float>> all;
    for (auto& p : parameters(e.rank(0))) {
      all.emplace_back(size_t(p.numel()));
      p.get(all.back().data());
    }
    return all;
  };
  Engine whole = make_engine(r), first = make_engine(r), second = make_engine(r);
  steps(whole, 0, 6);
  MemoryFolder folder;
  const std::string& root = folder.path();
  auto warn = [](const std::string& text) { ADD_FAILURE() << text; };
  steps(first, 0, 3);
  RunState state;
  state.step = 3, state.seed = 11, state.threads = 2;
  EXPECT_TRUE(save_checkpoint(contents_to_save(first, state, "", nullptr, false), root, 0).warnings.empty());
  EXPECT_EQ(restore(second, newest_checkpoint(root, warn)).step, 3);
  steps(second, 3, 6);
  EXPECT_EQ(weights(second), weights(whole));
}

INSTANTIATE_TEST_SUITE_P(All, Optimizers, testing::ValuesIn(choices), [](auto& i) { return choice_name(i.param); });

// Unchanged by a rewrite.
TEST(Optimizer, UnfusedIsAdamW) {
  Trained a = train(recipe_of("adamw-unfused"), 5), b = train(recipe_of("adamw"), 5);
  EXPECT_LT(distance(a, b), 1e-5);
}

TEST(Optimizer, HalfPrecisionStateFollowsAdamW) {
  Recipe r = recipe_of("adamw");
  r.precision = "bf16";
  Trained b = train(r, 40, 1e-3);
  for (const char* name : {"adamw-bf16-kahan", "adamw-bf16-stochastic", "adamw-8bit", "adamw-fp8"})
    EXPECT_NEAR(train(recipe_of(name), 40, 1e-3).losses.back(), b.losses.back(), 0.02 * b.losses.back()) << name;
}

// Over 200 steps, the repeated errors of codes do not change the loss.
TEST(Optimizer, MomentsOfEightBitsTrainLikeFloats) {
  auto late = [](const char* name) {
    Trained t = train(recipe_of(name), 200, 3e-3);
    double sum = 0;
    for (size_t s = 150; s < 200; ++s) sum += t.losses[s] / 50;
    EXPECT_LT(sum, 0.6 * t.losses.front()) << name;
    return sum;
  };
  double floats = late("adamw");
  for (const char* name : {"adamw-8bit", "adamw-fp8"}) EXPECT_NEAR(late(name), floats, 0.01 * floats) << name;
}

// The steps are below half a unit in the last place of a weight. Rounding to nearest loses them.
// Kahan summation and stochastic rounding do not.
TEST(Optimizer, SmallStepsAreLostOnlyByRoundingToNearest) {
  auto moved = [](const char* name) {
    Recipe r = recipe_of(name);
    r.weight_decay = 0;
    Trained start = train(r, 0), end = train(r, 30, 2e-6);
    double sum = 0;  // the largest weights: the gains of the norms (1)
    size_t count = 0;
    for (size_t p = 0; p < end.weights.size(); ++p)
      for (size_t i = 0; i < end.weights[p].size(); ++i)
        if (start.weights[p][i] == 1) sum += std::fabs(double(end.weights[p][i]) - 1), ++count;
    return sum / double(count);
  };
  EXPECT_EQ(moved("adamw-bf16"), 0);
  EXPECT_GT(moved("adamw-bf16-stochastic"), 0);
}

TEST(Optimizer, TheGroupsOfEightBitStateAreBlocks) {
  for (const char* name : {"adamw-8bit", "adamw-fp8"}) {
    SCOPED_TRACE(name);
    Recipe r = recipe_of(name);
    r.pass_settings["state-block"] = "2048";
    Trained large = train(r, 5), small = train(recipe_of(name), 5);
    EXPECT_LT(distance(large, small), 2e-2);
    EXPECT_GT(distance(large, small), 0);
  }
}

// Split masters take two bytes less a parameter and hold the same fp32 numbers. bf16 weights differ
// if a master is in the middle of two.
TEST(Optimizer, MastersInHalvesTrainLikeWholeOnes) {
  for (const Choice& choice : choices) {
    std::string n = choice.name;
    if (choice.bf16 || n == "adamw-unfused") continue;
    SCOPED_TRACE(n);
    Recipe halves = recipe_of(choice), whole = halves;
    halves.precision = whole.precision = "bf16";
    whole.pass_settings["master-weights"] = "fp32";
    Trained start = train(halves, 0), a = train(halves, 8, choice.lr / 3), b = train(whole, 8, choice.lr / 3);
    EXPECT_EQ(distance(start, train(whole, 0)), 0) << "what is set is what is read, bit for bit";
    EXPECT_LT(distance(a, b), 2e-3);
    EXPECT_GT(distance(a, start), 5 * 2e-3) << "the steps are too small to be seen";
    EXPECT_NEAR(a.losses.back(), b.losses.back(), 1e-3 * b.losses.back());
    auto state = [](const Recipe& r) {
      Engine e = make_engine(r);
      int64_t bytes = 0;
      for (auto& p : e.session().persistent) bytes += p.category == Category::optimizer_state ? p.bytes : 0;
      return bytes;
    };
    double parameters = 0;
    for (auto& w : a.weights) parameters += double(w.size());
    double saved = double(state(whole) - state(halves)) / parameters;
    if (n == "adafactor" || n == "adafactor-momentum" || n == "muon") {
      EXPECT_GT(saved, 0);  // of vectors; with Muon of embeddings, too
    } else {
      EXPECT_NEAR(saved, 2, 0.3);
    }
  }
}

// A checkpoint holds fp32 masters either way.
TEST(Optimizer, ARunContinuesWithMastersInTheOtherForm) {
  for (const char* first : {"split", "fp32"}) {
    SCOPED_TRACE(first);
    Recipe r = recipe_of("adamw"), other;
    r.precision = "bf16";
    r.pass_settings["master-weights"] = first;
    other = r;
    other.pass_settings["master-weights"] = std::string(first) == "split" ? "fp32" : "split";
    SampleSource source = [&](uint64_t g, int32_t* x, int32_t* y, int32_t*) { synthetic(r, g, x, y); };
    Engine from = make_engine(r), to = make_engine(other);
    for (int s = 0; s < 3; ++s) from.step(s, 1e-3, 11, source);
    MemoryFolder folder;
    const std::string& root = folder.path();
    auto warn = [](const std::string& text) { ADD_FAILURE() << text; };
    RunState state;
    state.step = 3, state.seed = 11, state.threads = 2;
    EXPECT_TRUE(save_checkpoint(contents_to_save(from, state, "", nullptr, true), root, 0).warnings.empty());
    EXPECT_EQ(restore(to, newest_checkpoint(root, warn)).step, 3);
    auto a = parameters(from.rank(0)), b = parameters(to.rank(0));
    for (size_t p = 0; p < a.size(); ++p) {
      std::vector<float> x(size_t(a[p].numel())), y = x;
      a[p].get(x.data()), b[p].get(y.data());
      EXPECT_EQ(x, y) << a[p].name;
    }
    double expected = from.step(3, 1e-3, 11, source).loss;
    EXPECT_NEAR(to.step(3, 1e-3, 11, source).loss, expected, 1e-3 * expected);
  }
}

TEST(Optimizer, BadInputIsAUsageError) {
  auto error = [](const Recipe& r) -> std::string {
    try {
      make_engine(r);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::usage);
      return e.what();
    }
    return "no error";
  };
  Recipe r = tiny_recipe();
  r.optimizer = "adamw-8bits";
  EXPECT_NE(error(r).find("adamw-8bit"), std::string::npos);
  r.optimizer = "adamw-bf16-kahan";
  EXPECT_NE(error(r).find("--precision bf16 --policy pure"), std::string::npos);
  r.precision = "bf16", r.policy = "autocast";
  EXPECT_NE(error(r).find("--precision bf16 --policy pure"), std::string::npos);
  r.optimizer = "adamw-8bit", r.pass_settings["state-block"] = "100";
  EXPECT_NE(error(r).find("Values: 64, 128, 256"), std::string::npos);
  r.pass_settings["state-block"] = "256", r.pass_settings["master-weights"] = "half";
  EXPECT_NE(error(r).find("Values: split, fp32."), std::string::npos);
}
