// Text for experiments on a machine without data: deterministic, of any size, with something to
// learn.
#pragma once
#include <cstddef>
#include <string>

namespace crest {

// Sentences of invented words. The next word depends on the previous one only: a
// Markov chain of 4096 words with 16 successors each, the n-th with probability
// proportional to 1 / n, all drawn by Zipf's law. So a model learns spelling,
// frequencies and pairs; nothing spans more than two words. The same size gives
// the same text everywhere, and a shorter text is a prefix of a longer one.
std::string generated_text(size_t bytes);

}  // namespace crest
