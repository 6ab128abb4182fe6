// Text for experiments on a machine that has none: deterministic, of any size, with something to learn.
#pragma once
#include <cstddef>
#include <string>

namespace crest {

// Sentences of invented words. The next word depends on the last one alone (a Markov chain: 16 successors of each of
// 4096 words, the n-th with probability proportional to 1 / n, all of them drawn by Zipf's law). So a model learns
// spelling, frequencies and pairs; nothing in it spans more than two words. The same for the same size, everywhere, and
// a shorter one is the beginning of a longer one.
std::string generated_text(size_t bytes);

}  // namespace crest
