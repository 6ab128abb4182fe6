#include "run/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/random.h"

namespace crest {

void validate(const SamplerOptions& o) {
  if (!(o.temperature >= 0) || !std::isfinite(o.temperature))
    fail_usage(fmt::format("'{}' is out of range", o.temperature), "--temperature",
               "It must be at least 0 (0: always the most probable token; 1: the model's own probabilities).");
  if (o.top_k < 0)
    fail_usage(fmt::format("'{}' is out of range", o.top_k), "--top-k", "It must be at least 0 (0: all tokens).");
  if (!(o.top_p > 0 && o.top_p <= 1))
    fail_usage(fmt::format("'{}' is out of range", o.top_p), "--top-p",
               "It must be above 0 and at most 1 (1: all tokens).");
}

// The first token with the largest logit. Checks all logits.
static size_t checked_maximum(std::span<const float> logits) {
  float top = -INFINITY;
  size_t best = 0;
  bool valid = true;
  for (size_t i = 0; i < logits.size(); ++i) {
    valid &= logits[i] < INFINITY;  // also false for NaN
    if (logits[i] > top) top = logits[i], best = i;
  }
  if (!valid) {
    auto bad = std::find_if_not(logits.begin(), logits.end(), [](float x) { return x < INFINITY; });
    fail(fmt::format("the model's output is {} for token {}", *bad, bad - logits.begin()), "",
         "The weights contain NaN or infinity, or a precision below fp32 overflows: then try --precision fp32.");
  }
  if (top == -INFINITY) fail("the model gives every token probability 0", "", "The weights are damaged.");
  return best;
}

static void normalize(std::vector<Candidate>& list) {
  double sum = 0;
  for (auto& c : list) sum += c.probability;
  for (auto& c : list) c.probability /= sum;
}

std::vector<Candidate> distribution(std::span<const float> logits, const SamplerOptions& o) {
  size_t best = checked_maximum(logits);
  if (o.temperature == 0) return {{int32_t(best), 1.0}};
  double top = logits[best];
  std::vector<Candidate> list;
  auto before = [&](const Candidate& a, const Candidate& b) {
    float x = logits[size_t(a.token)], y = logits[size_t(b.token)];
    return x != y ? x > y : a.token < b.token;
  };
  // Keeps the k best of a buffer a few times larger. A token no better than the worst of k earlier
  // ones (with lower ids) cannot be among the best.
  const size_t n = logits.size(), k = o.top_k > 0 ? std::min(size_t(o.top_k), n) : n, room = std::min(n, 4 * k);
  float bound = -INFINITY;
  auto keep_best = [&] {
    if (list.size() <= k) return;
    std::nth_element(list.begin(), list.begin() + ptrdiff_t(k - 1), list.end(), before);
    list.resize(k);
    bound = logits[size_t(list.back().token)];
  };
  list.reserve(room);
  for (size_t i = 0; i < n; ++i)
    if (logits[i] > bound) {
      if (list.size() == room) keep_best();
      if (logits[i] > bound) list.push_back({int32_t(i), 0});
    }
  keep_best();
  if (o.top_k > 0 || o.top_p < 1) std::sort(list.begin(), list.end(), before);
  for (auto& c : list) c.probability = std::exp((double(logits[size_t(c.token)]) - top) / o.temperature);
  normalize(list);
  if (o.top_p < 1) {
    double sum = 0;
    size_t n = 0;
    while (n < list.size() && sum < o.top_p) sum += list[n++].probability;
    list.resize(n);
    normalize(list);
  }
  return list;
}

int32_t sample_token(std::span<const float> logits, const SamplerOptions& o, uint64_t sample, uint64_t position) {
  std::vector<Candidate> list = distribution(logits, o);
  // A stream separate from initial weights and dropout.
  Random4 r = philox(o.seed, mix(0x53414D504C45ull + sample), position);
  double u = double((uint64_t(r.x[0]) << 32 | r.x[1]) >> 11) * 0x1p-53, sum = 0;
  for (auto& c : list) {
    sum += c.probability;
    if (u < sum) return c.token;
  }
  // Rounding may leave the sum slightly below 1. Then take the last token with nonzero probability.
  for (size_t i = list.size(); i-- > 0;)
    if (list[i].probability > 0) return list[i].token;
  fail_internal("no token was drawn", "sampler");
}

}  // namespace crest
