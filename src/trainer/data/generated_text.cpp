#include "data/generated_text.h"

#include <cctype>
#include <cstdint>
#include <vector>

#include "core/random.h"

namespace crest {

namespace {

constexpr uint64_t seed = 1, word_count = 4096, successors = 16;
enum Stream : uint64_t { spelling, chain, choices, endings };

// Draws 0, 1, ... n - 1 with probability proportional to 1 / (i + 1). Integers only: floating-point
// results may differ between machines.
class Zipf {
 public:
  explicit Zipf(uint64_t n) {
    for (uint64_t i = 1; i <= n; ++i) sums_.push_back((sums_.empty() ? 0 : sums_.back()) + (uint64_t(1) << 32) / i);
  }
  uint64_t operator()(uint32_t bits) const {
    uint64_t at = (bits * (sums_.back() >> 16)) >> 16, low = 0, high = sums_.size() - 1;
    while (low < high) {
      uint64_t middle = (low + high) / 2;
      if (at < sums_[middle])
        high = middle;
      else
        low = middle + 1;
    }
    return low;
  }

 private:
  std::vector<uint64_t> sums_;
};

// Syllables of a consonant and a vowel. Frequent words are short.
std::string invented_word(uint64_t number) {
  static const char *consonants = "bdfghklmnprstvwz", *vowels = "aeiou";
  int syllables = number < 64 ? 1 : number < 1024 ? 2 : 3;
  std::string word;
  for (int i = 0; i < syllables; ++i) {
    Random4 r = philox(seed, spelling, number * 4 + uint64_t(i));
    word += consonants[r.x[0] % 16];
    word += vowels[r.x[1] % 5];
    if (r.x[2] % 3 == 0) word += consonants[r.x[3] % 16];
  }
  return word;
}

}  // namespace

std::string generated_text(size_t bytes) {
  Zipf next_of(successors), any_of(word_count);
  std::vector<std::string> words;
  for (uint64_t w = 0; w < word_count; ++w) words.push_back(invented_word(w));
  std::string text;
  text.reserve(bytes + 64);
  uint64_t word = 0, sentences = 0;
  bool begins = true;
  for (uint64_t i = 0; text.size() < bytes; ++i) {
    uint64_t choice = next_of(random_bits(seed, choices, i));
    word = any_of(random_bits(seed, chain, word * successors + choice));
    size_t start = text.size();
    text += words[word];
    if (begins) text[start] = char(std::toupper(static_cast<unsigned char>(text[start])));
    begins = random_bits(seed, endings, i) % 12 == 0;
    text += !begins ? " " : ++sentences % 8 == 0 ? ".\n" : ". ";
  }
  text.resize(bytes);
  return text;
}

}  // namespace crest
