// The probability of given continuations: crest score.
#pragma once
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "checkpoint/weights_io.h"
#include "run/generate.h"

namespace crest {

struct DecodingSession;

struct ScoreOptions {
  std::string run;  // the name of the model
  std::string precision = "auto", weights = "float";
  Device device;
  int64_t memory_limit = 0;  // bytes
};

struct TextPair {
  std::string context, continuation;
};

// One object {"context": TEXT, "continuation": TEXT} a line; other keys are ignored. `where` names
// the input in errors.
std::vector<TextPair> parse_text_pairs(std::string_view lines, const std::string& where);

// A pair's tokens. cut: how many were left out at the left, so that the rest fits the context.
struct TokenPair {
  std::vector<int32_t> context, continuation;
  int64_t cut = 0;
};
// The tokens of lm-evaluation-harness: white space at the end of the context belongs to the
// continuation, and the continuation's tokens are those of both texts together after as many as the
// context alone has. An empty context is `begin`. length: of the model's context. Throws if the
// continuation alone is longer.
TokenPair encode_pair(const TextPair& pair, const Tokenizer& tokenizer, std::optional<uint32_t> begin, int64_t length,
                      const std::string& where);

struct Score {
  double logprob = 0;  // sum of ln p of the continuation's tokens
  int64_t tokens = 0;  // of the continuation
  bool greedy = true;  // each is the most probable one
  int64_t cut = 0;
};
Score score(Decoder& decoder, const TokenPair& pair, const std::string& where);
nlohmann::ordered_json to_json(const Score& score);

class ModelScorer {
 public:
  // Encodes all pairs first: the longest determines the memory. The model must outlive it.
  ModelScorer(const ScoreOptions& options, const LoadedModel& model, const std::vector<TextPair>& pairs,
              const std::string& where);
  ~ModelScorer();
  size_t pairs() const { return pairs_.size(); }
  int64_t context() const { return length_; }
  Score score(size_t number);
  const Recipe& recipe() const;

 private:
  std::string where_;
  int64_t length_;
  std::vector<TokenPair> pairs_;
  std::unique_ptr<DecodingSession> session_;
};

}  // namespace crest
