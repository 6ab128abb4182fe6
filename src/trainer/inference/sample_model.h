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

// A prompt, and how it is continued.
struct SampleRequest {
  std::string prompt;                          // text
  std::optional<std::vector<int64_t>> tokens;  // token ids instead of text; the samples are ids too
  SamplerOptions sampler;
  int64_t max_tokens = 256;
  std::vector<std::string> stops;
};

struct SampleOptions : DecodingOptions, SampleRequest {
  std::string run;  // the name of the model
  int64_t samples = 1;
  bool add_bos = false;     // prompts begin with the model's begin-of-text token
  bool ignore_end = false;  // continue after a token at the end of the text
};

// Of lines {"prompt": TEXT}. Keys max_tokens, temperature, top_k, top_p, seed and stop (a text, or
// a list of texts) replace values of `standard`. ignored: receives other keys, each once. `where`
// names the input in errors.
std::vector<SampleRequest> parse_sample_requests(std::string_view lines, const std::string& where,
                                                 const SampleRequest& standard, std::vector<std::string>& ignored);

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

// A model in memory with its prompts.
class ModelSampler {
 public:
  // For the options' own prompt. Options and model must outlive it.
  ModelSampler(const SampleOptions& options, const LoadedModel& model);
  // For several: the longest determines the memory. place: of a request, for errors.
  ModelSampler(const SampleOptions& options, const LoadedModel& model, std::vector<SampleRequest> requests,
               const std::function<std::string(size_t)>& place);
  ~ModelSampler();
  const Recipe& recipe() const;
  const std::vector<SampleRequest>& requests() const { return requests_; }
  // Tokens of a prompt: as given, and its end within the context.
  size_t prompt_given(size_t request = 0) const { return prompts_[request].given; }
  size_t prompt_tokens(size_t request = 0) const { return prompts_[request].tokens.size(); }
  int64_t cache_length() const;
  // For the user: whether a foreign token begins the first prompt's text; "": the model has none.
  std::string begin_note() const;
  // Samples of one prompt differ by their number. show: receives the text, or the ids, as it is
  // drawn.
  SampledText sample(size_t request, int64_t number, const std::function<void(std::string_view)>& show);
  // docs/reference/contract.md, sample: of samples of the first request, and of one of any.
  nlohmann::ordered_json to_json(const std::vector<SampledText>& samples) const;
  nlohmann::ordered_json to_json(size_t request, int64_t number, const SampledText& sample) const;

 private:
  const SampleOptions& options_;
  const LoadedModel& model_;
  const TextEnds ends_;
  struct Prompt {
    std::vector<int32_t> tokens;
    size_t given = 0;
  };
  const std::vector<SampleRequest> requests_;
  std::vector<Prompt> prompts_;
  std::unique_ptr<DecodingSession> session_;
};

}  // namespace crest
