#include "inference/chat_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/json.h"
#include "core/text.h"
#include "core/timer.h"
#include "data/tokenizer.h"
#include "inference/sample_model.h"
#include "run/text_stream.h"

namespace crest {

void validate(const ChatOptions& o) {
  if (o.run.empty())
    fail_usage("no model given", "--run", "Give a run, a checkpoint, or a folder with config.json and safetensors.");
  validate(o.sampler);
  if (o.max_tokens < 1)
    fail_usage(fmt::format("max-tokens {}", o.max_tokens), "--max-tokens", "It must be at least 1.");
  if (o.context < 0) fail_usage(fmt::format("context {}", o.context), "--context", "It must be at least 1.");
  if (!o.chat_template.empty()) ChatFormat(o.chat_template, nullptr);
}

static int64_t context_of(const ChatOptions& o, const LoadedModel& model) {
  const int64_t longest = model.config.cached_context();
  if (o.context > longest)
    fail_usage(fmt::format("context {} is longer than the model's, {}", o.context, longest), "--context",
               fmt::format("Give at most {}.", longest));
  return o.context > 0 ? o.context : std::min(longest, ChatOptions::longest_context);
}

ModelChat::ModelChat(const ChatOptions& options, const LoadedModel& model)
    : options_(options),
      model_(model),
      prompt_(model, options.chat_template),
      session_(DecodingSession::open(model, options.decoding, context_of(options, model))) {
  reset();
  conversation_ = 0;
}

ModelChat::~ModelChat() = default;

void ModelChat::reset() {
  turns_.clear();
  if (!options_.system.empty()) turns_.push_back({ChatRole::system, replace_invalid_utf8(options_.system)});
  ++conversation_;
}

int64_t ModelChat::turns() const {
  return std::ranges::count_if(turns_, [](const ChatTurn& turn) { return turn.role == ChatRole::user; });
}

// The conversation's tokens, with room for an answer.
std::vector<int32_t> ModelChat::fit(std::vector<ChatTurn>& turns, int64_t& left_out) const {
  const int64_t half = context() / 2, room = std::min(options_.max_tokens, half);
  std::vector<int32_t> tokens = prompt_.tokens(turns);
  auto size = [&] { return int64_t(tokens.size()); };
  if (size() + room <= context()) return tokens;
  const size_t system = turns.front().role == ChatRole::system;
  while (size() > half && turns.size() > system + 1) {
    turns.erase(turns.begin() + long(system), turns.begin() + long(system) + 2);
    ++left_out;
    tokens = prompt_.tokens(turns);
  }
  if (size() >= context())
    throw QuestionTooLong(
        Exit::failed,
        fmt::format("the question has {}{}, and the context is {}", format_number_of(size(), "token"),
                    system ? " with the system text" : "", context()),
        "",
        context() < model_.config.cached_context()
            ? fmt::format("Shorten it, or give a longer --context: the model's is {}.", model_.config.cached_context())
            : "Shorten it: this is the model's whole context.");
  return tokens;
}

void ModelChat::generate_answer(ChatAnswer& answer, const std::function<void(std::string_view)>& show,
                                const std::function<bool()>& interrupted) {
  const Tokenizer& tokenizer = *model_.tokenizer;
  const int64_t room = context() - int64_t(answer.prompt.size());
  GenerateOptions g;
  g.max_tokens = std::min(options_.max_tokens, room);
  g.sampler = options_.sampler;
  g.sample = conversation_;
  g.vocab = tokenizer.vocab_size();
  g.end_tokens = prompt_.end_tokens();
  g.keep_cache = true;
  g.interrupted = interrupted;
  std::vector<std::string> stops = options_.stops;
  stops.insert(stops.end(), prompt_.end_texts().begin(), prompt_.end_texts().end());
  TextStream stream(std::move(stops));
  std::string before(prompt_.before_answer());
  auto add = [&](std::string piece) {
    if (piece.empty()) return;
    // The template writes it in the next turn.
    const std::string prefix = std::exchange(before, "");
    if (piece.starts_with(prefix)) piece.erase(0, prefix.size());
    answer.text += piece;
    if (!piece.empty()) show(piece);
  };
  bool first = true;
  answer.generated = generate(session_->decoder, answer.prompt, g, [&](int32_t token) {
    const auto id = uint32_t(token);
    if (tokenizer.is_special(id)) return true;
    add(stream.add(std::exchange(first, false) ? tokenizer.decode({&id, 1}) : tokenizer.decode_token(id)));
    return !stream.stopped();
  });
  add(stream.finish());
  answer.full = answer.generated.end == GenerateEnd::length && room <= options_.max_tokens;
}

ChatAnswer ModelChat::answer(const std::string& question, const std::function<void(std::string_view)>& show,
                             const std::function<bool()>& interrupted) {
  Timer timer;
  ChatAnswer answer;
  std::vector<ChatTurn> turns = turns_;
  turns.push_back({ChatRole::user, replace_invalid_utf8(question)});
  answer.prompt = fit(turns, answer.left_out);
  generate_answer(answer, show, interrupted);
  answer.seconds = timer.seconds();
  answer.text = prompt_.answer(replace_invalid_utf8(answer.text));
  answer.forgotten = answer.generated.end == GenerateEnd::interrupted && answer.text.empty();
  if (answer.forgotten) return answer;
  turns.push_back({ChatRole::assistant, answer.text});
  turns_ = std::move(turns);
  return answer;
}

nlohmann::ordered_json to_json(const ChatAnswer& a) {
  return {{"role", "assistant"},
          {"content", a.text},
          {"tokens", a.generated.tokens},
          {"finish", name(a.generated.end)},
          {"ms", 1e3 * a.seconds},
          {"prompt", a.prompt},
          {"prompt_ms", 1e3 * a.generated.prompt_seconds},
          {"kept_tokens", a.generated.kept},
          {"left_out", a.left_out}};
}

}  // namespace crest
