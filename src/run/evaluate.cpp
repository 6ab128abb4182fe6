#include "run/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace crest {

double Evaluation::perplexity() const { return std::exp(loss); }

double Evaluation::bits_per_byte() const {
  return bytes ? loss * double(tokens) / (std::log(2.0) * double(bytes)) : std::nan("");
}

Evaluation evaluate(Executor& executor, const TokenStream& split, const Tokenizer* tokenizer, int64_t batches,
                    const std::function<void(const Evaluation&, uint64_t)>& progress) {
  const CompiledSession& session = executor.session();
  int program = session.find("validation");
  if (program < 0) fail_internal("the session has no validation program", "evaluate");
  TensorRef tokens = executor.tensor(program, "tokens"), targets = executor.tensor(program, "targets");
  auto batch = uint64_t(tokens.shape[0]), seq = uint64_t(tokens.shape[1]);
  if (split.total_tokens() < 2)
    fail(fmt::format("the split '{}' has {} tokens, at least 2 are needed", split.name(), split.total_tokens()));
  // Predicted tokens: all but the first.
  uint64_t all = split.total_tokens() - 1;
  if (batches > 0 && uint64_t(batches) <= all / (batch * seq)) all = uint64_t(batches) * batch * seq;
  Evaluation out;
  double sum = 0;
  std::vector<int32_t> window(seq + 1), inputs(batch * seq), outputs(batch * seq);
  for (uint64_t done = 0; done < all;) {
    uint64_t counted = 0;
    for (uint64_t b = 0; b < batch; ++b) {
      int32_t *x = inputs.data() + b * seq, *y = outputs.data() + b * seq;
      // What is left of the last batch is padding: a negative target has no loss.
      uint64_t n = std::min(seq, all - done - counted);
      std::fill(x, x + seq, 0);
      std::fill(y, y + seq, -1);
      if (n == 0) continue;
      split.read(done + counted, n + 1, window.data());
      std::copy_n(window.begin(), n, x);
      std::copy_n(window.begin() + 1, n, y);
      if (tokenizer)
        for (uint64_t i = 0; i < n; ++i)
          if (auto id = uint32_t(y[i]); !tokenizer->is_special(id)) out.bytes += tokenizer->decode_token(id).size();
      counted += n;
    }
    tokens.write(inputs.data());
    targets.write(outputs.data());
    executor.run(program);
    // The Program's loss is the sum over all rows of the batch divided by their number, padding included.
    double loss = executor.tensor(program, "loss").floats()[0];
    if (!std::isfinite(loss))
      fail(fmt::format("the loss of tokens {}..{} is {}", done, done + counted, loss), "split '" + split.name() + "'",
           "The weights hold NaN or infinity, or the precision overflows: try --precision fp32.");
    sum += loss * double(batch * seq);
    done += counted;
    out.tokens = done;
    out.loss = sum / double(done);
    if (progress) progress(out, all);
  }
  return out;
}

}  // namespace crest
