// Text of a saved model: crest sample.
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
#include "run/generate.h"

namespace crest {

struct SampleOptions : DecodingOptions {
  std::string run;                             // the name of the model
  std::string prompt;                          // text
  std::optional<std::vector<int64_t>> tokens;  // token ids instead of text; the samples are ids too
  SamplerOptions sampler;
  int64_t max_tokens = 256, samples = 1;
  std::vector<std::string> stops;
  bool add_bos = false;     // the prompt begins with the model's begin-of-text token
  bool ignore_end = false;  // continue after a token at the end of the text
};

struct SampledText {
  Generated generated;
  int64_t tokens = 0;  // drawn, including the end token
  std::string text;    // "" for token ids
  int64_t slides = 0;  // how often the context filled up
  double tokens_per_second() const;
};

// "length", "end_of_text", "stop" or "interrupted".
const char* name(GenerateEnd end);

// Throws for a wrong option, before anything is opened.
void validate(const SampleOptions& options);

// A model in memory with its prompt.
class ModelSampler {
 public:
  // Both must outlive it.
  ModelSampler(const SampleOptions& options, const LoadedModel& model);
  ~ModelSampler();
  const Recipe& recipe() const;
  // Tokens of the prompt: as given, and its end within the context.
  size_t prompt_given() const { return given_; }
  size_t prompt_tokens() const { return prompt_.size(); }
  int64_t cache_length() const;
  // For the user: whether a foreign token begins the prompt's text; "": the model has none.
  std::string begin_note() const;
  // Samples of one prompt differ by their number. show: receives the text, or the ids, as it is
  // drawn.
  SampledText sample(int64_t number, const std::function<void(std::string_view)>& show);
  // docs/reference/contract.md, sample.
  nlohmann::ordered_json to_json(const std::vector<SampledText>& samples) const;

 private:
  const SampleOptions& options_;
  const LoadedModel& model_;
  const TextEnds ends_;
  std::vector<int32_t> prompt_;
  size_t given_ = 0;
  std::unique_ptr<DecodingSession> session_;
};

}  // namespace crest
