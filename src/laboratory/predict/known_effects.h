// Figures of measured effects without a formula, all in one place. tests/tune compares them with
// the pages of results.
#pragma once

namespace crest {

struct KnownEffect {
  const char* text;     // with model and device
  const char* page;     // docs/results/...
  const char* figures;  // as written on the page
};

// The cost of --precision fp8.
inline constexpr KnownEffect fp8_loss = {
    "loss +0.28% (95%: -0.02% to +0.57%) against bf16 after 2,000 steps of gpt2-124M on H100 and H200",
    "docs/results/fp8.md", "+0.28% (-0.02% to +0.57%)"};

// The gain of padding an odd vocabulary.
inline constexpr KnownEffect unpadded_vocabulary = {
    "a step of gpt2-124M, batch 16, on an H200 took 27.5 ms with 50,257 and 26.95 ms with 50,304: 2% less",
    "docs/results/performance.md",
    "vocabulary of 50,257 without padding (`--pad-vocab 1`), B=16 | 27.5 ms; 26.95 with a padded vocabulary"};

}  // namespace crest
