// Chooses the next token from logits: pure functions of (logits, options, sample, position).
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace crest {

struct SamplerOptions {
  double temperature = 0.8;  // divides the logits; 0: always the most probable token
  int64_t top_k = 200;       // keep the k most probable tokens; 0: all
  double top_p = 1;          // then keep the fewest most probable tokens with a sum of top_p (nucleus
                             // sampling, Holtzman et al. 2020); 1: all
  uint64_t seed = 1337;
};
// Throws usage errors: temperature below 0 or not finite, top_k below 0, top_p outside (0, 1].
void validate(const SamplerOptions& options);

struct Candidate {
  int32_t token;
  double probability;
};
// Candidates and their probabilities (sum 1). Token i has logits[i]. Sorted by probability if top_k
// or top_p apply (equal logits: lower id first), else by id. -inf means probability 0. NaN, +inf,
// and only -inf are errors.
std::vector<Candidate> distribution(std::span<const float> logits, const SamplerOptions& options);

// Draws a token as a function of (seed, sample, position). Equal prompts and seeds give equal text;
// several samples of a prompt differ. `logits` must not include vocabulary padding.
int32_t sample_token(std::span<const float> logits, const SamplerOptions& options, uint64_t sample, uint64_t position);

}  // namespace crest
