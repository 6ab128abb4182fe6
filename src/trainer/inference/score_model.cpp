#include "inference/score_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/json.h"
#include "core/json_error.h"
#include "core/text.h"
#include "data/tokenizer.h"
#include "data/unicode.h"
#include "inference/decoding_session.h"

namespace crest {

namespace {

std::string line_of(const std::string& where, size_t number) { return fmt::format("{}, line {}", where, number + 1); }

// Where the white space at the end of a text begins.
size_t end_of_words(std::string_view text) {
  size_t end = text.size();
  while (end > 0 && class_before(text, end) == CharClass::space) {
    do --end;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80);  // the middle of a character
  }
  return end;
}

std::vector<int32_t> tokens_of(const Tokenizer& tokenizer, std::string_view text) {
  const std::vector<uint32_t> ids = tokenizer.encode(text, true);
  return {ids.begin(), ids.end()};
}

nlohmann::json parse_pair(std::string_view line, const std::string& place, const char* form) {
  try {
    return parse_json_guarded(line, {}, place);
  } catch (const JsonError& e) {
    fail(e.problem(), fmt::format("{}, column {}", place, e.position() + 1), form);
  }
}

}  // namespace

std::vector<TextPair> parse_text_pairs(std::string_view lines, const std::string& where) {
  const char* form = "Each line is an object with two texts: {\"context\": \"2 + 2 =\", \"continuation\": \" 4\"}.";
  std::vector<TextPair> pairs;
  for (size_t start = 0; start < lines.size();) {
    const size_t end = std::min(lines.find('\n', start), lines.size());
    const std::string place = line_of(where, pairs.size());
    const std::string_view line = lines.substr(start, end - start);
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) fail("the line is empty", place, form);
    const nlohmann::json json = parse_pair(line, place, form);
    TextPair pair;
    for (auto [key, to] : {std::pair{"context", &pair.context}, {"continuation", &pair.continuation}}) {
      if (!json.is_object() || !json.contains(key)) fail(fmt::format("there is no key '{}'", key), place, form);
      if (!json[key].is_string()) fail(fmt::format("the value of '{}' is not a text", key), place, form);
      *to = json[key].get<std::string>();
    }
    if (pair.continuation.empty()) fail("the continuation is empty, so there is nothing to score", place, form);
    pairs.push_back(std::move(pair));
    start = end + 1;
  }
  if (pairs.empty()) fail("there are no pairs", where, form);
  return pairs;
}

TokenPair encode_pair(const TextPair& pair, const Tokenizer& tokenizer, std::optional<uint32_t> begin, int64_t length,
                      const std::string& where) {
  TokenPair tokens;
  const size_t words = end_of_words(pair.context);
  const std::vector<int32_t> whole = tokens_of(tokenizer, pair.context + pair.continuation);
  tokens.context = tokens_of(tokenizer, std::string_view(pair.context).substr(0, words));
  const size_t before = std::min(tokens.context.size(), whole.size());
  tokens.continuation.assign(whole.begin() + std::ptrdiff_t(before), whole.end());
  if (tokens.continuation.empty())
    fail("the continuation has no token of its own: it merges with the context", where,
         "Move the end of the context into the continuation.");
  if (tokens.context.empty()) {
    if (!begin) fail("the context is empty, and the model has no token to begin a text with", where, "Give a context.");
    tokens.context = {int32_t(*begin)};
  }
  const auto after = int64_t(tokens.continuation.size());
  if (after > length)
    fail(
        fmt::format("the continuation has {}, but the model's context is {}", format_number_of(after, "token"), length),
        where, "Shorten the continuation.");
  // The last token is predicted, and not read.
  tokens.cut = std::max<int64_t>(0, int64_t(tokens.context.size()) + after - 1 - length);
  tokens.context.erase(tokens.context.begin(), tokens.context.begin() + tokens.cut);
  return tokens;
}

Score score(Decoder& decoder, const TokenPair& pair, const std::string& where) {
  Score out;
  out.tokens = int64_t(pair.continuation.size()), out.cut = pair.cut;
  decoder.reset();
  std::span<const int32_t> next = pair.context;
  for (const int32_t& token : pair.continuation) {
    if (token < 0 || token >= decoder.vocab())
      fail(fmt::format("token {} is outside the model's vocabulary of {} tokens", token, decoder.vocab()), where,
           "Use the tokenizer that the model was trained with.");
    const std::span<const float> logits = decoder.feed(next);
    const auto most = std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (float x : logits) sum += std::exp(double(x) - double(*most));
    const double logprob = double(logits[size_t(token)]) - double(*most) - std::log(sum);
    if (!std::isfinite(logprob))
      fail("the probabilities are not finite", where,
           "The weights contain NaN or infinity, or a precision below fp32 overflows: then try --precision fp32.");
    out.logprob += logprob;
    out.greedy = out.greedy && most - logits.begin() == token;
    next = {&token, 1};
  }
  return out;
}

nlohmann::ordered_json to_json(const Score& s) {
  return {{"logprob", s.logprob}, {"tokens", s.tokens}, {"greedy", s.greedy}, {"cut", s.cut}};
}

ModelScorer::ModelScorer(const ScoreOptions& options, const LoadedModel& model, const std::vector<TextPair>& pairs,
                         const std::string& where)
    : where_(where), length_(model.config.cached_context()) {
  if (!model.tokenizer)
    fail(model.tokenizer_problem.empty() ? "the model has no tokenizer" : model.tokenizer_problem,
         printable(model.weights_path), "Put the tokenizer.json of its training data next to it.");
  const std::optional<uint32_t> begin = text_ends(model).begin;
  int64_t longest = 1;
  for (size_t i = 0; i < pairs.size(); ++i) {
    pairs_.push_back(encode_pair(pairs[i], *model.tokenizer, begin, length_, line_of(where, i)));
    longest = std::max(longest, int64_t(pairs_[i].context.size() + pairs_[i].continuation.size()) - 1);
  }
  session_ = decoding_session(model, options.precision, options.weights, longest, options.device, options.memory_limit);
}

ModelScorer::~ModelScorer() = default;

const Recipe& ModelScorer::recipe() const { return session_->recipe(); }

Score ModelScorer::score(size_t number) {
  return crest::score(session_->decoder, pairs_.at(number), line_of(where_, number));
}

}  // namespace crest
