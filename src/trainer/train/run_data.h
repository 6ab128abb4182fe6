// The data of a run: its splits as rows of tokens,
// and the reaction to read errors during a step.
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
#include "train/run_state.h"

namespace crest {

class RunData {
 public:
  // Opens the data and checks its tokens against the model's; the options must outlive it. say,
  // warn: messages for the user.
  using Say = std::function<void(const std::string&)>;
  RunData(const TrainOptions& options, const Say& say, const Say& warn);
  // Makes rows of its splits. Throws if the data is too short for one. Comes before the rest.
  void make_rows();

  const Dataset& dataset() const { return dataset_; }
  bool masked() const { return train_->masked(); }
  bool validates() const { return val_.has_value(); }
  // Batches per validation; of --val-batches, as many as the split has, for `per_batch` rows each.
  int64_t val_rows() const { return int64_t(val_->samples_per_epoch()); }
  int64_t val_batches(int64_t per_batch) const;

  // For a continued run: warns if data or threads differ from `state`, and puts the present ones
  // into it.
  void continue_from(RunState& state, int threads) const;
  // With --prefetch, batches are read ahead from here on.
  void start(const Recipe& recipe, int64_t step, int first_rank);
  // A signal ends a step between two micro steps (Stopped), and so does a read error (Failed); the
  // weights are then those of the previous step. With several ranks, a step is read completely
  // before it begins (Engine::read_whole_steps). In a validation no rank may leave the others
  // waiting in a reduction: it runs to its end, and error() has the error.
  SampleSource training();
  SampleSource validation(int ranks);
  // The error of a validation with several ranks; null: none.
  std::exception_ptr error() const { return error_; }

  struct Stopped {};
  struct Failed {
    std::exception_ptr error;
  };

 private:
  using Read = std::function<void(uint64_t, int32_t*, int32_t*, int32_t*)>;
  SampleSource source(bool throws, Read read);
  void pack();

  const TrainOptions& o_;
  Say say_, warn_;
  Dataset dataset_;
  std::optional<Loader> train_, val_;
  std::optional<ReadAheadSource> read_ahead_;
  std::exception_ptr error_;
  std::mutex error_mutex_;
};

}  // namespace crest
