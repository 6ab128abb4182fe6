// Exact deduplication of whole documents.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "data/corpus.h"

namespace crest {

struct Duplicates {
  // By document with a text, in the order of the corpus: whether an earlier one is the same.
  std::vector<bool> left_out;
  uint64_t documents = 0, duplicates = 0;
  uint64_t bytes = 0;  // of the duplicates' texts
};

// Reads the corpus once and compares its documents by their 128-bit hash (XXH3). Records are the
// same if their parts are. Memory while it reads: 40 to 48 bytes for each distinct document.
// progress: bytes of the corpus.
Duplicates find_duplicates(std::vector<SourceFile>& sources, const CorpusOptions& options,
                           const std::function<void(uint64_t done)>& progress = {});

}  // namespace crest
