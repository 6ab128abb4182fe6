#include "data/loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "core/error.h"
#include "core/random.h"

namespace crest {

Permutation::Permutation(uint64_t n, uint64_t key) : n_(n) {
  int bits = n > 1 ? std::bit_width(n - 1) : 1;
  half_ = (bits + 1) / 2;
  mask_ = (uint64_t(1) << half_) - 1;
  for (int r = 0; r < 6; ++r) keys_[r] = mix(key + uint64_t(r) * 0x9E3779B97F4A7C15ull);
}

uint64_t Permutation::operator()(uint64_t i) const {
  do {
    uint64_t left = i >> half_, right = i & mask_;
    for (uint64_t k : keys_) {
      uint64_t next = left ^ (mix(right ^ k) & mask_);
      left = right, right = next;
    }
    i = left << half_ | right;
  } while (i >= n_);
  return i;
}

Loader::Loader(const TokenStream& stream, int64_t seq, uint64_t seed, SampleOrder order)
    : stream_(stream), seq_(seq), seed_(seed), order_(order) {
  if (seq < 1) fail_usage(fmt::format("a sequence of {} tokens is not possible", seq), "--seq", "Choose at least 1.");
  uint64_t total = stream.total_tokens();
  if (total < uint64_t(seq) + 1)
    fail(fmt::format("the split '{}' has {} tokens, a sequence of {} needs at least {}", stream.name(), total, seq,
                     seq + 1),
         stream.shards().empty() ? "" : stream.shards()[0].path(),
         total >= 2 ? fmt::format("Use more text, or a shorter sequence: --seq {}.", total - 1) : "Use more text.");
  windows_ = (total - 1) / uint64_t(seq);
}

uint64_t Loader::window_of(uint64_t global_sample) const {
  uint64_t epoch = global_sample / windows_, i = global_sample % windows_;
  if (order_ == SampleOrder::sequential) return i;
  return Permutation(windows_, mix(mix(seed_) ^ epoch))(i);
}

void Loader::sample(uint64_t global_sample, int32_t* tokens, int32_t* targets) const {
  uint64_t start = window_of(global_sample) * uint64_t(seq_);
  stream_.read(start, size_t(seq_), tokens);
  std::copy(tokens + 1, tokens + seq_, targets);
  stream_.read(start + uint64_t(seq_), 1, targets + seq_ - 1);
}

void Loader::batch(std::span<const uint64_t> samples, int32_t* tokens, int32_t* targets) const {
  for (size_t i = 0; i < samples.size(); ++i) sample(samples[i], tokens + i * seq_, targets + i * seq_);
}

std::vector<uint64_t> micro_batch_samples(uint64_t step, uint64_t micro, uint64_t micros, uint64_t rank, uint64_t world,
                                          uint64_t batch) {
  std::vector<uint64_t> samples(batch);
  uint64_t first = ((step * micros + micro) * world + rank) * batch;
  for (uint64_t i = 0; i < batch; ++i) samples[i] = first + i;
  return samples;
}

Prefetcher::Prefetcher(const Loader& loader, Samples samples, uint64_t first, uint64_t end)
    : loader_(loader), samples_(std::move(samples)), first_(first), end_(end), produced_(first), taken_(first) {
  thread_ = std::thread([this] { work(); });
}

Prefetcher::~Prefetcher() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Prefetcher::work() {
  for (uint64_t i = first_; i < end_; ++i) {
    {
      // Two slots: the batch in use (taken_ - 1) and the one ahead of it.
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stop_ || i < taken_ + 1; });
      if (stop_) return;
    }
    Batch& b = ring_[i % 2];
    try {
      b.index = i;
      b.samples = samples_(i);
      b.tokens.resize(b.samples.size() * size_t(loader_.seq()));
      b.targets.resize(b.tokens.size());
      loader_.batch(b.samples, b.tokens.data(), b.targets.data());
    } catch (...) {
      std::lock_guard lock(mutex_);
      error_ = std::current_exception();
      changed_.notify_all();
      return;
    }
    std::lock_guard lock(mutex_);
    produced_ = i + 1;
    changed_.notify_all();
  }
}

const Batch& Prefetcher::next() {
  std::unique_lock lock(mutex_);
  if (taken_ >= end_)
    fail_internal(fmt::format("batch {} asked for, the last one is {}", taken_, end_ - 1), "prefetcher");
  changed_.wait(lock, [&] { return produced_ > taken_ || error_; });
  if (produced_ <= taken_) std::rethrow_exception(error_);
  const Batch& b = ring_[taken_++ % 2];
  changed_.notify_all();
  return b;
}

}  // namespace crest
