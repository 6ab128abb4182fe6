#include "train/run_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "core/content_hash.h"
#include "core/error.h"
#include "core/shell_word.h"
#include "core/text.h"
#include "data/chat.h"
#include "data/packing.h"
#include "host/progress.h"
#include "host/stop_signal.h"
#include "passes/pass.h"

namespace crest {

std::shared_ptr<const Tokenizer> TrainingData::tokenizer() const {
  for (auto& source : sources)
    if (auto tokenizer = source.tokenizer()) return tokenizer;
  return nullptr;
}

uint32_t TrainingData::vocab_size() const {
  uint32_t largest = 0;
  for (auto& source : sources) largest = std::max(largest, source.vocab_size());
  return largest;
}

uint64_t TrainingData::train_tokens() const {
  uint64_t tokens = 0;
  for (auto& source : sources) tokens += source.train().total_tokens();
  return tokens;
}

std::string TrainingData::weights() const {
  std::string text;
  for (size_t i = 0; mixed() && i < sources.size(); ++i) text += fmt::format("{}{}", i ? ":" : "", order.part(i));
  return text;
}

std::string TrainingData::content_hash(const std::string& weights) const {
  if (!mixed()) return sources[0].info().content_hash;
  std::string text = weights;
  for (auto& source : sources) {
    const std::string& own = source.info().content_hash;
    if (own.empty()) return "";
    text += "\n" + own;
  }
  ContentHash hash;
  hash.update(text.data(), text.size());
  return hash.hex();
}

// Checks tokens against the data's vocabulary. It may be smaller than the model's. If the folder
// does not state it, checks against the model's.
static Dataset open_source(const std::string& folder, int64_t vocab) {
  Dataset data = Dataset::open(folder);
  return data.vocab_size() || vocab == 0 ? data : Dataset::open(folder, uint32_t(vocab));
}

static Dataset open_stream_source(const TrainOptions& o, int64_t vocab) {
  const std::string& name = o.stream_tokenizer;
  if (name.empty()) return Dataset::of_stream(nullptr, uint32_t(vocab));
  return Dataset::of_stream(
      std::make_shared<const Tokenizer>(name == "bytes" ? Tokenizer::bytes() : Tokenizer::load(name)), 0);
}

static void check_same_tokenizers(const TrainingData& data) {
  const Dataset* first = nullptr;
  for (auto& source : data.sources) {
    if (!source.tokenizer()) continue;
    if (!first) first = &source;
    if (first == &source) continue;
    const std::string folder = printable(source.info().folder), other = printable(first->info().folder);
    const std::string difference = source.tokenizer()->difference(*first->tokenizer(), folder, other);
    if (!difference.empty())
      fail(fmt::format("the sources have different tokenizers: {}", difference), folder,
           fmt::format("Prepare it with the other's tokenizer: crest data prepare TEXT --tokenizer {} --out DIR.",
                       shell_path(first->info().folder + "/tokenizer.json")));
  }
}

TrainingData open_data(const TrainOptions& o, int64_t vocab) {
  std::vector<DataSource> given = parse_data_sources(o.data);
  if (given.empty()) given.emplace_back();  // the folder "" does not exist
  std::vector<double> weights;
  for (auto& source : given) weights.push_back(source.weight);
  TrainingData data{{}, labels_of(given), MixtureOrder(weights)};
  for (auto& source : given)
    data.sources.push_back(o.streams() ? open_stream_source(o, vocab) : open_source(source.folder, vocab));
  check_same_tokenizers(data);
  return data;
}

RunData::RunData(const TrainOptions& o, const Say& say, const Say& warn)
    : o_(o), say_(say), warn_(warn), data_(open_data(o, o.recipe.model.vocab)), tokenizer_(data_.tokenizer()) {
  for (auto& source : data_.sources)
    if (source.vocab_size() > uint64_t(o_.recipe.model.vocab))
      fail(fmt::format("the data has a vocabulary of {}, but the model has {}", source.vocab_size(),
                       o_.recipe.model.vocab),
           o_.streams() ? "-" : printable(source.info().folder),
           "Prepare the data with the model's tokenizer, or train a model with the data's vocabulary (leave --vocab "
           "out).");
  compare_texts();
}

RunData::~RunData() {
  if (stream_) stream_->stop();  // before read_ahead_ waits for its threads
}

std::string RunData::of_source(size_t source, const char* before) const {
  return data_.mixed() ? before + printable(data_.labels[source]) : "";
}

// What sources may differ in, though the run has one of each.
void RunData::compare_texts() const {
  const DatasetInfo* first = nullptr;
  for (size_t i = 0; data_.mixed() && i < data_.sources.size(); ++i) {
    const DatasetInfo& info = data_.sources[i].info();
    const std::string label = printable(data_.labels[i]);
    if (tokenizer_ && !data_.sources[i].tokenizer())
      warn_(fmt::format("{} has no tokenizer: its tokens count as those of the other sources", label));
    if (info.chat_template.empty()) continue;
    if (first && first->chat_template != info.chat_template)
      warn_(fmt::format("the conversations of {} have the chat template {}; the run's samples and exports use {}",
                        label, printable(info.chat_template), printable(first->chat_template)));
    if (!first) first = &info;
  }
}

void RunData::take_text(const LoadedModel& model) {
  for (auto& source : data_.sources) require_same_tokenizer(source, model);
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
  const ChatTemplate* form = nullptr;  // null: none, or a newer version's
  for (auto& source : data_.sources)
    if (!form) form = chat_template(source.info().chat_template);
  ModelText text(tokenizer_.get(), form ? std::string(form->jinja) : "", text_settings_);
  if (form && tokenizer_) text.turn_end = turn_end(*form, *tokenizer_);
  return text;
}

std::string RunData::description() const {
  auto tokens = [&](const Dataset& source) {
    return fmt::format("{} training tokens, {} validation tokens", format_count(double(source.train().total_tokens())),
                       format_count(double(source.val().total_tokens())));
  };
  if (!stream_ && !data_.mixed())
    return fmt::format("{} in {}", tokens(data_.sources[0]), printable(data_.sources[0].info().folder));
  std::string mixture;
  for (size_t i = 0; i < data_.sources.size(); ++i)
    mixture += fmt::format("{}{:.4g}% {} ({})", i ? ", " : "", 100 * data_.order.share(i), printable(data_.labels[i]),
                           tokens(data_.sources[i]));
  if (!stream_) return mixture;
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
  const bool packs = packs_documents(o_.recipe);
  for (size_t i = 0; i < data_.sources.size(); ++i) {
    rows_.emplace_back();
    packs ? pack(i) : cut(i);
    rows_[i].train->delay(std::chrono::duration<double, std::milli>(o_.loader_delay_ms));
  }
  reader_.emplace(o_.recipe.seq_length(), packs, [this](uint64_t g, int32_t* x, int32_t* y, int32_t* p) {
    const MixtureOrder::Place place = data_.order(g);
    rows_[place.source].train->sample(place.index, x, y, p);
  });
}

void RunData::cut(size_t i) {
  const int64_t seq = o_.recipe.seq_length();
  const Dataset& source = data_.sources[i];
  rows_[i].train.emplace(source.train(), seq, o_.seed);
  if (o_.val_every == 0) return;
  if (source.val().total_tokens() > uint64_t(seq))
    rows_[i].val.emplace(source.val(), seq, o_.seed, SampleOrder::sequential);
  else if (!o_.quiet)
    warn_(fmt::format("no validation{}: the split has {}, a sequence needs {}", of_source(i),
                      format_number_of(int64_t(source.val().total_tokens()), "token"), seq + 1));
}

void RunData::pack(size_t i) {
  const Dataset& source = data_.sources[i];
  const std::string folder = printable(source.info().folder);
  auto tokenizer = source.tokenizer();
  if (!tokenizer)
    fail("document boundaries are unknown: the data has no tokenizer", folder,
         "Prepare the data with crest data prepare, or leave out --packing documents.");
  if (!tokenizer->end_of_text())
    fail("document boundaries are unknown: the data's tokenizer has no end-of-text token", folder,
         "Prepare the data with a tokenizer that has one (<|endoftext|>, <|end_of_text|>, </s>, or an eos_token in "
         "tokenizer_config.json), or leave out --packing documents.");
  auto packed = [&](const TokenStream& split) {
    return std::make_shared<const Packing>(split, *tokenizer->end_of_text(), o_.recipe.seq_length());
  };
  auto train = packed(source.train());
  rows_[i].train.emplace(source.train(), train, o_.seed);
  if (!o_.quiet)
    say_(fmt::format("packing  {} documents{} in {} rows of {} tokens, {:.1f}% filled, {} cut", train->documents(),
                     of_source(i), train->rows(), train->seq(), 100 * train->filled(), train->cut()));
  if (o_.val_every == 0) return;
  auto val = packed(source.val());
  if (val->rows())
    rows_[i].val.emplace(source.val(), val, o_.seed, SampleOrder::sequential);
  else if (!o_.quiet)
    warn_(fmt::format("no validation{}: the split has no document with a token to predict", of_source(i)));
}

bool RunData::masked() const {
  return std::any_of(rows_.begin(), rows_.end(), [](auto& rows) { return rows.train->masked(); });
}

int64_t RunData::val_rows(size_t source) const {
  if (o_.val_every == 0) return 0;
  if (stream_) return int64_t(stream_->validation_rows());
  const auto& val = rows_[source].val;
  return val ? int64_t(val->samples_per_epoch()) : 0;
}

std::vector<size_t> RunData::validated() const {
  std::vector<size_t> sources;
  for (size_t i = 0; i < data_.sources.size(); ++i)
    if (val_rows(i) > 0) sources.push_back(i);
  return sources;
}

int64_t RunData::val_rows() const {
  int64_t fewest = 0;
  for (size_t i : validated()) fewest = fewest ? std::min(fewest, val_rows(i)) : val_rows(i);
  return fewest;
}

static double samples_per_step(const Recipe& r) { return double(r.batch * r.grad_accumulation * r.data_ranks()); }

double RunData::epoch(const Recipe& r) const {
  double rows = 0;
  for (auto& source : rows_) rows += double(source.train->samples_per_epoch());
  return rows / samples_per_step(r);
}

double RunData::epoch(const Recipe& r, size_t source) const {
  return double(rows_[source].train->samples_per_epoch()) / (samples_per_step(r) * data_.order.share(source));
}

std::vector<SourcePass> RunData::passes(const Recipe& r) const {
  std::vector<SourcePass> all;
  for (size_t i = 0; data_.mixed() && i < data_.sources.size(); ++i)
    all.push_back({data_.labels[i], data_.order.share(i), epoch(r, i)});
  return all;
}

int64_t RunData::val_batches(size_t source, int64_t per_batch) const {
  const bool masked = !stream_ && rows_[source].val->masked();
  int64_t rows = val_rows(source) + (masked ? per_batch - 1 : 0);
  return std::clamp<int64_t>(rows / per_batch, 1, o_.val_batches);
}

void RunData::continue_from(RunState& state, int threads) const {
  if (state.threads != threads)
    warn_(fmt::format("the run used {} and now uses {}: it continues, but not bit for bit",
                      format_number_of(state.threads, "thread"), threads));
  const uint64_t tokens = data_.train_tokens();
  const std::string hash = data_.content_hash();
  if (state.train_tokens != tokens && (tokens == 0 || state.train_tokens == 0))
    warn_(fmt::format("the run was started with a {}, and continues with a {}", tokens ? "stream" : "folder",
                      tokens ? "folder" : "stream"));
  else if (state.train_tokens != tokens)
    warn_(fmt::format("the run was started with {} training tokens, this data has {}: it continues with different data",
                      state.train_tokens, tokens));
  else if (hash != state.data_hash && !hash.empty() && data_.content_hash(state.data_weights) == state.data_hash)
    warn_(fmt::format("the run was started with the weights {} of its sources, and continues with {}",
                      printable(state.data_weights), data_.weights()));
  else if (!hash.empty() && !state.data_hash.empty() && hash != state.data_hash)
    warn_(
        fmt::format("the run was started with data of content hash {}, this data has {}: it continues with different "
                    "data",
                    printable(state.data_hash.substr(0, 12)), printable(hash.substr(0, 12))));
  state.train_tokens = tokens, state.data_hash = hash, state.data_weights = data_.weights(), state.threads = threads;
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

SampleSource RunData::validation(size_t of, int ranks) {
  const auto windows = uint64_t(val_rows(of));
  if (stream_)
    return source(true, [this, windows](uint64_t g, int32_t* x, int32_t* y, int32_t*) {
      stream_->validation(g % windows, x, y);
    });
  const Loader& val = *rows_[of].val;
  return source(ranks == 1, [&val, windows](uint64_t g, int32_t* x, int32_t* y, int32_t* p) {
    if (g < windows || !val.masked()) return val.sample(g % windows, x, y, p);
    // The rest of the last batch does not count.
    std::fill_n(x, val.seq(), 0), std::fill_n(y, val.seq(), -1);
    if (p) std::fill_n(p, val.seq(), 0);
  });
}

}  // namespace crest
