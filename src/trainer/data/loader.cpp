#include "data/loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "core/error.h"
#include "core/random.h"
#include "core/text.h"
#include "data/packing.h"

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
  if (seq < 1) fail_usage(fmt::format("the sequence length is {}", seq), "--seq", "It must be at least 1.");
  uint64_t total = stream.total_tokens();
  if (total < uint64_t(seq) + 1)
    fail(fmt::format("the split '{}' has {}, but a sequence of {} needs at least {}", stream.name(),
                     format_number_of(int64_t(total), "token"), seq, seq + 1),
         stream.shards().empty() ? "" : stream.shards()[0].path(),
         total >= 2 ? fmt::format("Use more text, or a shorter sequence: --seq {}.", total - 1) : "Use more text.");
  windows_ = (total - 1) / uint64_t(seq);
}

Loader::Loader(const TokenStream& stream, std::shared_ptr<const Packing> packing, uint64_t seed, SampleOrder order)
    : stream_(stream),
      packing_(std::move(packing)),
      seq_(packing_->seq()),
      seed_(seed),
      windows_(packing_->rows()),
      order_(order) {
  if (windows_ == 0)
    fail(fmt::format("the split '{}' has no document with a token to train on", stream.name()),
         stream.shards().empty() ? "" : stream.shards()[0].path(), "Use more text.");
}

uint64_t Loader::window_of(uint64_t global_sample) const {
  uint64_t epoch = global_sample / windows_, i = global_sample % windows_;
  if (order_ == SampleOrder::sequential) return i;
  return Permutation(windows_, mix(mix(seed_) ^ epoch))(i);
}

void Loader::read(uint64_t begin, size_t n, int32_t* tokens, int32_t* targets) const {
  stream_.read(begin, n, tokens);
  std::copy(tokens + 1, tokens + n, targets);
  stream_.read(begin + n, 1, targets + n - 1);
  if (!stream_.masked()) return;
  std::vector<uint8_t> trained(n);
  stream_.read_mask(begin + 1, n, trained.data());
  for (size_t i = 0; i < n; ++i)
    if (!trained[i]) targets[i] = -1;
}

void Loader::sample(uint64_t global_sample, int32_t* tokens, int32_t* targets, int32_t* positions) const {
  if (delay_.count() > 0) std::this_thread::sleep_for(delay_);
  uint64_t window = window_of(global_sample);
  if (!packed()) {
    read(window * uint64_t(seq_), size_t(seq_), tokens, targets);
    if (positions) std::iota(positions, positions + seq_, 0);
    return;
  }
  // Every slot of padding is a document of its own.
  std::fill_n(tokens, seq_, int32_t(packing_->padding()));
  std::fill_n(targets, seq_, -1);
  if (positions) std::fill_n(positions, seq_, 0);
  for (auto& piece : packing_->row(window)) {
    read(piece.begin, piece.slots, tokens, targets);
    if (positions) std::iota(positions, positions + piece.slots, 0), positions += piece.slots;
    tokens += piece.slots, targets += piece.slots;
  }
}

SampleReader::SampleReader(const Loader& loader)
    : SampleReader(loader.seq(), loader.packed(),
                   [&loader](uint64_t g, int32_t* x, int32_t* y, int32_t* p) { loader.sample(g, x, y, p); }) {}

void SampleReader::batch(std::span<const uint64_t> samples, int32_t* tokens, int32_t* targets,
                         int32_t* positions) const {
  for (size_t i = 0; i < samples.size(); ++i)
    read(samples[i], tokens + int64_t(i) * seq, targets + int64_t(i) * seq,
         positions ? positions + int64_t(i) * seq : nullptr);
}

std::vector<uint64_t> micro_batch_samples(uint64_t step, uint64_t micro_step, uint64_t micro_steps, uint64_t rank,
                                          uint64_t world, uint64_t batch) {
  std::vector<uint64_t> samples(batch);
  uint64_t first = ((step * micro_steps + micro_step) * world + rank) * batch;
  for (uint64_t i = 0; i < batch; ++i) samples[i] = first + i;
  return samples;
}

Prefetcher::Prefetcher(SampleReader reader, Samples samples, uint64_t first, uint64_t end, ReadAhead ahead)
    : reader_(std::move(reader)),
      samples_(std::move(samples)),
      end_(end),
      ahead_(uint64_t(std::max(1, ahead.batches))),
      ring_(ahead_ + 1),
      begun_(first),
      taken_(first) {
  auto failed = [this](const std::exception_ptr& error) {
    std::lock_guard lock(mutex_);
    failed_ = error;
    changed_.notify_all();
  };
  try {
    for (int i = 0; i < std::max(1, ahead.threads); ++i) threads_.emplace_back([this] { work(); }, failed);
  } catch (...) {
    stop();
    throw;
  }
}

Prefetcher::~Prefetcher() { stop(); }

void Prefetcher::stop() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  threads_.clear();
}

void Prefetcher::read(uint64_t index, Slot& slot) const {
  Batch& b = slot.batch;
  try {
    b.index = index;
    b.samples = samples_(index);
    b.tokens.resize(b.samples.size() * size_t(reader_.seq));
    b.targets.resize(b.tokens.size());
    b.positions.resize(reader_.packed ? b.tokens.size() : 0);
    reader_.batch(b.samples, b.tokens.data(), b.targets.data(), b.positions.empty() ? nullptr : b.positions.data());
  } catch (...) {
    slot.error = std::current_exception();
  }
}

// A slot belongs to the thread reading its batch, then to the reader taking it.
void Prefetcher::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || begun_ >= end_ || begun_ < taken_ + ahead_; });
    if (stop_ || begun_ >= end_) return;
    uint64_t i = begun_++;
    Slot& slot = ring_[i % ring_.size()];
    lock.unlock();
    read(i, slot);
    lock.lock();
    slot.ready = i;
    changed_.notify_all();
    if (slot.error) return;
  }
}

const Batch& Prefetcher::next() {
  std::unique_lock lock(mutex_);
  if (taken_ >= end_)
    fail_internal(fmt::format("batch {} was requested, but the last one is {}", taken_, end_ - 1), "prefetcher");
  Slot& slot = ring_[taken_ % ring_.size()];
  changed_.wait(lock, [&] { return failed_ || slot.ready == taken_; });
  if (failed_) std::rethrow_exception(failed_);
  if (slot.error) std::rethrow_exception(slot.error);
  ++taken_;
  changed_.notify_all();
  return slot.batch;
}

}  // namespace crest
