// Formulas of crest plan --explain memory beside the Program of the same recipe.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/error.h"
#include "device/find.h"
#include "passes/pass.h"
#include "plan/explain.h"

namespace crest::test {

namespace {

Recipe recipe(const char* model, const std::string& optimizer, const char* precision) {
  Recipe r;
  r.model = load_model_config(model);
  r.batch = 1, r.seq = 64, r.pad_vocab = 1, r.recompute = "none";
  r.precision = precision, r.optimizer = optimizer;
  return r;
}

// The terms of "training: bytes a parameter".
std::map<std::string, Term> training(const Recipe& r) {
  SessionUse use;
  use.train = use.update = true;
  CompiledSession session = compile(r, find_device("h100", 1), session_programs(r, use), {.verify = false});
  std::map<std::string, Term> terms;
  for (auto& section : explain("memory", session, {}).sections)
    if (section.title == "training: bytes a parameter")
      for (auto& t : section.terms) terms[t.name] = t;
  return terms;
}

std::vector<std::string> optimizers() {
  for (auto& row : pass_settings())
    if (row.name == std::string("optimizer")) return {row.choices.begin(), row.choices.end()};
  return {};
}

}  // namespace

// For every optimizer the formula equals the Program: weights, gradients and states. In smaller
// models, 8-bit blocks and the alignment of tensors would exceed 1%.
TEST(ExplainMemory, FormulasAgreeWithTheProgram) {
  std::set<std::string> explained;
  for (auto& optimizer : optimizers())
    for (const char* precision : {"fp32", "bf16"})
      for (const char* masters : {"split", "fp32"}) {
        Recipe r = recipe("micro", optimizer, precision);
        r.model.vocab = 1001;
        r.pass_settings["master-weights"] = masters;
        std::map<std::string, Term> terms;
        try {
          terms = training(r);
        } catch (const Error& e) {
          ASSERT_NE(std::string(e.what()).find("updates bf16 weights"), std::string::npos) << e.what();
          EXPECT_STREQ(precision, "fp32") << optimizer;
          continue;
        }
        explained.insert(optimizer);
        for (const char* name : {"weights", "optimizer state", "gradients"}) {
          const Term& t = terms.at(name);
          EXPECT_NEAR(t.value / t.program.value(), 1, 0.01)
              << optimizer << " " << precision << " " << masters << ": " << name << " " << t.numbers;
        }
        EXPECT_EQ(terms.at("optimizer state").difference, "") << optimizer;
      }
  EXPECT_GE(explained.size(), 12u);
  EXPECT_EQ(explained.size(), optimizers().size());
}

// By hand: gpt2-124M has 39,383,808 numbers in embeddings, 84,934,656 in matrices of layers and
// 121,344 in vectors; its matrices have 134,225 rows and 66,048 columns.
TEST(ExplainMemory, StatesOfGpt2) {
  struct Case {
    const char *optimizer, *precision, *formula;
    double bytes;
  };
  const double n = 124439808, vectors = 121344, matrices = n - vectors, embeddings = 39383808;
  for (const Case& c : {
           Case{"adamw", "fp32", "8 N (m, v)", 8 * n},
           Case{"adamw", "bf16", "10 N (u16 master, m, v)", 10 * n},
           Case{"adamw-unfused", "bf16", "12 N (master, m, v)", 12 * n},
           Case{"adamw-bf16-kahan", "bf16", "6 N (bf16 m, bf16 v, bf16 c)", 6 * n},
           Case{"lion", "fp32", "4 N (m)", 4 * n},
           Case{"adafactor", "fp32", "4 n(row) + 4 n(col) + 4 n(m) + 4 n(v)", 4 * 134225 + 4 * 66048 + 8 * vectors},
           Case{"muon", "fp32", "4 N (m) + 4 n(v)", 4 * n + 4 * (embeddings + vectors)},
           Case{"adamw-8bit", "fp32", "1 n(u8 m) + 4 n(m_max) + 1 n(u8 v) + 4 n(v_max) + 4 n(m) + 4 n(v)",
                (2 + 8.0 / 256) * matrices + 8 * vectors},
       }) {
    Term t = training(recipe("gpt2-124M", c.optimizer, c.precision)).at("optimizer state");
    EXPECT_EQ(t.formula, c.formula);
    EXPECT_EQ(t.value, c.bytes) << c.optimizer << ": " << t.numbers;
  }
}

}  // namespace crest::test
