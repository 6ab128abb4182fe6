#include "run/token_scorer.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace crest {

namespace {

// ln p of a token by its row of logits.
Likelihood likelihood(std::span<const float> logits, int32_t token) {
  const auto most = std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float x : logits) sum += std::exp(double(x) - double(*most));
  return {double(logits[size_t(token)]) - double(*most) - std::log(sum), most - logits.begin() == token};
}

}  // namespace

TokenScorer::TokenScorer(Executor& executor) : executor_(executor) {
  const CompiledSession& s = executor.session();
  prefill_ = s.find("prefill"), score_ = s.find("score");
  if (prefill_ < 0 || score_ < 0) fail_internal("the session has no prefill and score programs", "score");
  cache_length_ = s.programs[size_t(score_)].spec.cache_length;
  chunk_ = s.programs[size_t(score_)].spec.seq;
  vocab_ = s.recipe.model.vocab;
}

// Appends tokens, at most chunk_, to the cache.
void TokenScorer::run(int program, std::span<const int32_t> tokens) {
  Scalars inputs = {};
  inputs.position = int32_t(cached_.size());
  inputs.length = int32_t(tokens.size());
  executor_.set_inputs(inputs);
  const TensorRef to = executor_.tensor(program, "tokens");
  std::vector<int32_t> ids(size_t(to.shape.numel()), 0);  // padding: any id of the vocabulary
  std::copy(tokens.begin(), tokens.end(), ids.begin());
  to.write(ids.data());
  executor_.run(program);
  cached_.insert(cached_.end(), tokens.begin(), tokens.end());
  computed_ += int64_t(tokens.size());
}

Likelihood TokenScorer::score(std::span<const int32_t> context, std::span<const int32_t> continuation) {
  if (context.empty() || continuation.empty() || int64_t(context.size() + continuation.size()) > cache_length_ + 1)
    fail_internal("no context, no continuation, or more tokens than the cache holds", "score");
  for (const auto& part : {context, continuation})
    for (int32_t t : part)
      if (t < 0 || t >= vocab_) fail_internal("a token is outside the model's vocabulary", "score");
  // The last token of the context gives the first logits.
  const std::span<const int32_t> before = context.first(context.size() - 1);
  // Only whole contexts count: with others, rounding would depend on the calls before.
  const bool same = before.size() == context_.size() && std::equal(before.begin(), before.end(), context_.begin());
  cached_.resize(same ? before.size() : 0);
  for (size_t at = cached_.size(); at < before.size(); at = cached_.size())
    run(prefill_, before.subspan(at, std::min(before.size() - at, size_t(chunk_))));
  context_.assign(before.begin(), before.end());

  std::vector<int32_t> read = {context.back()};
  read.insert(read.end(), continuation.begin(), continuation.end() - 1);
  Likelihood out;
  for (size_t done = 0; done < read.size(); done = cached_.size() - before.size()) {
    const size_t rows = std::min(read.size() - done, size_t(chunk_));
    run(score_, std::span(read).subspan(done, rows));
    const TensorRef logits = executor_.tensor(score_, "logits");
    const int64_t width = logits.shape[2];  // with the vocabulary's padding
    const std::vector<float> all = logits.floats(int64_t(rows) * width);
    std::vector<Likelihood> of_row(rows);
#pragma omp parallel for schedule(static) if (int64_t(rows) * width > (1 << 14))
    for (size_t i = 0; i < rows; ++i)
      of_row[i] = likelihood(std::span(all).subspan(i * size_t(width), size_t(vocab_)), continuation[done + i]);
    for (const Likelihood& l : of_row) out.logprob += l.logprob, out.greedy = out.greedy && l.greedy;
  }
  if (!std::isfinite(out.logprob))
    fail("the probabilities are not finite", "",
         "The weights contain NaN or infinity, or the precision overflows: try --precision fp32.");
  return out;
}

}  // namespace crest
