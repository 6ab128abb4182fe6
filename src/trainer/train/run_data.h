// A run's data: its splits as rows of tokens, and the response to read errors during a step.
#pragma once
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/weights_io.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "data/mixture.h"
#include "data/row_stream.h"
#include "train/engine.h"
#include "train/read_ahead.h"
#include "train/run.h"
#include "train/run_state.h"

namespace crest {

// The folders of --data, or a stream without its rows.
struct TrainingData {
  std::vector<Dataset> sources;     // at least one
  std::vector<std::string> labels;  // of them, for messages
  MixtureOrder order;

  bool mixed() const { return sources.size() > 1; }
  // Of the first source that has one; all others have the same. Null: none has.
  std::shared_ptr<const Tokenizer> tokenizer() const;
  // The largest; 0: unknown.
  uint32_t vocab_size() const;
  // Of all sources.
  uint64_t train_tokens() const;
  // Of a mixture: the parts of its order, as "7:3"; else "".
  std::string weights() const;
  // Identifies the sources and their weights; "" if a folder does not state its own. weights:
  // others than weights().
  std::string content_hash() const { return content_hash(weights()); }
  std::string content_hash(const std::string& weights) const;
};
// vocab: the model's, for data without an own vocabulary; 0: unknown. Throws if the sources have
// different tokenizers.
TrainingData open_data(const TrainOptions& options, int64_t vocab = 0);

// A source of a mixture: its share of the samples, and the steps of one pass over it.
struct SourcePass {
  std::string label;
  double share, epoch;
};

class RunData {
 public:
  // Opens the data and checks its tokens against the model's vocabulary. The options must outlive
  // it. say, warn: messages for the user.
  using Say = std::function<void(const std::string&)>;
  RunData(const TrainOptions& options, const Say& say, const Say& warn);
  ~RunData();
  // Divides the splits into rows. Throws if the data is too short for one row. Waits for the first
  // frame of a stream. Call it before the rest.
  void make_rows();

  const TrainingData& data() const { return data_; }
  // Null: none.
  const Tokenizer* tokenizer() const { return tokenizer_.get(); }
  // Of the model that a run begins with. Data without a tokenizer (llm.c, nanoGPT) uses its tokens.
  void take_text(const LoadedModel& model);
  // For checkpoints: the data's template, or else the initial model's.
  ModelText model_text() const;
  // What the run trains on, in one line.
  std::string description() const;
  bool masked() const;
  bool validates() const { return !validated().empty(); }
  // Steps of one pass over the training data of all sources, or of one source; 0: a stream.
  double epoch(const Recipe& recipe) const;
  double epoch(const Recipe& recipe, size_t source) const;
  // Of a mixture.
  std::vector<SourcePass> passes(const Recipe& recipe) const;
  // The sources with rows for validation.
  std::vector<size_t> validated() const;
  int64_t val_rows(size_t source) const;
  // Of the validated source with the fewest; 0: none.
  int64_t val_rows() const;
  // Batches per validation: at most --val-batches, limited by the split, with `per_batch` rows
  // each.
  int64_t val_batches(size_t source, int64_t per_batch) const;

  // For a continued run: warns if data or threads differ from `state`, and stores the current ones
  // in it.
  void continue_from(RunState& state, int threads) const;
  // With --prefetch, starts reading ahead. A stream goes on behind the rows of `step` steps.
  // skipped: samples left out so far (RunState::skipped_samples).
  void start(const Recipe& recipe, int64_t step, int first_rank, uint64_t skipped);
  // A signal ends a step between two micro steps (Stopped), and a read error does, too (Failed).
  // The weights are then the previous step's. With several ranks, all samples of a step are read
  // before it begins (Engine::read_whole_steps). A validation with several ranks runs to its end,
  // because no rank may leave the others waiting in a reduction; error() has the error. The end of
  // a stream ends a step as a signal does (Ended).
  SampleSource training();
  SampleSource validation(size_t source, int ranks);
  // The read error of a validation with several ranks; null: none.
  std::exception_ptr error() const { return error_; }

  struct Stopped {};
  struct Ended {
    uint64_t rows;  // of the whole stream
  };
  struct Failed {
    std::exception_ptr error;
  };

 private:
  // Rows of a folder.
  struct Rows {
    std::optional<Loader> train, val;
  };
  SampleSource source(bool throws, SampleReader::Read read);
  void cut(size_t source);
  void pack(size_t source);
  void open_stream();
  // Of a source in messages about it; "" if it is the only one.
  std::string of_source(size_t source, const char* before = " of ") const;
  void compare_texts() const;

  const TrainOptions& o_;
  Say say_, warn_;
  TrainingData data_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  TextSettings text_settings_;          // the initial model's
  std::deque<Rows> rows_;               // of the sources' folders
  std::unique_ptr<RowStream> stream_;   // or of a stream
  std::optional<SampleReader> reader_;  // of either
  std::optional<ReadAheadSource> read_ahead_;
  std::exception_ptr error_;
  std::mutex error_mutex_;
};

}  // namespace crest
