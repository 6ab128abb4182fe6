// The fixtures (README.md) and a session with the same computation.
#pragma once
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/recipe.h"
#include "model/weights_map.h"
#include "plan/compile.h"
#include "run/executor.h"

namespace parity {

const std::vector<std::string>& names();

// Relative L2 distance |a - b| / |b|.
double distance(const std::vector<double>& a, const std::vector<double>& b);

struct Fixture {
  std::string folder;
  crest::ModelConfig config;
  int64_t batch = 0, seq = 0;
  nlohmann::json info;
  std::map<std::string, std::vector<double>> expected;

  explicit Fixture(const std::string& name);
  const std::vector<double>& at(const std::string& name) const;
  crest::Recipe recipe(const std::string& precision = "fp32") const;
};

// Compiled with its executor, weights loaded from the fixture.
class Session {
 public:
  // With keep_logits the validation Program keeps its logits to the end (tensor "logits", maybe
  // padded).
  Session(const Fixture& fixture, const crest::Recipe& recipe, const crest::SessionUse& use, bool keep_logits = false);
  crest::Executor& executor() { return *executor_; }

  // Runs one Program on tokens and targets (from `offset` on) of a fixture's tensors.
  void run(const std::string& program, const std::string& tokens, const std::string& targets, int64_t offset = 0);
  double loss(const std::string& program);
  // Rows of `vocab` logits of the validation Program.
  std::vector<double> logits();
  // Gradients under the names of transformers, without the loss scale.
  std::map<std::string, std::vector<double>> gradients();
  std::map<std::string, std::vector<double>> weights();

 private:
  void load();
  const Fixture& fixture_;
  crest::CompiledSession session_;
  std::unique_ptr<crest::Executor> executor_;
};

}  // namespace parity
