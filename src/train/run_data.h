// The data of a run: its splits as rows of tokens, and what reading them says to a step that is under way.
#pragma once
#include <exception>
#include <functional>
#include <mutex>
#include <optional>

#include "data/dataset.h"
#include "data/loader.h"
#include "train/engine.h"
#include "train/read_ahead.h"
#include "train/run.h"

namespace crest {

class RunData {
 public:
  // Opens and checks; the options must outlive it. say, warn: what a user should know.
  using Say = std::function<void(const std::string&)>;
  RunData(const TrainOptions& options, const Say& say, const Say& warn);

  const Dataset& dataset() const { return dataset_; }
  bool masked() const { return train_->masked(); }
  bool validates() const { return val_.has_value(); }
  // Batches of a validation, and of --val-batches those that the split has, for `per_batch` rows each.
  int64_t val_rows() const { return int64_t(val_->samples_per_epoch()); }
  int64_t val_batches(int64_t per_batch) const;

  // From here on batches are read ahead, with --prefetch.
  void start(const Recipe& recipe, int64_t step);
  // A signal ends a step between two micro steps (Stopped), and what cannot be read ends it, too (Failed): weights are
  // those of the step before. Several ranks read all of a step before it begins (Engine::read_whole_steps). In a
  // validation no rank may leave the others waiting in a reduction: it runs to its end, and an error is kept until
  // check().
  SampleSource training();
  SampleSource validation(int ranks);
  // Throws Failed with what reading threw in a validation of several ranks.
  void check();

  struct Stopped {};
  struct Failed {
    std::exception_ptr error;
  };

 private:
  using Read = std::function<void(uint64_t, int32_t*, int32_t*, int32_t*)>;
  SampleSource source(bool throws, Read read);
  void pack(const Say& say, const Say& warn);

  const TrainOptions& o_;
  Dataset dataset_;
  std::optional<Loader> train_, val_;
  std::optional<ReadAheadSource> read_ahead_;
  std::exception_ptr error_;
  std::mutex error_mutex_;
};

}  // namespace crest
