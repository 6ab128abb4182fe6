#include "train/read_ahead.h"

#include <algorithm>

#include "core/error.h"

namespace crest {

ReadAheadSource::ReadAheadSource(const SampleReader& reader, const Recipe& r, int64_t first_step, ReadAhead ahead,
                                 int first_rank)
    : batch_(r.batch), seq_(reader.seq), parts_(uint64_t(r.data_ranks())) {
  const Mesh mesh = r.layout();
  auto parts = parts_, batch = uint64_t(r.batch);
  for (int rank = first_rank; rank < first_rank + r.data_parallel; ++rank) {
    auto part = uint64_t(mesh.coordinate(rank, Axis::data));
    if (own_.count(part)) continue;
    auto samples = [=](uint64_t micro_step) { return micro_batch_samples(micro_step, 0, 1, part, parts, batch); };
    auto first = uint64_t(first_step * r.grad_accumulation);
    own_[part].prefetcher = std::make_unique<Prefetcher>(reader, samples, first, UINT64_MAX, ahead);
  }
}

void ReadAheadSource::sample(uint64_t global, int32_t* tokens, int32_t* targets, int32_t* positions) {
  uint64_t row = global % uint64_t(batch_);
  Part& part = own_.at(global / uint64_t(batch_) % parts_);
  if (row == 0) part.batch = nullptr, part.batch = &part.prefetcher->next();
  if (!part.batch || part.batch->samples[row] != global) fail_internal("samples were not requested in order", "loader");
  const int64_t at = int64_t(row) * seq_;
  std::copy_n(part.batch->tokens.data() + at, seq_, tokens);
  std::copy_n(part.batch->targets.data() + at, seq_, targets);
  if (positions) std::copy_n(part.batch->positions.data() + at, seq_, positions);
}

}  // namespace crest
