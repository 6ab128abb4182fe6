// Reads batches ahead in threads (data/loader.h) and passes samples to an engine. Has one
// Prefetcher for each part of the global batch.
#pragma once
#include <map>
#include <memory>

#include "data/loader.h"
#include "model/recipe.h"

namespace crest {

class ReadAheadSource {
 public:
  // Starts at optimizer step `first_step`, for the ranks of this process: first_rank and the
  // data_parallel - 1 after it. Ranks with one data coordinate share a batch. The reader's source
  // must outlive this object.
  ReadAheadSource(const SampleReader& reader, const Recipe& recipe, int64_t first_step, ReadAhead ahead,
                  int first_rank = 0);
  // Returns a sample. The engine must request each data coordinate's samples in order, batch by
  // batch.
  void sample(uint64_t global_sample, int32_t* tokens, int32_t* targets, int32_t* positions = nullptr);

 private:
  struct Part {
    std::unique_ptr<Prefetcher> prefetcher;
    const Batch* batch = nullptr;
  };
  int64_t batch_, seq_;
  uint64_t parts_;
  std::map<uint64_t, Part> own_;  // by data coordinate
};

}  // namespace crest
