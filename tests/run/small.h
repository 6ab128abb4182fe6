// Small models, their sessions, and temporary folders for the tests of this folder.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/random.h"
#include "core/temporary_folder.h"
#include "device.h"
#include "plan/compile.h"
#include "run/executor.h"
#include "run/parameters.h"

namespace crest::test {

inline void write_text(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

// The action must throw a crest::Error with every part in its text.
inline void expect_error(const std::function<void()>& action, const std::vector<std::string>& parts,
                         Exit code = Exit::failed) {
  try {
    action();
  } catch (const Error& e) {
    for (auto& p : parts)
      EXPECT_NE(std::string(e.what()).find(p), std::string::npos) << "no '" << p << "' in\n" << e.what();
    EXPECT_EQ(e.code(), code) << e.what();
    return;
  }
  ADD_FAILURE() << "no error" << (parts.empty() ? "" : " with " + parts[0]);
}

// "gpt2": learned positions, biases, tied; "llama": RoPE, grouped queries, SwiGLU, untied;
// "windows": a llama with a sliding window in its second layer; "mixed": an architecture without a
// name in transformers; "capped": a cap of logits, norms without weights.
inline ModelConfig small_model(const std::string& shape) {
  ModelConfig c;
  c.name = shape, c.layers = 2, c.vocab = 97, c.context = 33;
  c.heads = c.kv_heads = 3, c.head_dim = 16, c.width = 48, c.ff = 144;
  if (shape == "llama" || shape == "windows") {
    c.heads = 4, c.kv_heads = 2, c.head_dim = 12, c.ff = 96;
    c.norm = NormKind::rms, c.position = PositionKind::rope, c.activation = ActivationKind::swiglu;
    c.bias = false, c.tied = false;
  }
  if (shape == "windows") c.window = 7, see_all_in_first(c, 1);
  if (shape == "capped") {
    c.norm = NormKind::rms, c.position = PositionKind::rope, c.activation = ActivationKind::relu2, c.bias = false;
    c.norm_weight = false, c.embedding_norm = true, c.qk_norm = QkNorm::head, c.logit_cap = 2;
  }
  if (shape == "mixed") c.position = PositionKind::rope, c.activation = ActivationKind::relu, c.tied = false;
  return c;
}

inline Recipe small_recipe(const std::string& shape, const std::string& precision = "fp32") {
  Recipe r;
  r.model = small_model(shape);
  r.batch = 2;
  r.precision = precision;
  return r;
}

// A session with its executor.
struct Runner {
  CompiledSession session;
  std::unique_ptr<Executor> executor;
  Runner(const Recipe& recipe, const SessionUse& use) {
    Device device = crest::test::test_device(2);
    session = compile(recipe, device, session_programs(recipe, use));
    executor = std::make_unique<Executor>(session);
  }
};

// Weights large enough for different logits, probabilities and attention from token to token.
inline void lively_weights(const Executor& executor, uint64_t seed) {
  uint64_t stream = 100;
  for (auto& p : parameters(executor)) {
    std::vector<float> values(size_t(p.numel()));
    double mean = p.shape.rank() == 1 ? p.info->init_mean : 0;
    double std = p.shape.rank() == 1 ? 0.1 : p.name[0] == 'h' ? 1.5 / std::sqrt(double(p.shape.back())) : 0.5;
    for (size_t i = 0; i < values.size(); ++i) values[i] = float(mean + std * normal(seed, stream, i));
    p.set(values.data());
    ++stream;
  }
}

inline std::vector<int32_t> random_tokens(int64_t count, int64_t vocab, uint64_t seed) {
  std::vector<int32_t> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(int32_t(random_bits(seed, 7, uint64_t(i)) % uint64_t(vocab)));
  return out;
}

// -ln p of every token.
inline std::vector<double> negative_log_probabilities(std::span<const float> logits) {
  double top = -INFINITY, sum = 0;
  for (float x : logits) top = std::max(top, double(x));
  for (float x : logits) sum += std::exp(x - top);
  std::vector<double> out;
  for (float x : logits) out.push_back(top + std::log(sum) - x);
  return out;
}

inline double relative_l2(std::span<const double> found, std::span<const double> expected) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    difference += (found[i] - expected[i]) * (found[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  return std::sqrt(difference / norm);
}

}  // namespace crest::test
