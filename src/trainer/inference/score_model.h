// The probability of given texts: crest score.
#pragma once
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/weights_io.h"
#include "inference/decoding_session.h"

namespace crest {

struct ScoreOptions : DecodingOptions {
  std::string run;  // the name of the model
};

// A continuation of a context; or a whole text, without a context.
struct ScoredText {
  std::string context, continuation;
  bool whole = false;  // `continuation` is a text of any length
};

// A line holds {"context": TEXT, "continuation": TEXT} or {"text": TEXT}; other keys are ignored.
// `where` names the input in errors.
std::vector<ScoredText> parse_scored_texts(std::string_view lines, const std::string& where);
// "pairs.jsonl, line 3"; number: from 0.
std::string place_of_line(const std::string& where, size_t number);
// The JSON of a line. advice: of errors, which add the column to the place.
nlohmann::json parse_line(std::string_view line, const std::string& place, const char* advice);

// The tokens of a pair, or of a window of a whole text. cut: tokens left out at the left, to fit
// the rest into the context.
struct TokenPair {
  std::vector<int32_t> context, continuation;
  int64_t cut = 0;
};

// Encodes texts like lm-evaluation-harness does for transformers. Every text starts with the tokens
// added by tokenizer.json (Llama's <|begin_of_text|>), unless it starts with them already.
class ScoreEncoder {
 public:
  // Throws if the model has no tokenizer. The model must outlive it.
  explicit ScoreEncoder(const LoadedModel& model);
  // White space at the end of the context belongs to the continuation. Both texts are encoded
  // together. As many tokens as the context alone has are the context, the rest the continuation.
  // An empty context is the begin-of-text token. Throws if the continuation alone is longer than
  // the model's context. `where`: for errors.
  TokenPair pair(const ScoredText& text, const std::string& where) const;
  // A whole text in windows of the model's context: each token is predicted once. The first one
  // follows the begin-of-text token, and the last window starts in the window before it.
  std::vector<TokenPair> windows(std::string_view text, const std::string& where) const;
  int64_t length() const { return length_; }

 private:
  std::vector<int32_t> tokens(std::string_view text, bool begins) const;
  int32_t begin(const std::string& where) const;
  const Tokenizer& tokenizer_;
  std::optional<uint32_t> begin_;
  std::vector<int32_t> prefix_;
  std::string prefix_text_;
  int64_t length_, vocab_;
};

struct Score {
  double logprob = 0;  // sum of ln p of the continuation's tokens
  int64_t tokens = 0;  // of the continuation
  bool greedy = true;  // each is the most probable one
  int64_t cut = 0;
};
nlohmann::ordered_json to_json(const Score& score);

class ModelScorer {
 public:
  // Encodes all texts first: the longest determines the memory. place: a text's file and line, for
  // errors. The model must outlive it.
  ModelScorer(const ScoreOptions& options, const LoadedModel& model, const std::vector<ScoredText>& texts,
              std::function<std::string(size_t)> place);
  ~ModelScorer();
  size_t texts() const { return starts_.size(); }
  int64_t context() const { return length_; }
  // Texts with equal contexts one after another are fast: their context is computed once.
  Score score(size_t number);
  // Of a whole text: report receives the score so far, after each window.
  Score score(size_t number, const std::function<void(const Score&)>& report);
  // Of all windows of a text.
  int64_t tokens(size_t number) const;
  const Recipe& recipe() const;

 private:
  struct Session;
  size_t end_of(size_t number) const { return number + 1 < starts_.size() ? starts_[number + 1] : parts_.size(); }
  std::function<std::string(size_t)> place_;
  int64_t length_;
  std::vector<TokenPair> parts_;
  std::vector<size_t> starts_;  // of each text in parts_
  std::unique_ptr<Session> session_;
};

}  // namespace crest
