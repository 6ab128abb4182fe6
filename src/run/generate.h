// Text from a model: the prompt through the `prefill` Program in chunks, then token by token through `decode`.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "run/executor.h"
#include "run/sampler.h"

namespace crest {

class Tokenizer;

// The keys and values of one sequence in an executor whose session has the Programs `prefill` and `decode`. The session
// may be one that trains: Decoder writes only the cache, the inputs, and position and length of the scalars.
class Decoder {
 public:
  explicit Decoder(Executor& executor);

  // Appends tokens (at least one) to the sequence; returns the logits of what follows, fp32 [vocab] without padding,
  // valid until the next call. When the cache is full, the oldest tokens are forgotten: the last half of the cache
  // stays (more when `tokens` alone is more, at most what the cache holds) and is computed anew from position 0.
  std::span<const float> feed(std::span<const int32_t> tokens);
  // Forgets all tokens.
  void reset() { window_.clear(), done_ = 0; }

  int64_t cache_length() const { return cache_length_; }
  int64_t chunk() const { return chunk_; }  // tokens of one prefill call
  int64_t vocab() const { return vocab_; }
  // Tokens that the next one can see.
  int64_t position() const { return int64_t(window_.size()); }
  // How often tokens were forgotten.
  int64_t slides() const { return slides_; }

 private:
  void run(int program, int64_t count);

  Executor& executor_;
  int prefill_, decode_;
  int64_t cache_length_, chunk_, vocab_, slides_ = 0;
  std::vector<int32_t> window_;  // tokens of the sequence that are not forgotten
  int64_t done_ = 0;             // of them in the cache
  std::vector<float> logits_;
};

struct GenerateOptions {
  int64_t max_tokens = 256;
  SamplerOptions sampler;
  uint64_t sample = 0;     // number of the sample: several of one prompt differ
  int64_t vocab = 0;       // draw ids below this only (a tokenizer smaller than the model); 0: the model's
  int32_t end_token = -1;  // ends the text and is not part of it; -1: none
};

enum class GenerateEnd { length, end_token, stopped };

struct Generated {
  std::vector<int32_t> tokens;
  GenerateEnd end = GenerateEnd::length;
  double prompt_seconds = 0;  // until the first logits
  double decode_seconds = 0;  // from there to the end
};

// Forgets what the decoder holds, feeds the prompt (at least one token, each below the vocabulary) and draws tokens.
// `token` sees each at once; its answer false ends the generation.
Generated generate(Decoder& decoder, std::span<const int32_t> prompt, const GenerateOptions& options,
                   const std::function<bool(int32_t)>& token = {});

// The tokens of a prompt; special tokens are recognised. An empty prompt becomes <|endoftext|> where the tokenizer has
// it, else a newline. `vocab`: the model's; a token beyond it is an error.
std::vector<int32_t> prompt_tokens(const Tokenizer& tokenizer, std::string_view prompt, int64_t vocab);

// The continuation of a prompt with default options: for samples during training.
std::string generate_text(Executor& executor, const Tokenizer& tokenizer, std::string_view prompt, int64_t max_tokens,
                          uint64_t seed);

}  // namespace crest
