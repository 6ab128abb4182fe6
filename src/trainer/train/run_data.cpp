#include "train/run_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "core/error.h"
#include "core/text.h"
#include "data/chat.h"
#include "data/packing.h"
#include "host/progress.h"
#include "host/stop_signal.h"
#include "passes/pass.h"

namespace crest {

// Checks tokens against the data's vocabulary. It may be smaller than the model's. If the folder
// does not state it, checks against the model's.
Dataset open_data(const TrainOptions& o, int64_t vocab) {
  if (o.streams()) {
    const std::string& name = o.stream_tokenizer;
    if (name.empty()) return Dataset::of_stream(nullptr, uint32_t(vocab));
    return Dataset::of_stream(
        std::make_shared<const Tokenizer>(name == "bytes" ? Tokenizer::bytes() : Tokenizer::load(name)), 0);
  }
  Dataset data = Dataset::open(o.data);
  return data.vocab_size() || vocab == 0 ? data : Dataset::open(o.data, uint32_t(vocab));
}

RunData::RunData(const TrainOptions& o, const Say& say, const Say& warn)
    : o_(o), say_(say), warn_(warn), dataset_(open_data(o, o.recipe.model.vocab)), tokenizer_(dataset_.tokenizer()) {
  if (dataset_.vocab_size() > uint64_t(o_.recipe.model.vocab))
    fail(fmt::format("the data has a vocabulary of {}, but the model has {}", dataset_.vocab_size(),
                     o_.recipe.model.vocab),
         printable(o_.data),
         "Prepare the data with the model's tokenizer, or train a model with the data's vocabulary (leave --vocab "
         "out).");
}

RunData::~RunData() {
  if (stream_) stream_->stop();  // before read_ahead_ waits for its threads
}

void RunData::take_text(const LoadedModel& model) {
  require_same_tokenizer(dataset_, model);
  if (!tokenizer_) tokenizer_ = model.tokenizer;
  if (!model.tokenizer_problem.empty())
    warn_("the model's tokenizer cannot be compared with the data's: " + model.tokenizer_problem);
  else if (!model.text_problem.empty())
    warn_("the model's chat template and text settings are lost: " + model.text_problem);
  // Other files name tokens, so their tokenizer must be the data's.
  if (model.tokenizer)
    text_settings_ = model.text;
  else
    text_settings_.chat_template = model.text.chat_template;
}

ModelText RunData::model_text() const {
  const ChatTemplate* form = chat_template(dataset_.info().chat_template);  // null: none, or a newer version's
  ModelText text(tokenizer_.get(), form ? std::string(form->jinja) : "", text_settings_);
  if (form && tokenizer_) text.turn_end = turn_end(*form, *tokenizer_);
  return text;
}

std::string RunData::description() const {
  if (!stream_)
    return fmt::format("{} training tokens, {} validation tokens in {}",
                       format_count(double(dataset_.train().total_tokens())),
                       format_count(double(dataset_.val().total_tokens())), printable(o_.data));
  return fmt::format("rows of {} tokens from standard input, {}", stream_->seq() + 1,
                     val_rows() ? format_number_of(val_rows(), "validation row") : "none for validation");
}

void RunData::open_stream() {
  try {
    stream_ = std::make_unique<RowStream>(o_.data_descriptor, o_.recipe.seq_length(), o_.recipe.model.vocab);
  } catch (const RowStream::Stopped&) {
    fail("a signal came before the first rows", "standard input");
  }
  reader_.emplace(stream_->seq(), false,
                  [this](uint64_t g, int32_t* x, int32_t* y, int32_t*) { stream_->sample(g, x, y); });
}

void RunData::make_rows() {
  if (o_.streams()) return open_stream();
  int64_t seq = o_.recipe.seq_length();
  if (packs_documents(o_.recipe))
    pack();
  else
    train_.emplace(dataset_.train(), seq, o_.seed);
  reader_.emplace(*train_);
  train_->delay(std::chrono::duration<double, std::milli>(o_.loader_delay_ms));
  if (o_.val_every == 0 || train_->packed()) return;
  if (dataset_.val().total_tokens() > uint64_t(seq))
    val_.emplace(dataset_.val(), seq, o_.seed, SampleOrder::sequential);
  else if (!o_.quiet)
    warn_(fmt::format("no validation: the split has {}, a sequence needs {}",
                      format_number_of(int64_t(dataset_.val().total_tokens()), "token"), seq + 1));
}

void RunData::pack() {
  auto tokenizer = dataset_.tokenizer();
  if (!tokenizer)
    fail("document boundaries are unknown: the data has no tokenizer", printable(o_.data),
         "Prepare the data with crest data prepare, or leave out --packing documents.");
  if (!tokenizer->end_of_text())
    fail("document boundaries are unknown: the data's tokenizer has no end-of-text token", printable(o_.data),
         "Prepare the data with a tokenizer that has one (<|endoftext|>, <|end_of_text|>, </s>, or an eos_token in "
         "tokenizer_config.json), or leave out --packing documents.");
  auto packed = [&](const TokenStream& split) {
    return std::make_shared<const Packing>(split, *tokenizer->end_of_text(), o_.recipe.seq_length());
  };
  auto train = packed(dataset_.train());
  train_.emplace(dataset_.train(), train, o_.seed);
  if (!o_.quiet)
    say_(fmt::format("packing  {} documents in {} rows of {} tokens, {:.1f}% filled, {} cut", train->documents(),
                     train->rows(), train->seq(), 100 * train->filled(), train->cut()));
  if (o_.val_every == 0) return;
  auto val = packed(dataset_.val());
  if (val->rows())
    val_.emplace(dataset_.val(), val, o_.seed, SampleOrder::sequential);
  else if (!o_.quiet)
    warn_("no validation: the split has no document with a token to predict");
}

int64_t RunData::val_rows() const {
  if (o_.val_every == 0) return 0;
  return stream_ ? int64_t(stream_->validation_rows()) : val_ ? int64_t(val_->samples_per_epoch()) : 0;
}

double RunData::epoch(const Recipe& r) const {
  const int64_t per_step = r.batch * r.grad_accumulation * r.data_ranks();
  return train_ ? double(train_->samples_per_epoch()) / double(per_step) : 0;
}

int64_t RunData::val_batches(int64_t per_batch) const {
  int64_t rows = val_rows() + (val_ && val_->masked() ? per_batch - 1 : 0);
  return std::clamp<int64_t>(rows / per_batch, 1, o_.val_batches);
}

void RunData::continue_from(RunState& state, int threads) const {
  if (state.threads != threads)
    warn_(fmt::format("the run used {} and now uses {}: it continues, but not bit for bit",
                      format_number_of(state.threads, "thread"), threads));
  uint64_t tokens = dataset_.train().total_tokens();
  const std::string& hash = dataset_.info().content_hash;
  if (state.train_tokens != tokens && (tokens == 0 || state.train_tokens == 0))
    warn_(fmt::format("the run was started with a {}, and continues with a {}", tokens ? "stream" : "folder",
                      tokens ? "folder" : "stream"));
  else if (state.train_tokens != tokens)
    warn_(fmt::format("the run was started with {} training tokens, this data has {}: it continues with different data",
                      state.train_tokens, tokens));
  else if (!hash.empty() && !state.data_hash.empty() && hash != state.data_hash)
    warn_(
        fmt::format("the run was started with data of content hash {}, this data has {}: it continues with different "
                    "data",
                    printable(state.data_hash.substr(0, 12)), printable(hash.substr(0, 12))));
  state.train_tokens = tokens, state.data_hash = hash, state.threads = threads;
}

void RunData::start(const Recipe& recipe, int64_t step, int first_rank, uint64_t skipped) {
  if (skipped > 0)
    reader_->read = [read = reader_->read, skipped](uint64_t g, int32_t* x, int32_t* y, int32_t* p) {
      read(g + skipped, x, y, p);
    };
  // Without --prefetch, samples are read when the engine needs them. 1.1 us for 256 tokens is 0.01%
  // of nano's step (experiment data-loader).
  if (stream_ && step > 0)
    say_(fmt::format("data     skips the stream's first {}: {} used them",
                     format_number_of(step * recipe.batch * recipe.grad_accumulation, "row"),
                     step == 1 ? "1 step has" : fmt::format("{} steps have", step)));
  if (o_.prefetch > 0)
    read_ahead_.emplace(*reader_, recipe, step, ReadAhead{o_.prefetch, o_.loader_threads}, first_rank);
}

SampleSource RunData::source(bool throws, SampleReader::Read read) {
  return [this, throws, read](uint64_t g, int32_t* x, int32_t* y, int32_t* p) {
    count_progress();
    if (throws && StopSignal::requested()) throw Stopped();
    try {
      read(g, x, y, p);
    } catch (const RowStream::Stopped&) {
      throw Stopped();
    } catch (const RowStream::Ended& end) {
      throw Ended{end.rows};
    } catch (const std::exception&) {
      if (throws) throw Failed{std::current_exception()};
      std::lock_guard lock(error_mutex_);
      if (!error_) error_ = std::current_exception();
      std::fill_n(x, reader_->seq, 0), std::fill_n(y, reader_->seq, 0);
      if (p) std::fill_n(p, reader_->seq, 0);
    }
  };
}

SampleSource RunData::training() {
  return source(true, [this](uint64_t g, int32_t* x, int32_t* y, int32_t* p) {
    read_ahead_ ? read_ahead_->sample(g, x, y, p) : reader_->read(g, x, y, p);
  });
}

SampleSource RunData::validation(int ranks) {
  const auto windows = uint64_t(val_rows());
  if (stream_)
    return source(true, [this, windows](uint64_t g, int32_t* x, int32_t* y, int32_t*) {
      stream_->validation(g % windows, x, y);
    });
  return source(ranks == 1, [this, windows](uint64_t g, int32_t* x, int32_t* y, int32_t* p) {
    if (g < windows || !val_->masked()) return val_->sample(g % windows, x, y, p);
    // The rest of the last batch does not count.
    std::fill_n(x, val_->seq(), 0), std::fill_n(y, val_->seq(), -1);
    if (p) std::fill_n(p, val_->seq(), 0);
  });
}

}  // namespace crest
