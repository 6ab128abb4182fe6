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

// The cost of misaligned products on Hopper, in bf16.
inline constexpr KnownEffect hopper_alignment = {
    "an H200 multiplied 16384 x 768 by 768 x N in bf16 at 818.6 TFLOP/s with N = 50304 (128 bytes), 745.7 with 50272 "
    "(64 bytes), 723.5 with 50264 (16 bytes) and 102 with 50257 (2 bytes)",
    "docs/results/h200/lab.md", "| 50272 | 1.696 | 745.743 | algorithm 66, stages 64xauto, cluster 1x2x1 | 128x288 |"};

// The cost of head sizes in flash attention on Hopper, in bf16.
inline constexpr KnownEffect hopper_head_sizes = {
    "on an H200, attention of width 2560 took 0.4777 ms with heads of 128, 0.5099 with 64, 1.176 with 80 and 1.284 "
    "with 32 (8 sequences of 1024 tokens, forward and backward)",
    "docs/results/h200/lab.md", "| flash | 32 | 1.176 | 150.5 GFLOP | 7.269 |"};

}  // namespace crest
