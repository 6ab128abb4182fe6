#include "inference/score_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/json.h"
#include "core/json_error.h"
#include "core/text.h"
#include "data/python_text.h"
#include "data/tokenizer.h"
#include "inference/decoding_session.h"
#include "run/token_scorer.h"

namespace crest {

std::string place_of_line(const std::string& where, size_t number) {
  return fmt::format("{}, line {}", where, number + 1);
}

nlohmann::json parse_line(std::string_view line, const std::string& place, const char* advice) {
  try {
    return parse_json_guarded(line, {}, place);
  } catch (const JsonError& e) {
    fail(e.problem(), fmt::format("{}, column {}", place, e.position() + 1), advice);
  }
}

std::vector<ScoredText> parse_scored_texts(std::string_view lines, const std::string& where) {
  const char* form =
      "Each line is an object with two texts: {\"context\": \"2 + 2 =\", \"continuation\": \" 4\"}, or a whole text: "
      "{\"text\": \"2 + 2 = 4\"}.";
  std::vector<ScoredText> texts;
  for (size_t start = 0; start < lines.size();) {
    const size_t end = std::min(lines.find('\n', start), lines.size());
    const std::string place = place_of_line(where, texts.size());
    const std::string_view line = lines.substr(start, end - start);
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) fail("the line is empty", place, form);
    const nlohmann::json json = parse_line(line, place, form);
    auto text_at = [&](const char* key) {
      if (!json.is_object() || !json.contains(key)) fail(fmt::format("there is no key '{}'", key), place, form);
      if (!json[key].is_string()) fail(fmt::format("the value of '{}' is not a text", key), place, form);
      return json[key].get<std::string>();
    };
    ScoredText text;
    text.whole = json.is_object() && json.contains("text") && !json.contains("continuation");
    if (!text.whole) text.context = text_at("context");
    text.continuation = text_at(text.whole ? "text" : "continuation");
    if (text.continuation.empty())
      fail(fmt::format("the {} is empty, so there is nothing to score", text.whole ? "text" : "continuation"), place,
           form);
    texts.push_back(std::move(text));
    start = end + 1;
  }
  if (texts.empty()) fail("there are no pairs", where, form);
  return texts;
}

static const Tokenizer& tokenizer_of(const LoadedModel& model) {
  if (!model.tokenizer)
    fail(model.tokenizer_problem.empty() ? "the model has no tokenizer" : model.tokenizer_problem,
         printable(model.weights_path), "Put the tokenizer.json of its training data next to it.");
  return *model.tokenizer;
}

ScoreEncoder::ScoreEncoder(const LoadedModel& model)
    : tokenizer_(tokenizer_of(model)),
      begin_(text_ends(model).begin),
      length_(model.config.cached_context()),
      vocab_(model.config.vocab) {
  for (uint32_t id : tokenizer_.text_prefix()) {
    prefix_.push_back(int32_t(id));
    prefix_text_ += tokenizer_.decode_token(id);
  }
}

// begins: with the tokens added by tokenizer.json.
std::vector<int32_t> ScoreEncoder::tokens(std::string_view text, bool begins) const {
  std::vector<int32_t> out;
  if (begins && (prefix_text_.empty() || !text.starts_with(prefix_text_))) out = prefix_;
  for (uint32_t id : tokenizer_.encode(text, true)) out.push_back(int32_t(id));
  return out;
}

int32_t ScoreEncoder::begin(const std::string& where) const {
  if (!begin_) fail("the context is empty, and the model has no token to begin a text with", where, "Give a context.");
  return int32_t(*begin_);
}

static void require_known(const TokenPair& pair, int64_t vocab, const std::string& where) {
  for (auto* part : {&pair.context, &pair.continuation})
    for (int32_t token : *part)
      if (token < 0 || token >= vocab)
        fail(fmt::format("token {} is outside the model's vocabulary of {} tokens", token, vocab), where,
             "Use the tokenizer that the model was trained with.");
}

TokenPair ScoreEncoder::pair(const ScoredText& text, const std::string& where) const {
  TokenPair pair;
  const std::string_view words = strip_right(text.context);
  const std::vector<int32_t> whole = tokens(text.context + text.continuation, !text.context.empty());
  if (!words.empty()) pair.context = tokens(words, true);
  const size_t before = std::min(pair.context.size(), whole.size());
  pair.continuation.assign(whole.begin() + std::ptrdiff_t(before), whole.end());
  if (pair.context.empty()) {
    // A begin-of-text token at the start of a continuation is its context.
    const bool has = begin_ && pair.continuation.size() > 1 && pair.continuation[0] == int32_t(*begin_);
    pair.context = {begin(where)};
    if (has) pair.continuation.erase(pair.continuation.begin());
  }
  if (pair.continuation.empty())
    fail("the continuation has no token of its own: it merges with the context", where,
         "Move the end of the context into the continuation.");
  const auto after = int64_t(pair.continuation.size());
  if (after > length_)
    fail(fmt::format("the continuation has {}, but the model's context is {}", format_number_of(after, "token"),
                     length_),
         where, "Shorten the continuation.");
  // The last token is predicted, and not read.
  pair.cut = std::max<int64_t>(0, int64_t(pair.context.size()) + after - 1 - length_);
  pair.context.erase(pair.context.begin(), pair.context.begin() + pair.cut);
  require_known(pair, vocab_, where);
  return pair;
}

std::vector<TokenPair> ScoreEncoder::windows(std::string_view text, const std::string& where) const {
  std::vector<int32_t> all = tokens(text, false);
  all.insert(all.begin(), begin(where));
  const auto count = int64_t(all.size());
  std::vector<TokenPair> out;
  for (int64_t done = 1; done < count;) {
    const int64_t end = std::min(done + length_, count), start = std::max<int64_t>(0, end - length_ - 1);
    TokenPair& pair = out.emplace_back();
    pair.context.assign(all.begin() + start, all.begin() + done);
    pair.continuation.assign(all.begin() + done, all.begin() + end);
    require_known(pair, vocab_, where);
    done = end;
  }
  return out;
}

nlohmann::ordered_json to_json(const Score& s) {
  return {{"logprob", s.logprob}, {"tokens", s.tokens}, {"greedy", s.greedy}, {"cut", s.cut}};
}

struct ModelScorer::Session {
  CompiledSession compiled;
  Executor executor;
  TokenScorer scorer;
  explicit Session(CompiledSession session) : compiled(std::move(session)), executor(compiled), scorer(executor) {}
};

// Tokens of a call: for long texts more, as long as their logits stay below 64 MiB.
static int64_t tokens_of_call(bool long_texts, int64_t vocab) {
  const int64_t least = 64, most = 256, fit = (int64_t(64) << 20) / (4 * vocab);
  return long_texts ? std::clamp(fit, least, most) : least;
}

ModelScorer::ModelScorer(const ScoreOptions& options, const LoadedModel& model, const std::vector<ScoredText>& texts,
                         std::function<std::string(size_t)> place)
    : place_(std::move(place)), length_(model.config.cached_context()) {
  const ScoreEncoder encoder(model);
  int64_t longest = 1;
  bool whole = false;
  for (size_t i = 0; i < texts.size(); ++i) {
    starts_.push_back(parts_.size());
    if (texts[i].whole)
      for (TokenPair& window : encoder.windows(texts[i].continuation, place_(i))) parts_.push_back(std::move(window));
    else
      parts_.push_back(encoder.pair(texts[i], place_(i)));
    whole |= texts[i].whole;
  }
  for (const TokenPair& p : parts_) longest = std::max(longest, int64_t(p.context.size() + p.continuation.size()) - 1);
  SessionUse use;
  use.scoring = true;
  use.cache_length = longest;
  use.prefill = tokens_of_call(whole, model.config.vocab);
  session_ = std::make_unique<Session>(compile_for_inference(model, options, use));
  load_weights(session_->executor, model);
}

ModelScorer::~ModelScorer() = default;

const Recipe& ModelScorer::recipe() const { return session_->compiled.recipe; }

Score ModelScorer::score(size_t number) {
  return score(number, [](const Score&) {});
}

Score ModelScorer::score(size_t number, const std::function<void(const Score&)>& report) {
  Score out;
  for (size_t i = starts_.at(number); i < end_of(number); ++i) {
    const TokenPair& part = parts_[i];
    Likelihood l;
    try {
      l = session_->scorer.score(part.context, part.continuation);
    } catch (const Error& e) {
      throw Error(e.code(), e.problem(), e.where().empty() ? place_(number) : e.where(), e.advice());
    }
    out.logprob += l.logprob, out.greedy = out.greedy && l.greedy;
    out.tokens += int64_t(part.continuation.size()), out.cut += part.cut;
    report(out);
  }
  return out;
}

int64_t ModelScorer::tokens(size_t number) const {
  int64_t n = 0;
  for (size_t i = starts_.at(number); i < end_of(number); ++i) n += int64_t(parts_[i].continuation.size());
  return n;
}

}  // namespace crest
