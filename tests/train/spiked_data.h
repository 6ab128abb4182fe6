// Data with a spike of the loss: texts that nobody can predict, in the windows of some steps.
#pragma once
#include <filesystem>
#include <fstream>
#include <string>

#include "core/random.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "data/prepare.h"

namespace crest::test {

// Prepares FOLDER/NAME in bytes: regular text, except for noise in the windows of the samples from
// `begin` to `end` - 1 of a run with this sequence length and seed.
inline void prepare_spiked(const std::filesystem::path& folder, const std::string& name, size_t seq, uint64_t seed,
                           uint64_t begin, uint64_t end) {
  std::string text;
  while (text.size() < 300 * seq) text += "word and ";
  const auto prepare_as = [&](const std::string& to) {
    std::ofstream(folder / "spike.txt") << text;
    PrepareOptions p;
    p.inputs = {folder / "spike.txt"}, p.out = folder / to;
    prepare(p);
  };
  prepare_as(name + "-calm");
  const Dataset data = Dataset::open(folder / (name + "-calm"));
  const Loader order(data.train(), int64_t(seq), seed);
  for (uint64_t sample = begin; sample < end; ++sample)
    for (size_t i = 0; i < seq; ++i)
      text[order.window_of(sample) * seq + i] = char('A' + random_bits(3, sample, i) % 26);
  prepare_as(name);
}

}  // namespace crest::test
