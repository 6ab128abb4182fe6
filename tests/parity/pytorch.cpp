// Crest computes PyTorch's results: logits, loss, every gradient, ten optimizer steps. Tolerances:
// README.md.
#include <fmt/format.h>

#include <cmath>

#include "checkpoint/safetensors.h"
#include "fixture.h"

using namespace crest;
using namespace parity;

namespace {

// PyTorch's own float32 is at 3e-7 to 1e-6 from float64.
constexpr double fp32_tolerance = 1e-5;

struct TestedSettings {
  const char *attention, *fusion, *recompute;
  int64_t pad_vocab;
  const char* loss_chunk = "off";
};
const TestedSettings all_settings[] = {{"flash", "on", "none", 128},      {"flash", "off", "none", 1},
                                       {"naive", "on", "selective", 128}, {"naive", "off", "full", 128},
                                       {"flash", "on", "full", 1},        {"naive", "on", "none", 1},
                                       {"flash", "on", "none", 128, "5"}, {"flash", "off", "full", 1, "7"}};

Recipe with(Recipe r, const TestedSettings& l) {
  r.attention = l.attention, r.fusion = l.fusion, r.recompute = l.recompute, r.pad_vocab = l.pad_vocab;
  r.pass_settings["loss-chunk"] = l.loss_chunk;
  return r;
}
std::string text(const TestedSettings& l) {
  return fmt::format("attention {} fusion {} recompute {} pad {} chunk {}", l.attention, l.fusion, l.recompute,
                     l.pad_vocab, l.loss_chunk);
}

// Cut into pieces, the logits are never there as a whole.
bool has_logits(const TestedSettings& l) { return l.loss_chunk == std::string("off"); }

class Parity : public testing::TestWithParam<std::string> {
 protected:
  Fixture fixture{GetParam()};
};
// Other settings are a matter of kernels and passes, and the families share them.
class ParityOfSettings : public Parity {};

void ten_steps(const Fixture& fixture, const char* fusion) {
  SessionUse use;
  use.train = use.update = true;
  auto &losses = fixture.at("steps.losses"), &norms = fixture.at("steps.grad_norms");
  Recipe r = fixture.recipe();
  r.fusion = fusion;
  Session s(fixture, r, use);
  auto before = s.weights();
  Scalars inputs = {};
  inputs.lr = float(fixture.info["optimizer"]["lr"].get<double>());
  s.executor().set_inputs(inputs);
  for (size_t i = 0; i < losses.size(); ++i) {
    s.run("train", "steps.tokens", "steps.targets", int64_t(i) * fixture.batch * fixture.seq);
    EXPECT_NEAR(s.loss("train"), losses[i], losses[i] * fp32_tolerance) << i;
    s.executor().run(s.executor().session().find("update"));
    EXPECT_NEAR(s.executor().scalars().grad_norm, norms[i], norms[i] * fp32_tolerance) << i;
  }
  EXPECT_EQ(s.executor().scalars().adam_step, int64_t(losses.size()));
  for (auto& [name, after] : s.weights()) {
    std::vector<double> delta, expected;
    auto &all = fixture.at("delta." + name), &gradient = fixture.at("grad." + name);
    double largest = 0;
    for (double g : gradient) largest = std::max(largest, std::abs(g));
    for (size_t i = 0; i < after.size(); ++i) {
      // Biases of unrotated keys: their gradient is rounding noise (README.md).
      if (name.ends_with(".bias") && std::abs(gradient[i]) < 1e-9 * largest) continue;
      delta.push_back(after[i] - before.at(name)[i]), expected.push_back(all[i]);
    }
    ASSERT_GE(4 * delta.size(), after.size()) << name;
    // Stored as f16: 11 bits; the largest entries' rounding dominates the norm.
    EXPECT_LE(distance(delta, expected), 5e-4) << name;
  }
}

}  // namespace

TEST_P(Parity, LogitsAndLossInFp32) {
  SessionUse use;
  use.validation = true;
  for (auto& l : all_settings) {
    SCOPED_TRACE(text(l));
    Session s(fixture, with(fixture.recipe(), l), use, has_logits(l));
    s.run("validation", "tokens", "targets");
    if (has_logits(l)) {
      EXPECT_LE(distance(s.logits(), fixture.at("logits")), fp32_tolerance);
    }
    EXPECT_NEAR(s.loss("validation"), fixture.at("loss")[0], fixture.at("loss")[0] * fp32_tolerance);
  }
}

TEST_P(Parity, EveryGradientInFp32) {
  SessionUse use;
  use.train = true;
  for (auto& l : all_settings) {
    SCOPED_TRACE(text(l));
    Session s(fixture, with(fixture.recipe(), l), use);
    s.run("train", "tokens", "targets");
    EXPECT_NEAR(s.loss("train"), fixture.at("loss")[0], fixture.at("loss")[0] * fp32_tolerance);
    auto gradients = s.gradients();
    EXPECT_FALSE(gradients.empty());
    for (auto& [name, g] : gradients) EXPECT_LE(distance(g, fixture.at("grad." + name)), fp32_tolerance) << name;
  }
}

TEST_P(Parity, GradientAccumulationGivesTheSameGradients) {
  SessionUse use;
  use.train = true;
  Recipe r = fixture.recipe();
  r.batch = 1, r.grad_accumulation = fixture.batch;
  Session s(fixture, r, use);
  for (int64_t m = 0; m < fixture.batch; ++m)
    s.run(m == 0 ? "train.first" : "train.next", "tokens", "targets", m * fixture.seq);
  EXPECT_NEAR(s.loss("train.first"), fixture.at("loss")[0], fixture.at("loss")[0] * fp32_tolerance);
  for (auto& [name, g] : s.gradients()) EXPECT_LE(distance(g, fixture.at("grad." + name)), fp32_tolerance) << name;
}

TEST_P(Parity, TenStepsOfAdamW) { ten_steps(fixture, "on"); }
TEST_P(ParityOfSettings, TenStepsOfAdamWWithoutFusion) { ten_steps(fixture, "off"); }

// Prefill at every length: rotary positions, masks and the cache against the whole sequence at
// once.
TEST_P(Parity, PrefillAndDecodeGiveTheSameLogits) {
  SessionUse use;
  use.sampling = true, use.prefill = 8;
  Session s(fixture, fixture.recipe(), use);
  Executor& e = s.executor();
  int prefill = e.session().find("prefill"), decode = e.session().find("decode");
  int64_t vocab = fixture.config.vocab;
  for (int64_t sample = 0; sample < fixture.batch; ++sample) {
    for (int64_t position = 0; position < fixture.seq;) {
      // Chunks of 5 in a Program of 8 (three are padding), a whole chunk of 8, then one by one.
      int64_t length = position == 0 ? 5 : position == 5 ? 8 : 1;
      int program = length == 1 ? decode : prefill;
      TensorRef tokens = e.tensor(program, "tokens"), logits = e.tensor(program, "logits");
      std::vector<int32_t> ids(size_t(tokens.shape.numel()), 0);
      for (int64_t i = 0; i < length; ++i)
        ids[size_t(i)] = int32_t(fixture.at("tokens")[size_t(sample * fixture.seq + position + i)]);
      tokens.write(ids.data());
      Scalars inputs = {};
      inputs.position = int32_t(position), inputs.length = int32_t(length);
      e.set_inputs(inputs);
      e.run(program);
      std::vector<float> answer = logits.floats(vocab);
      position += length;
      std::vector<double> row, expected;
      for (int64_t i = 0; i < vocab; ++i) {
        row.push_back(answer[size_t(i)]);
        expected.push_back(fixture.at("logits")[size_t((sample * fixture.seq + position - 1) * vocab + i)]);
      }
      EXPECT_LE(distance(row, expected), fp32_tolerance) << sample << " " << position;
    }
  }
}

// bf16 is as far from float64 as PyTorch's bf16: at most twice its error of the same tensor.
TEST_P(ParityOfSettings, Bf16IsAsGoodAsPyTorchs) {
  SessionUse use;
  use.train = use.validation = true;
  for (std::string policy : {"autocast", "pure"})
    for (auto& l : all_settings) {
      SCOPED_TRACE(policy + " " + text(l));
      auto& pytorch = fixture.info["bf16_" + policy + "_error"];
      Recipe r = with(fixture.recipe("bf16"), l);
      r.policy = policy;
      Session s(fixture, r, use, has_logits(l));
      s.run("validation", "tokens", "targets");
      if (has_logits(l)) {
        double logits = distance(s.logits(), fixture.at("logits"));
        EXPECT_LE(logits, 2 * pytorch["logits"].get<double>());
        EXPECT_GT(logits, 1e-4) << "this is not bf16";
      }
      s.run("train", "tokens", "targets");
      for (auto& [name, g] : s.gradients()) {
        double error = distance(g, fixture.at("grad." + name));
        EXPECT_LE(error, 2 * pytorch["gradients"][name].get<double>()) << name;
      }
    }
}

TEST_P(Parity, ExportedWeightsAreTheFilesBitForBit) {
  SessionUse use;
  use.train = use.update = true;
  Session s(fixture, fixture.recipe(), use);
  auto file = SafetensorsFile::open(fixture.folder + "/model.safetensors");
  auto weights = s.weights();
  EXPECT_EQ(weights.size(), file.tensors().size());
  for (size_t i = 0; i < file.tensors().size(); ++i) {
    auto& t = file.tensors()[i];
    std::vector<char> bytes(t.bytes);
    file.read(i, bytes.data(), bytes.size());
    std::vector<double> stored;
    for (int64_t e = 0; e < element_count(t.spec); ++e) stored.push_back(load_element(bytes.data(), t.spec.dtype, e));
    EXPECT_EQ(weights[t.spec.name], stored) << t.spec.name;
  }
}

static std::string fixture_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& c : name)
    if (c == '-') c = '_';
  return name;
}
INSTANTIATE_TEST_SUITE_P(PyTorch, Parity, testing::ValuesIn(names()), fixture_name);
INSTANTIATE_TEST_SUITE_P(PyTorch, ParityOfSettings,
                         testing::Values("gpt2-tiny", "llama-tiny", "llama3-tied-tiny", "mistral-tiny"), fixture_name);
