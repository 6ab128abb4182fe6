#include "plan/flops_rate.h"

#include <nlohmann/json.hpp>

#include "model/parameters.h"

namespace crest {

const std::vector<std::string> timed_recompute = {"none", "selective", "full"};

namespace {

// Narayanan's formula applies to GPT's layers only.
bool is_gpt(const ModelConfig& m) {
  return m.ff == 4 * m.width && m.kv_heads == m.heads && m.heads * m.head_dim == m.width && !gated(m.activation);
}

}  // namespace

std::vector<FlopsRate> flops_rates(const TimedStep& s) {
  const double tokens = s.tokens();
  const bool full = s.recompute == "full", selective = s.recompute == "selective";
  std::vector<FlopsRate> rates;
  if (s.model) {
    const ModelConfig& m = *s.model;
    const auto layers = double(m.layers), width = double(m.width), vocab = double(m.vocab), seq = double(s.seq);
    const double head = vocab * width, scores = 4 * layers * double(m.heads * m.head_dim) * m.keys_per_token(s.seq);
    FlopsRate palm{"PaLM", "(6 N + 12 L a d s) tokens", "Chowdhery et al. 2022 (arXiv 2204.02311), appendix B"};
    palm.model = palm.hardware = flops_per_token(m, s.seq) * tokens;
    // One more forward pass of the layers, without the head.
    if (full) palm.hardware += (2 * (double(matmul_parameter_count(m)) - head) + scores) * tokens;
    if (selective) palm.hardware += scores * tokens;
    rates.push_back(palm);
    if (is_gpt(m) && !selective) {
      FlopsRate megatron{"Megatron",
                         full ? "96 B s L h^2 (1 + s/(6 h) + V/(16 L h))" : "72 B s L h^2 (1 + s/(6 h) + V/(12 L h))",
                         "Narayanan et al. 2021 (arXiv 2104.04473), equation 3"};
      auto of = [&](double passes, double of_vocab) {
        return passes * tokens * layers * width * width * (1 + seq / (6 * width) + vocab / (of_vocab * layers * width));
      };
      megatron.model = of(72, 12), megatron.hardware = full ? of(96, 16) : megatron.model;
      rates.push_back(megatron);
    }
  }
  if (!selective) {
    FlopsRate simple{full ? "4 x 2 P" : "3 x 2 P", full ? "2 x 4 P tokens" : "2 x 3 P tokens",
                     "Software Tune Up, TFLOPS as a performance metric"};
    simple.model = 6 * s.parameters * tokens, simple.hardware = (full ? 8 : 6) * s.parameters * tokens;
    rates.push_back(simple);
  }
  return rates;
}

nlohmann::ordered_json to_json(const TimedStep& s, const std::vector<FlopsRate>& rates) {
  using Json = nlohmann::ordered_json;
  const double gpu_seconds = s.seconds * s.ranks;
  auto of_peak = [&](double flops) { return s.peak > 0 ? Json(flops / gpu_seconds / s.peak) : Json(); };
  Json list = Json::array();
  for (const FlopsRate& r : rates)
    list.push_back({{"convention", r.name},
                    {"formula", r.formula},
                    {"source", r.source},
                    {"model_flops", r.model},
                    {"hardware_flops", r.hardware},
                    {"model_flops_per_second", r.model / gpu_seconds},
                    {"hardware_flops_per_second", r.hardware / gpu_seconds},
                    {"mfu", of_peak(r.model)},
                    {"hfu", of_peak(r.hardware)}});
  return {{"model", s.model ? Json(s.model->name) : Json()},
          {"parameters", s.parameters},
          {"step_ms", 1e3 * s.seconds},
          {"ranks", s.ranks},
          {"tokens", s.tokens()},
          {"tokens_per_second", s.tokens_per_second()},
          {"recompute", s.recompute},
          {"peak_flops_per_second", s.peak > 0 ? Json(s.peak) : Json()},
          {"conventions", list}};
}

}  // namespace crest
