#include "run/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "core/timer.h"
#include "data/tokenizer.h"
#include "run/text_stream.h"

namespace crest {

Decoder::Decoder(Executor& executor) : executor_(executor) {
  const CompiledSession& s = executor.session();
  prefill_ = forward_calls(s, "prefill"), decode_ = forward_calls(s, "decode");
  if (prefill_.back().segment < 0 || decode_.back().segment < 0)
    fail_internal("the session has no prefill and decode programs", "generate");
  cache_length_ = s.programs[size_t(decode_.back().segment)].spec.cache_length;
  chunk_ = s.programs[size_t(prefill_.back().segment)].spec.seq;
  const auto passes = std::find_if(prefill_.begin(), prefill_.end(), [&](const SegmentCall& call) {
    return s.programs[size_t(call.segment)].spec.part != SegmentKind::share;
  });
  share_.assign(prefill_.begin(), passes), prefill_.erase(prefill_.begin(), passes);
  vocab_ = s.recipe.model.vocab;
  logits_.resize(size_t(vocab_));
}

// Adds window_[done_ .. done_ + count) to the cache.
void Decoder::run(const std::vector<SegmentCall>& calls, int64_t count) {
  Scalars inputs = {};
  inputs.position = int32_t(done_);
  inputs.length = int32_t(count);
  executor_.set_inputs(inputs);
  for (const SegmentCall& call : std::exchange(share_, {})) executor_.run(call.segment);
  for (const SegmentCall& call : calls) {
    if (executor_.has(call.segment, "tokens")) {
      TensorRef tokens = executor_.tensor(call.segment, "tokens");
      std::vector<int32_t> ids(size_t(tokens.shape.numel()), 0);  // padding: any id of the vocabulary
      std::copy_n(window_.begin() + done_, count, ids.begin());
      tokens.write(ids.data());
    }
    executor_.run(call.segment);
  }
  done_ += count;
  const int last = calls.back().segment;
  if (done_ < int64_t(window_.size()) || !executor_.has(last, "logits") || executor_.session().stage > 0) return;
  logits_ = executor_.tensor(last, "logits").floats(vocab_);
}

int64_t Decoder::keep_shared(std::span<const int32_t> tokens) {
  const auto shared = std::ranges::mismatch(window_, tokens).in1 - window_.begin();
  window_.resize(size_t(shared));
  done_ = std::min(done_, int64_t(shared));
  return shared;
}

std::span<const float> Decoder::feed(std::span<const int32_t> tokens) {
  if (tokens.empty()) fail_internal("no tokens to feed", "generate");
  for (int32_t t : tokens)
    if (t < 0 || t >= vocab_)
      fail(fmt::format("token {} is outside the model's vocabulary of {} tokens", t, vocab_), "prompt",
           "Use the tokenizer that the model was trained with.");
  window_.insert(window_.end(), tokens.begin(), tokens.end());
  if (int64_t(window_.size()) > cache_length_) {
    int64_t keep = std::min(cache_length_, std::max(cache_length_ / 2, int64_t(tokens.size())));
    window_.erase(window_.begin(), window_.end() - keep);
    done_ = 0;
    ++slides_;
  }
  while (done_ < position()) {
    int64_t left = position() - done_;
    if (left == 1)
      run(decode_, 1);
    else
      run(prefill_, std::min(left, chunk_));
  }
  return logits_;
}

Generated generate(Decoder& decoder, std::span<const int32_t> prompt, const GenerateOptions& o,
                   const std::function<bool(int32_t)>& token) {
  validate(o.sampler);
  auto feed = [&](std::span<const int32_t> tokens) {
    auto logits = decoder.feed(tokens);
    return o.vocab > 0 ? logits.first(size_t(std::min(o.vocab, decoder.vocab()))) : logits;
  };
  Generated out;
  auto interrupted = [&] { return o.interrupted && o.interrupted(); };
  Timer timer;
  // The last token is always fed, for its logits.
  if (o.keep_cache)
    out.kept = decoder.keep_shared(prompt.first(prompt.size() - 1));
  else
    decoder.reset();
  std::span<const float> logits;
  for (auto rest = prompt.subspan(size_t(out.kept)); !rest.empty();) {
    if (interrupted()) {
      out.end = GenerateEnd::interrupted;
      break;
    }
    // In chunks only where somebody asks between them: a prompt beyond the cache is fed as a whole.
    const size_t count = o.interrupted ? std::min(rest.size(), size_t(decoder.chunk())) : rest.size();
    logits = feed(rest.first(count));
    rest = rest.subspan(count);
  }
  out.prompt_seconds = timer.seconds();
  timer = {};
  for (int64_t i = 0; i < o.max_tokens && out.end != GenerateEnd::interrupted; ++i) {
    if (interrupted()) {
      out.end = GenerateEnd::interrupted;
      break;
    }
    int32_t next = sample_token(logits, o.sampler, o.sample, prompt.size() + uint64_t(i));
    if (std::ranges::find(o.end_tokens, uint32_t(next)) != o.end_tokens.end()) {
      out.end = GenerateEnd::end_token;
      break;
    }
    out.tokens.push_back(next);
    if (token && !token(next)) {
      out.end = GenerateEnd::stopped;
      break;
    }
    if (i + 1 < o.max_tokens) logits = feed(std::span(&next, 1));
  }
  out.decode_seconds = timer.seconds();
  return out;
}

std::vector<int32_t> prompt_tokens(const Tokenizer& tokenizer, std::string_view prompt, int64_t vocab,
                                   std::optional<uint32_t> begin, bool add_begin) {
  std::vector<uint32_t> ids = tokenizer.encode(prompt.empty() && !begin ? "\n" : prompt, true);
  if (begin && (ids.empty() || (add_begin && ids[0] != *begin))) ids.insert(ids.begin(), *begin);
  for (uint32_t id : ids)
    if (int64_t(id) >= vocab)
      fail(fmt::format("the prompt has token {}, but the model's vocabulary has {} tokens", id, vocab),
           "tokenizer.json", "Use the tokenizer that the model was trained with.");
  return {ids.begin(), ids.end()};
}

std::string generate_text(Executor& executor, const Tokenizer* tokenizer, std::span<const int32_t> prompt,
                          std::span<const uint32_t> ends, int64_t max_tokens, uint64_t seed) {
  Decoder decoder(executor);
  GenerateOptions o;
  o.max_tokens = max_tokens;
  o.sampler.seed = seed;
  o.vocab = tokenizer ? tokenizer->vocab_size() : 0;
  std::string text;
  bool ended = false;
  generate(decoder, prompt, o, [&](int32_t t) {
    ended |= std::ranges::find(ends, uint32_t(t)) != ends.end();
    if (tokenizer && !ended) text += tokenizer->decode_token(uint32_t(t));
    return true;
  });
  return text;
}

}  // namespace crest
