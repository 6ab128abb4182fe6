// Defaults of a recipe from the device.
#include "plan/defaults.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "contains.h"
#include "device/find.h"

using namespace crest;
using crest::test::contains;

namespace {

class DefaultsOfRecipes : public ::testing::Test {
 protected:
  // Short layers: the length of sequences is most of the memory.
  static Recipe long_context() {
    Recipe r;
    r.model = load_model_config("llama-nano");
    r.model.layers = 1, r.model.vocab = 257, r.model.context = 131072;
    return r;
  }
  DefaultSources within(int64_t limit) {
    DefaultSources from;
    from.limit = limit;
    from.rates_of = {};
    from.note = [this](const std::string& line) { notes += line + "\n"; };
    return from;
  }
  int64_t seq(Recipe r, int64_t limit) { return with_defaults(r, device, within(limit)).seq; }
  int64_t needed(Recipe r, int64_t length) const {
    r.seq = length, r.batch = 1;
    return compile(r, device, session_programs(resolve(r, device), training_use)).planned_bytes();
  }

  const Device device = find_device("h100", 1);
  std::string notes;
};

}  // namespace

TEST_F(DefaultsOfRecipes, SequencesAreThoseThatFit) {
  Recipe r = long_context();
  EXPECT_EQ(seq(r, int64_t(80) << 30), 4096);
  EXPECT_TRUE(contains(notes, "sequences of 4096 tokens") && contains(notes, "context of 131072 tokens")) << notes;
  const int64_t enough = needed(r, 512);
  notes.clear();
  EXPECT_EQ(seq(r, enough), 512) << "of the batch of 8 nothing is asked";
  EXPECT_TRUE(contains(notes, "sequences of 512 tokens") && contains(notes, "do not fit")) << notes;
  EXPECT_EQ(seq(r, enough - 1), 256);
  EXPECT_EQ(seq(r, 1), 4096) << "no length fits: the plan says what does not";
  notes.clear();
  r.seq = 2048;
  EXPECT_EQ(seq(r, enough), 2048) << "it was given";
  r.seq = 0, r.model.context = 300;
  EXPECT_EQ(seq(r, int64_t(80) << 30), 300);
  EXPECT_EQ(notes, "");
  r.recompute = "budget=" + std::to_string(enough);
  r.model.context = 131072, r.batch = 1;
  Recipe chosen = with_defaults(r, device, within(int64_t(80) << 30));
  EXPECT_LT(chosen.seq, 4096) << "a budget is a limit, too";
  EXPECT_LE(needed(chosen, chosen.seq), enough);
}

// A length is taken without a session only if an estimate shows a fit.
TEST_F(DefaultsOfRecipes, NoLengthIsTakenThatDoesNotFit) {
  Recipe wide = long_context();
  wide.model.context = 512;
  Recipe naive = wide, heads = wide, words = wide, masters = wide;
  naive.precision = "fp32", naive.fusion = "off", naive.recompute = "none", naive.optimizer = "adamw-unfused";
  naive.pass_settings["attention"] = "naive", naive.pass_settings["loss-chunk"] = "off", naive.model.layers = 4;
  heads.model.head_dim *= 8, heads.recompute = "none";
  words.model.vocab = 100'000, words.pass_settings["loss-chunk"] = "off";
  masters.grad_accumulation = 4, masters.deterministic = true;
  for (const Recipe& r : {wide, naive, heads, words, masters}) EXPECT_LT(seq(r, needed(r, 512) - 1), 512);
}

// 8-bit weights are kept for all micro steps if this fits. Within a budget they compete with
// recompute.
TEST_F(DefaultsOfRecipes, EightBitWeightsAreKeptIfTheyFit) {
  Recipe r = long_context();
  r.model.layers = 3, r.seq = 64, r.batch = 2, r.precision = "fp8", r.grad_accumulation = 4;
  auto with = [](Recipe of, const char* weights, const std::string& recompute) {
    of.pass_settings["fp8-weights"] = weights, of.recompute = recompute;
    return of;
  };
  auto session = [&](const Recipe& of) {
    return compile(of, device, session_programs(resolve(of, device), training_use), {.verify = false});
  };
  auto bytes = [&](const char* weights, const std::string& recompute) {
    return session(with(r, weights, recompute)).limited_bytes();
  };
  auto chosen = [&](const Recipe& of, int64_t limit) {
    notes.clear();
    return resolve(with_defaults(of, device, within(limit)), device).pass_settings.at("fp8-weights");
  };
  const int64_t kept = bytes("keep", "auto");
  ASSERT_LT(bytes("again", "auto"), kept);
  EXPECT_EQ(chosen(r, kept), "keep");
  EXPECT_EQ(notes, "");
  EXPECT_EQ(chosen(r, kept - 1), "again");
  EXPECT_TRUE(contains(notes, "8-bit weights are made again") && contains(notes, "--fp8-weights")) << notes;
  notes.clear();
  EXPECT_EQ(chosen(r, 1), "again") << "nothing fits: the smaller one";
  EXPECT_FALSE(contains(notes, "8-bit weights")) << "they are not why: " << notes;
  EXPECT_EQ(chosen(with(r, "keep", "auto"), 1), "keep") << "it was given";
  Recipe one = r, bf16 = r;
  one.grad_accumulation = 1, bf16.precision = "bf16";
  EXPECT_EQ(chosen(one, kept), "again");
  EXPECT_EQ(with_defaults(bf16, device, within(1)).pass_settings.count("fp8-weights"), 0u);
  // Within a budget: the faster one. Weights made again leave room for activations.
  r.model.layers = 2, r.model.width = 1024, r.model.ff = 2816, r.seq = 512;
  const StepTimer times = assumed_step_times(session(with(r, "keep", "none")), device);
  const int64_t least = bytes("again", "full"), most = bytes("keep", "none");
  std::set<std::string> taken;
  for (double share : {0.1, 0.6, 1.0}) {
    r.recompute = "budget=" + std::to_string(least + int64_t(share * double(most - least)));
    auto ms = [&](const char* weights) {
      try {
        return times.ms(session(with_defaults(with(r, weights, r.recompute), device, within(most))), {});
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), Exit::does_not_fit);
        return std::numeric_limits<double>::infinity();
      }
    };
    const std::string faster = ms("keep") <= ms("again") ? "keep" : "again";
    EXPECT_EQ(chosen(r, most), faster) << notes;
    EXPECT_TRUE(contains(notes, ", fp8-weights " + faster + ", ")) << notes;
    taken.insert(faster);
  }
  EXPECT_EQ(taken.size(), 2u);
}

// A large vocabulary's logits are in memory for fewer tokens at a time, if only that fits.
TEST_F(DefaultsOfRecipes, TheLossHasChunksThatFit) {
  Recipe r = long_context();
  r.model.vocab = 152064, r.seq = 1024, r.batch = 8, r.precision = "bf16";
  auto bytes = [&](const Recipe& of, const char* chunk) {
    Recipe with = of;
    with.pass_settings["loss-chunk"] = chunk;
    return compile(with, device, session_programs(resolve(with, device), training_use), {.verify = false})
        .limited_bytes();
  };
  auto chosen = [&](const Recipe& of, int64_t limit) {
    notes.clear();
    return resolve(with_defaults(of, device, within(limit)), device).pass_settings.at("loss-chunk");
  };
  const int64_t whole = bytes(r, "auto"), chunks = bytes(r, "2048");
  EXPECT_GE(whole - chunks, int64_t(8192 - 2048) * 152064 * 2) << "logits in bf16";
  EXPECT_EQ(chosen(r, whole), "8192");
  EXPECT_EQ(notes, "");
  EXPECT_EQ(chosen(r, whole - 1), "2048");
  EXPECT_TRUE(contains(notes, "2048 tokens at a time") && contains(notes, "--loss-chunk")) << notes;
  chosen(r, 1);
  EXPECT_EQ(notes, "") << "nothing fits";
  Recipe given = r, small = r, words = r;
  given.pass_settings["loss-chunk"] = "4096", small.batch = 2, words.model.vocab = 257;
  EXPECT_EQ(chosen(given, chunks), "4096");
  EXPECT_EQ(chosen(small, 1), "8192") << "2048 tokens";
  EXPECT_EQ(chosen(words, 1), "8192") << "small logits";
  // Both settings: weights are made again only if chunks do not suffice.
  r.precision = "fp8", r.grad_accumulation = 4, r.model.width = 512, r.model.ff = 1408;
  auto weights = [&](int64_t limit) {
    const Recipe of = resolve(with_defaults(r, device, within(limit)), device);
    return of.pass_settings.at("fp8-weights") + " " + of.pass_settings.at("loss-chunk");
  };
  Recipe keep = r, again = r;
  keep.pass_settings["fp8-weights"] = "keep", again.pass_settings["fp8-weights"] = "again";
  ASSERT_LT(bytes(again, "2048"), bytes(keep, "2048"));
  EXPECT_EQ(weights(bytes(keep, "auto")), "keep 8192");
  EXPECT_EQ(weights(bytes(keep, "2048")), "keep 2048");
  EXPECT_EQ(weights(bytes(keep, "2048") - 1), "again 2048");
  // A budget prefers chunks to recompute.
  r.precision = "bf16", r.recompute = "budget=" + std::to_string(bytes(r, "2048"));
  EXPECT_EQ(chosen(r, int64_t(80) << 30), "2048");
  EXPECT_TRUE(contains(notes, ", loss-chunk 2048, ")) << notes;
}

TEST_F(DefaultsOfRecipes, PrecisionIsTheFasterOne) {
  Recipe r = long_context();
  r.seq = 64;
  const Device cpu = cpu_device(Isa::avx512_bf16, 1);
  auto precision = [&](std::optional<MatmulRates> rates) {
    DefaultSources from = within(int64_t(80) << 30);
    from.rates_of = [&](const Device&) { return rates; };
    return with_defaults(r, cpu, from).precision;
  };
  EXPECT_EQ(precision(MatmulRates{260e9, 150e9}), "fp32");
  EXPECT_TRUE(contains(notes, "precision fp32") && contains(notes, "260.0 GFLOP/s in fp32 and 150.0 GFLOP/s in bf16"))
      << notes;
  EXPECT_EQ(precision(MatmulRates{150e9, 260e9}), "bf16");
  notes.clear();
  EXPECT_EQ(precision({}), "auto") << "resolve() knows";
  r.precision = "bf16";
  EXPECT_EQ(precision(MatmulRates{260e9, 150e9}), "bf16") << "it was given";
  EXPECT_EQ(notes, "");
}
