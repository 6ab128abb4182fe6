#include "run/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "core/error.h"
#include "core/text.h"
#include "data/loader.h"
#include "data/packing.h"

namespace crest {

double Evaluation::perplexity() const { return std::exp(loss); }

double Evaluation::bits_per_byte() const {
  return bytes ? loss * double(tokens) / (std::log(2.0) * double(bytes)) : std::nan("");
}

namespace {

// The rows of a split in order. Targets below 0 do not count.
class Rows {
 public:
  Rows(const TokenStream& split, int64_t seq) : split_(split), seq_(uint64_t(seq)), all_(split.total_tokens() - 1) {
    if (split.total_tokens() < 2)
      fail(fmt::format("the split '{}' has {}, but at least 2 are needed", split.name(),
                       format_number_of(int64_t(split.total_tokens()), "token")));
  }
  Rows(const TokenStream& split, const Tokenizer* tokenizer, int64_t seq) : split_(split), seq_(uint64_t(seq)) {
    if (!tokenizer || !tokenizer->end_of_text())
      fail("document boundaries are unknown: the data has no tokenizer with an end-of-text token",
           "split '" + split.name() + "'", "Leave out --packing documents.");
    auto packing = std::make_shared<const Packing>(split, *tokenizer->end_of_text(), seq);
    packed_.emplace(split, packing, 0, SampleOrder::sequential);
    for (uint64_t r = 0; r < packing->rows(); ++r)
      for (auto& piece : packing->row(r)) all_ += piece.slots;
    packing_ = std::move(packing);
  }
  // Tokens to predict, including masked ones.
  uint64_t all() const { return all_; }
  // The next row. Returns its number of predictions; 0: padding after the last row.
  uint64_t next(int32_t* x, int32_t* y, int32_t* positions) {
    std::fill_n(x, seq_, 0);
    std::fill_n(y, seq_, -1);
    if (positions) std::fill_n(positions, seq_, 0);
    return packed_ ? next_packed(x, y, positions) : next_window(x, y);
  }

 private:
  uint64_t next_packed(int32_t* x, int32_t* y, int32_t* positions) {
    if (row_ >= packed_->samples_per_epoch()) return 0;
    packed_->sample(row_, x, y, positions);
    uint64_t n = 0;
    for (auto& piece : packing_->row(row_)) n += piece.slots;
    ++row_;
    return n;
  }
  uint64_t next_window(int32_t* x, int32_t* y) {
    uint64_t n = std::min(seq_, all_ - row_);
    if (n == 0) return 0;
    window_.resize(n + 1), trained_.resize(n);
    split_.read(row_, n + 1, window_.data());
    split_.read_mask(row_ + 1, n, trained_.data());
    std::copy_n(window_.begin(), n, x);
    for (size_t i = 0; i < n; ++i) y[i] = trained_[i] ? window_[i + 1] : -1;
    row_ += n;
    return n;
  }

  const TokenStream& split_;
  uint64_t seq_, all_ = 0, row_ = 0;  // row_: the window's first token
  std::shared_ptr<const Packing> packing_;
  std::optional<Loader> packed_;
  std::vector<int32_t> window_;
  std::vector<uint8_t> trained_;
};

// Bytes of tokens without a prediction: the first of the split, or of each packed document.
uint64_t unpredicted_bytes(const TokenStream& split, const Tokenizer& tokenizer, bool packed) {
  std::vector<int32_t> block(packed ? 1 << 16 : 1);
  std::vector<uint8_t> trained(block.size()), inside(block.size());
  uint64_t bytes = 0;
  bool begins = true;
  for (uint64_t at = 0; at < split.total_tokens() && (packed || at == 0); at += block.size()) {
    auto n = size_t(std::min<uint64_t>(block.size(), split.total_tokens() - at));
    split.read(at, n, block.data());
    split.read_mask(at, n, trained.data());
    split.read_inside(at, n, inside.data());
    for (size_t i = 0; i < n; ++i) {
      auto id = uint32_t(block[i]);
      const bool first = at + i == 0 && split.text().first_bytes;
      if (begins && trained[i]) bytes += first ? *split.text().first_bytes : tokenizer.text_bytes(id, true);
      begins = id == tokenizer.end_of_text() && !inside[i];
    }
  }
  return bytes;
}

// Bytes of the predicted text; 0: unknown. `spelled`: bytes of the tokens (others if the tokenizer
// changes texts).
uint64_t text_bytes(const TokenStream& split, const Tokenizer& tokenizer, bool packed, bool whole, uint64_t spelled) {
  if (tokenizer.lossless()) return spelled;
  if (!whole || !split.text().bytes) return 0;
  uint64_t not_counted = unpredicted_bytes(split, tokenizer, packed);
  return *split.text().bytes - std::min(*split.text().bytes, not_counted);
}

}  // namespace

Evaluation evaluate(Executor& executor, const TokenStream& split, const Tokenizer* tokenizer, int64_t batches,
                    const std::function<void(const Evaluation&, uint64_t)>& progress) {
  const CompiledSession& session = executor.session();
  int program = session.find("validation");
  if (program < 0) fail_internal("the session has no validation program", "evaluate");
  TensorRef tokens = executor.tensor(program, "tokens"), targets = executor.tensor(program, "targets");
  int64_t batch = tokens.shape[0], seq = tokens.shape[1], slots = batch * seq;
  bool packs = executor.has(program, "positions");
  Rows rows = packs ? Rows(split, tokenizer, seq) : Rows(split, seq);
  Evaluation out;
  uint64_t spelled = 0;
  double sum = 0;
  std::vector<int32_t> inputs(size_t(slots), 0), outputs(inputs), positions(packs ? inputs.size() : 0);
  for (int64_t done = 0; out.read < rows.all() && (batches <= 0 || done < batches); ++done) {
    uint64_t before = out.read;
    for (int64_t b = 0; b < batch; ++b)
      out.read +=
          rows.next(inputs.data() + b * seq, outputs.data() + b * seq, packs ? positions.data() + b * seq : nullptr);
    for (int32_t y : outputs) {
      out.tokens += y >= 0;
      if (y >= 0 && tokenizer) spelled += tokenizer->text_bytes(uint32_t(y));
    }
    tokens.write(inputs.data());
    targets.write(outputs.data());
    if (packs) executor.tensor(program, "positions").write(positions.data());
    executor.run(program);
    // The Program's loss is the sum over all rows divided by their number, padding included.
    double loss = executor.tensor(program, "loss").floats()[0];
    if (!std::isfinite(loss))
      fail(fmt::format("the loss of tokens {}..{} is {}", before, out.read, loss), "split '" + split.name() + "'",
           "The weights contain NaN or infinity, or a precision below fp32 overflows: then try --precision fp32.");
    sum += loss * double(slots);
    out.loss = out.tokens ? sum / double(out.tokens) : 0;
    if (progress) progress(out, rows.all());
  }
  if (tokenizer) out.bytes = text_bytes(split, *tokenizer, packs, out.read == rows.all(), spelled);
  return out;
}

}  // namespace crest
