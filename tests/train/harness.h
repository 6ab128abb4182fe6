// A tiny training session for tests: model, recipe, synthetic data, steps.
#pragma once
#include <functional>

#include "core/random.h"
#include "device.h"
#include "run/sharded_states.h"
#include "train/engine.h"

namespace crest {

inline ModelConfig tiny_model(bool llama = false) {
  ModelConfig c = load_model_config(llama ? "llama-nano" : "nano");
  c.layers = 2, c.width = 48, c.heads = 3, c.kv_heads = llama ? 1 : 3, c.head_dim = 16, c.ff = llama ? 80 : 192;
  c.vocab = 97, c.context = 33;
  return c;
}

inline Recipe tiny_recipe(bool llama = false) {
  Recipe r;
  r.model = tiny_model(llama);
  r.batch = 4, r.seq = 17;
  r.precision = "fp32";
  return r;
}

// A learnable sequence: the next token is a fixed function of the last one, with some noise.
inline void synthetic(const Recipe& r, uint64_t sample, int32_t* tokens, int32_t* targets) {
  int64_t seq = r.seq_length(), vocab = r.model.vocab;
  auto token = int64_t(random_bits(7, sample, 0) % uint64_t(vocab));
  for (int64_t t = 0; t <= seq; ++t) {
    if (t < seq) tokens[t] = int32_t(token);
    if (t > 0) targets[t - 1] = int32_t(token);
    token = random_bits(7, sample, uint64_t(t) + 1) % 8 == 0
                ? int64_t(random_bits(8, sample, uint64_t(t)) % uint64_t(vocab))
                : (token * 5 + 3) % vocab;
  }
}

inline Engine make_engine(const Recipe& r, const Device& device) {
  SessionUse use;
  use.train = use.update = use.validation = true;
  Engine e(compile(r, device, session_programs(r, use)));
  e.initialize_weights(3);
  return e;
}
inline Engine make_engine(const Recipe& r, int threads = 2) {
  return make_engine(r, crest::test::test_device(threads));
}

struct Trained {
  std::vector<double> losses, norms;
  std::vector<std::vector<float>> weights;  // per parameter
  double validation = 0;
};

inline Trained train(const Recipe& r, int steps, double lr, const Device& device) {
  Engine e = make_engine(r, device);
  Trained t;
  SampleSource source = [&](uint64_t g, int32_t* x, int32_t* y, int32_t*) { synthetic(r, g, x, y); };
  for (int s = 0; s < steps; ++s) {
    StepResult result = e.step(s, lr, 11, source);
    t.losses.push_back(result.loss);
    t.norms.push_back(result.grad_norm);
  }
  t.validation = e.validate(2, source);
  for (auto& p : parameters(e.rank(0))) {
    std::vector<float> w(size_t(p.numel()));
    p.get(w.data());
    t.weights.push_back(std::move(w));
  }
  return t;
}

inline Trained train(const Recipe& r, int steps, double lr = 1e-3, int threads = 2) {
  return train(r, steps, lr, crest::test::test_device(threads));
}

// Calls work(parameter) for each parameter of rank 0, with whole tensors.
inline void with_parameters(Engine& e, const std::function<void(const ParameterRef&)>& work) {
  e.with_states([&] {
    const std::vector<ParameterRef> list = parameters(e.rank(0));
    ShardedStates& sharded = e.rank(0).sharded();
    for (size_t q = 0; q < list.size(); ++q) {
      std::function<void(size_t)> with_states_from = [&](size_t s) {
        if (s == list[q].states.size()) return work(list[q]);
        sharded.read(q, list[q].states[s].name, [&] { with_states_from(s + 1); });
      };
      sharded.read(q, weights_state, [&] { with_states_from(0); });
    }
  });
}

// ||a - b|| / ||b|| over all parameters.
inline double distance(const Trained& a, const Trained& b) {
  double difference = 0, norm = 0;
  for (size_t p = 0; p < b.weights.size(); ++p)
    for (size_t i = 0; i < b.weights[p].size(); ++i) {
      double d = double(a.weights[p][i]) - b.weights[p][i];
      difference += d * d, norm += double(b.weights[p][i]) * b.weights[p][i];
    }
  return std::sqrt(difference / norm);
}

}  // namespace crest
