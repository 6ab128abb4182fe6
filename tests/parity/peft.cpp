// Crest opens peft's adapters and computes their logits and gradients (make_peft_fixtures.py).
#include <algorithm>

#include "checkpoint/adapter.h"
#include "core/dtype.h"
#include "fixture.h"

using namespace crest;
using namespace parity;

namespace {

constexpr double peft_tolerance = 1e-5;

std::map<std::string, std::vector<double>> peft_tensors_in(const std::string& file) {
  std::map<std::string, std::vector<double>> out;
  auto tensors = SafetensorsFile::open(file);
  for (size_t i = 0; i < tensors.tensors().size(); ++i) {
    auto& t = tensors.tensors()[i];
    std::vector<char> bytes(t.bytes);
    tensors.read(i, bytes.data(), bytes.size());
    for (int64_t e = 0; e < element_count(t.spec); ++e)
      out[t.spec.name].push_back(load_element(bytes.data(), t.spec.dtype, e));
  }
  return out;
}

class Peft : public testing::TestWithParam<std::string> {
 protected:
  Peft() : fixture(GetParam()), folder(CREST_TEST_DIR "/parity/fixtures/peft/" + GetParam()) {
    expected = peft_tensors_in(folder + "/expected.safetensors"),
    given = peft_tensors_in(folder + "/adapter_model.safetensors");
  }
  // A session with the adapter of a folder.
  Session session(const SessionUse& use, bool fused, bool keep_logits) {
    Recipe r = fixture.recipe();
    r.model = model.config;
    if (!fused) r.fusion = "off", r.attention = "naive", r.recompute = "full";
    Session s(fixture, r, use, keep_logits);
    load_weights(s.executor(), model);
    return s;
  }

  Fixture fixture;
  std::string folder;
  std::map<std::string, std::vector<double>> expected, given;
  LoadedModel model = open_model(folder, {}, fixture.folder);
};

}  // namespace

TEST_P(Peft, LogitsInFp32) {
  SessionUse use;
  use.validation = true;
  for (bool fused : {true, false}) {
    Session s = session(use, fused, true);
    s.run("validation", "tokens", "targets");
    EXPECT_LE(distance(s.logits(), expected.at("logits")), peft_tolerance);
    EXPECT_GT(distance(s.logits(), fixture.at("logits")), 0.05) << "the adapter changes the model";
  }
}

namespace {

// An adapter of peft in one of Crest's: its rows of A, its columns of B.
struct Place {
  int64_t first = 0, all = 0;  // of the rank
};

Place find_place(const std::vector<double>& theirs, const std::vector<float>& ours, int64_t columns) {
  Place p{0, int64_t(ours.size()) / columns};
  const auto rank = int64_t(theirs.size()) / columns;
  for (; p.first + rank <= p.all; ++p.first)
    if (std::equal(theirs.begin(), theirs.end(), ours.begin() + p.first * columns,
                   [](double a, float b) { return a == double(b); }))
      return p;
  ADD_FAILURE() << "the adapter is not there";
  return {0, p.all};
}

}  // namespace

TEST_P(Peft, EveryGradientInFp32) {
  SessionUse use;
  use.train = true;
  for (bool fused : {true, false}) {
    Session s = session(use, fused, false);
    s.run("train", "tokens", "targets");
    EXPECT_NEAR(s.loss("train"), expected.at("loss")[0], expected.at("loss")[0] * peft_tolerance);
    size_t compared = 0;
    for (auto& module : adapter_modules(model.config)) {
      const std::string name = "base_model.model." + module.name;
      SCOPED_TRACE(name);
      if (!given.count(name + ".lora_A.weight")) continue;
      auto &a = given.at(name + ".lora_A.weight"), &b = given.at(name + ".lora_B.weight");
      int64_t rows = 0, row = 0;
      for (auto& part : module.parts) rows += part.rows;
      const auto rank = int64_t(b.size()) / rows;
      const auto columns = int64_t(a.size()) / rank;
      // An A of peft may serve two layers here, whose gradients then add up to its own.
      std::vector<double> grad_a(a.size(), 0), grad_b;
      for (auto& layer : module.layers()) {
        const Place p = find_place(a, model.adapter->at(layer + lora_a), columns);
        std::vector<float> g = s.executor().tensor(0, "grad." + layer + lora_a).floats();
        for (size_t i = 0; i < grad_a.size(); ++i) grad_a[i] += g[size_t(p.first * columns) + i];
      }
      for (auto& part : module.parts) {
        const std::string layer = layer_of_weight(part.parameter);
        const Place p = find_place(a, model.adapter->at(layer + lora_a), columns);
        const std::vector<float>& ours = model.adapter->at(layer + lora_b);
        std::vector<float> g = s.executor().tensor(0, "grad." + layer + lora_b).floats();
        for (int64_t i = 0; i < part.rows; ++i)
          for (int64_t k = 0; k < rank; ++k) {
            const auto at = size_t((part.row + i) * p.all + p.first + k);
            // Where the factor differs between layers (alpha_pattern), our B holds it.
            grad_b.push_back(g[at] * ours[at] / b[size_t((row + i) * rank + k)]);
          }
        row += part.rows;
      }
      EXPECT_LE(distance(grad_a, expected.at("grad." + name + ".lora_A.weight")), peft_tolerance);
      EXPECT_LE(distance(grad_b, expected.at("grad." + name + ".lora_B.weight")), peft_tolerance);
      ++compared;
    }
    EXPECT_EQ(2 * compared, given.size());
  }
}

INSTANTIATE_TEST_SUITE_P(Adapters, Peft, testing::Values("llama3-tied-tiny", "phi3-tiny", "gpt2-tiny", "gpt-neox-tiny"),
                         [](auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });
