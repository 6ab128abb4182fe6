// A continued run has the bits of an uninterrupted run: with every optimizer, policy, form of
// masters and precision, and with weights that are special for rounding: ties, denormals, the edge
// of infinity, NaN.
#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <filesystem>

#include "checkpoint/checkpoint.h"
#include "core/random.h"
#include "memory_folder.h"
#include "passes/fp8.h"
#include "train/harness.h"
#include "train/run_state.h"

using namespace crest;

namespace {

std::vector<Recipe> recipes() {
  std::vector<Recipe> list;
  for (const char* optimizer :
       {"adamw", "adamw-unfused", "adamw-8bit", "adamw-fp8", "sgd", "lion", "adafactor", "adafactor-momentum", "muon",
        "adamw-bf16", "adamw-bf16-kahan", "adamw-bf16-stochastic"})
    for (const char* precision : {"fp32", "bf16", "fp16", "fp8"})
      for (const char* policy : {"pure", "autocast"})
        for (const char* masters : {"split", "fp32"}) {
          bool half_state = std::string(optimizer).find("bf16") != std::string::npos;
          bool pure_half = std::string(policy) == "pure" && std::string(precision) != "fp32";
          if (half_state && !(pure_half && std::string(precision) == "bf16")) continue;
          if (std::string(precision) == "fp32" && std::string(policy) != "pure") continue;
          // The history of its scales is the same with every optimizer.
          if (std::string(precision) == "fp8" && (std::string(policy) != "pure" || std::string(optimizer) != "adamw"))
            continue;
          if (std::string(masters) == "fp32" && (!pure_half || half_state)) continue;
          Recipe r = tiny_recipe();
          r.optimizer = optimizer, r.precision = precision, r.policy = policy;
          r.weight_decay = 0;
          r.batch = 1, r.seq = 9;
          r.pass_settings["master-weights"] = masters;
          list.push_back(r);
          r.pass_settings["fp8-weights"] = "update";
          if (r.precision == "fp8") list.push_back(r);
        }
  return list;
}

std::string name_of(const Recipe& r) {
  std::string weights = r.pass_settings.count("fp8-weights") ? " weights " + r.pass_settings.at("fp8-weights") : "";
  return r.optimizer + " " + r.precision + " " + r.policy + " masters " + r.pass_settings.at("master-weights") +
         weights;
}

enum class Weights { usual, all };

// Numbers with special rounding to bf16 or fp16, among usual ones.
float special(uint64_t i, float usual, Weights weights) {
  uint32_t random = random_bits(23, 4, i), bits = std::bit_cast<uint32_t>(usual);
  uint32_t sign = random & 0x80000000u;
  switch (i % 8) {
    case 0: return std::bit_cast<float>((bits & 0xffff0000u) | 0x8000u);  // a tie of bf16
    case 1: return std::bit_cast<float>((bits & 0xffffe000u) | 0x1000u);  // a tie of fp16
    case 2: return std::bit_cast<float>(sign | (random & 0x7fffffu));     // denormal
    case 3: return std::bit_cast<float>(sign | ((random & 0x7fu) << 16) | 0x8000u);
    case 4: return std::bit_cast<float>(sign);
    case 5:
      if (weights == Weights::usual) break;
      if (i % 64 == 5) return std::bit_cast<float>(sign | 0x7f800000u);
      if (i % 64 == 13) return std::bit_cast<float>(sign | 0x7f800001u | (random & 0x7fffffu));
      return std::bit_cast<float>(sign | 0x7f7f8000u | (random & 0x7fffu));
    default: break;
  }
  return usual;
}

void plant(Engine& e, Weights weights) {
  uint64_t place = 0;
  for (auto& p : parameters(e.rank(0))) {
    std::vector<float> x(size_t(p.numel()));
    p.get(x.data());
    for (float& v : x) v = special(place++, v, weights);
    p.set(x.data());
  }
  e.weights_changed();
}

// Inputs of a step: weights, masters, states, each as bytes.
std::vector<std::string> bytes_of(Engine& e) {
  std::vector<std::string> all;
  auto add = [&](const TensorRef& t) {
    all.emplace_back(size_t(t.bytes()), 0);
    t.read(all.back().data());
  };
  for (auto& p : parameters(e.rank(0))) {
    add(p.weight);
    if (p.master.data != p.weight.data) add(p.master);
    for (auto& s : p.states) add(s.tensor);
  }
  if (int update = e.session().find("update"); e.rank(0).has(update, fp8_amax)) add(e.rank(0).tensor(update, fp8_amax));
  return all;
}

void continue_as(Engine& from, Engine& to) {
  MemoryFolder folder;
  std::string root = folder.path();
  RunState state;
  const Scalars s = from.rank(0).scalars();
  state.step = s.adam_step + s.skipped, state.seed = 11, state.threads = 2;
  EXPECT_TRUE(save_checkpoint(contents_to_save(from, state, "", nullptr, false), root, 0).warnings.empty());
  EXPECT_EQ(restore(to, Checkpoint::open(root + "/" + checkpoint_name(state.step))).step, state.step);
}

}  // namespace

// An update that changes nothing writes every weight again from its master. The result equals a
// restored checkpoint.
TEST(SameBits, RestoringRoundsAsEveryUpdateDoes) {
  int64_t weights = 0;
  for (const Recipe& r : recipes()) {
    SCOPED_TRACE(name_of(r));
    Engine updated = make_engine(r), restored = make_engine(r);
    plant(updated, Weights::all);
    Executor& executor = updated.rank(0);
    Scalars s = executor.scalars();
    s.lr = 0, s.grad_factor = 1;
    executor.set_scalars(s);
    std::vector<std::string> planted = bytes_of(updated);
    executor.run(updated.session().find("update"));
    EXPECT_EQ(executor.scalars().adam_step, 1) << "the update was skipped";
    continue_as(updated, restored);
    std::vector<std::string> a = bytes_of(updated), b = bytes_of(restored);
    ASSERT_EQ(a.size(), b.size());
    int different = 0;
    for (size_t i = 0; i < a.size(); ++i) different += a[i] != b[i];
    EXPECT_EQ(different, 0) << "of " << a.size() << " tensors";
    for (auto& p : parameters(executor)) weights += p.numel();
  }
  EXPECT_GT(weights, 1'000'000);
}

TEST(SameBits, ARunInTwoPiecesIsTheRunInOne) {
  for (const Recipe& r : recipes()) {
    SCOPED_TRACE(name_of(r));
    SampleSource source = [&](uint64_t g, int32_t* x, int32_t* y, int32_t*) { synthetic(r, g, x, y); };
    std::vector<double> losses, cut_losses;
    // Steps of no size keep ties, until the run has been cut.
    auto steps = [&](Engine& e, int from, int to, std::vector<double>& out) {
      for (int s = from; s < to; ++s) out.push_back(e.step(s, s < 4 ? 0 : 1e-3, 11, source).loss);
    };
    Engine whole = make_engine(r), first = make_engine(r), second = make_engine(r);
    plant(whole, Weights::usual), plant(first, Weights::usual);
    steps(whole, 0, 6, losses);
    steps(first, 0, 3, cut_losses);
    continue_as(first, second);
    steps(second, 3, 6, cut_losses);
    EXPECT_EQ(losses, cut_losses);
    EXPECT_EQ(bytes_of(whole) == bytes_of(second), true);
    EXPECT_TRUE(std::isfinite(losses.back()));
  }
}

// The form of the masters changes memory only.
TEST(SameBits, MastersInHalvesAndWholeOnesTrainAlike) {
  for (const char* optimizer : {"adamw", "adamw-8bit", "sgd", "lion", "adafactor", "adafactor-momentum", "muon"}) {
    SCOPED_TRACE(optimizer);
    Recipe split = tiny_recipe();
    split.optimizer = optimizer, split.precision = "bf16";
    Recipe whole = split;
    whole.pass_settings["master-weights"] = "fp32";
    Trained a = train(split, 6), b = train(whole, 6);
    EXPECT_EQ(a.losses, b.losses);
    EXPECT_EQ(a.weights, b.weights);
  }
}
