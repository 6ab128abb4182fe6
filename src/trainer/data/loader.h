// Batches as a pure function of (seed, epoch, position): no state, and independent of batch split,
// rank and world size.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "core/thread.h"
#include "data/dataset.h"

namespace crest {

// A permutation of [0, n) without a table: a balanced Feistel network (Luby and Rackoff 1988) over
// the next even number of bits, repeated until the result is below n (cycle walking: Black and
// Rogaway 2002).
class Permutation {
 public:
  Permutation(uint64_t n, uint64_t key);
  // i in [0, n)
  uint64_t operator()(uint64_t i) const;

 private:
  uint64_t n_, mask_;
  int half_;
  uint64_t keys_[6];
};

enum class SampleOrder : uint8_t { shuffled, sequential };

class Packing;

class Loader {
 public:
  // Samples of `seq` tokens (>= 1). shuffled (training): every epoch visits every window once, in
  // an order from seed and epoch. sequential (validation): windows in order. The stream must
  // outlive the loader and have at least seq + 1 tokens.
  Loader(const TokenStream& stream, int64_t seq, uint64_t seed, SampleOrder order = SampleOrder::shuffled);

  // The same with the rows of a packing as samples; it needs at least one row.
  Loader(const TokenStream& stream, std::shared_ptr<const Packing> packing, uint64_t seed,
         SampleOrder order = SampleOrder::shuffled);

  int64_t seq() const { return seq_; }
  bool packed() const { return packing_ != nullptr; }
  uint64_t samples_per_epoch() const { return windows_; }
  // The window of a sample. It starts at token window * seq.
  uint64_t window_of(uint64_t global_sample) const;
  // Whether targets may be -1: padding, and targets excluded by a loss mask.
  bool masked() const { return packed() || stream_.masked(); }
  // tokens, targets, positions: [seq] each. targets[i] is the token after tokens[i], or -1.
  // positions (may be null) are within the document or the window. Thread-safe.
  void sample(uint64_t global_sample, int32_t* tokens, int32_t* targets, int32_t* positions = nullptr) const;
  // Adds this time to every sample, as from slow storage: for experiments.
  void delay(std::chrono::duration<double> time) { delay_ = time; }

 private:
  // n slots from token `begin` of the stream.
  void read(uint64_t begin, size_t n, int32_t* tokens, int32_t* targets) const;
  const TokenStream& stream_;
  std::shared_ptr<const Packing> packing_;
  int64_t seq_;
  uint64_t seed_, windows_;
  SampleOrder order_;
  std::chrono::duration<double> delay_{0};
};

// What a step reads its samples with.
struct SampleReader {
  SampleReader(const Loader& loader);  // NOLINT(google-explicit-constructor): a loader is one
  // Writes tokens, targets and positions (may be null), as Loader::sample.
  using Read = std::function<void(uint64_t global_sample, int32_t* tokens, int32_t* targets, int32_t* positions)>;
  SampleReader(int64_t seq, bool packed, Read read) : seq(seq), packed(packed), read(std::move(read)) {}
  // tokens, targets, positions: [samples.size(), seq]
  void batch(std::span<const uint64_t> samples, int32_t* tokens, int32_t* targets, int32_t* positions = nullptr) const;

  int64_t seq;
  bool packed;  // batches have positions
  Read read;
};

// The global samples of one micro batch. The samples of a step are numbered step * (micro_steps *
// world * batch) + (micro_step * world + rank) * batch + i, so a single rank with the whole batch,
// several ranks, and accumulated micro steps see the same samples in a step.
std::vector<uint64_t> micro_batch_samples(uint64_t step, uint64_t micro_step, uint64_t micro_steps, uint64_t rank,
                                          uint64_t world, uint64_t batch);

struct Batch {
  uint64_t index = 0;                    // as requested by the prefetcher
  std::vector<uint64_t> samples;         // global sample numbers
  std::vector<int32_t> tokens, targets;  // [samples.size(), seq]
  std::vector<int32_t> positions;        // the same, for a packed loader; else empty
};

// How far ahead of the current batch to read, and with how many threads.
struct ReadAhead {
  int batches = 1, threads = 1;
};

// Reads the next batches on background threads while the current one is used.
class Prefetcher {
 public:
  // Returns the global samples of batch `index` (called on the background threads).
  using Samples = std::function<std::vector<uint64_t>(uint64_t index)>;
  // Batches first, first + 1, ... up to `end` (exclusive). The reader's source must outlive the
  // prefetcher. With one thread, it is read in order.
  Prefetcher(SampleReader reader, Samples samples, uint64_t first = 0, uint64_t end = UINT64_MAX, ReadAhead ahead = {});
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  // The next batch, valid until the next call. An error of a background thread is thrown here at
  // its batch, and again by later calls. Requesting a batch beyond `end` is an internal error.
  const Batch& next();

 private:
  struct Slot {
    Batch batch;
    uint64_t ready = UINT64_MAX;  // the batch in this slot, complete or with an error
    std::exception_ptr error;
  };
  void work();
  void stop();
  void read(uint64_t index, Slot& slot) const;
  SampleReader reader_;
  Samples samples_;
  uint64_t end_, ahead_;
  std::vector<Slot> ring_;  // the current batch and the ones ahead of it
  uint64_t begun_, taken_;  // the next batch to read; the next one to hand out
  bool stop_ = false;
  std::exception_ptr failed_;  // outside of a batch
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Thread> threads_;
};

}  // namespace crest
