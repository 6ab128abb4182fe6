#include "train/read_ahead.h"

#include <algorithm>

#include "core/error.h"

namespace crest {

ReadAheadSource::ReadAheadSource(const Loader& loader, const Recipe& r, int64_t first_step, ReadAhead ahead,
                                 int first_rank)
    : batch_(r.batch), seq_(loader.seq()), world_(uint64_t(r.world_size())), first_rank_(uint64_t(first_rank)) {
  auto world = world_, batch = uint64_t(r.batch);
  for (uint64_t rank = first_rank_; rank < first_rank_ + uint64_t(r.data_parallel); ++rank) {
    auto samples = [=](uint64_t micro_step) { return micro_batch_samples(micro_step, 0, 1, rank, world, batch); };
    auto first = uint64_t(first_step * r.grad_accumulation);
    ranks_.push_back({std::make_unique<Prefetcher>(loader, samples, first, UINT64_MAX, ahead), nullptr});
  }
}

void ReadAheadSource::sample(uint64_t global, int32_t* tokens, int32_t* targets, int32_t* positions) {
  uint64_t row = global % uint64_t(batch_);
  Rank& rank = ranks_.at(global / uint64_t(batch_) % world_ - first_rank_);
  if (row == 0) rank.batch = nullptr, rank.batch = &rank.prefetcher->next();
  if (!rank.batch || rank.batch->samples[row] != global) fail_internal("samples were not requested in order", "loader");
  const int64_t at = int64_t(row) * seq_;
  std::copy_n(rank.batch->tokens.data() + at, seq_, tokens);
  std::copy_n(rank.batch->targets.data() + at, seq_, targets);
  if (positions) std::copy_n(rank.batch->positions.data() + at, seq_, positions);
}

}  // namespace crest
