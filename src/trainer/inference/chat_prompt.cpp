#include "inference/chat_prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/json.h"
#include "core/text.h"
#include "data/jinja.h"
#include "data/tokenizer.h"

namespace crest {

using Json = nlohmann::ordered_json;

namespace {

// Behind the first character of a special token's spelling in a turn, until the template has made
// its text. U+E000 is for private use: no template looks for it.
constexpr std::string_view guard = "\xEE\x80\x80";

const char* role_name(ChatRole role) {
  return role == ChatRole::system ? "system" : role == ChatRole::user ? "user" : "assistant";
}

bool spells_special(const Tokenizer& tokenizer, std::string_view text) {
  return std::ranges::any_of(tokenizer.encode(text, true), [&](uint32_t id) { return tokenizer.is_special(id); });
}

// Special tokens by the names in templates.
void add_special_names(const LoadedModel& model, Json& variables) {
  const std::string& config = model.text.tokenizer_config;
  const Json names = config.empty() ? Json::object() : Json::parse(config);
  for (const char* key : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    const Json found = names.value(key, Json());
    if (found.is_string())
      variables[key] = found;
    else if (found.is_object() && found.value("content", Json()).is_string())
      variables[key] = found["content"];
  }
  auto add = [&](const char* key, std::optional<uint32_t> id) {
    if (id && !names.contains(key)) variables[key] = model.tokenizer->decode_token(*id);
  };
  add("bos_token", model.tokenizer->begin_of_text());
  add("eos_token", model.tokenizer->end_of_text());
}

}  // namespace

ChatPrompt::ChatPrompt(const LoadedModel& model, const std::string& name) : model_(model) {
  const std::string where = printable(model.weights_path);
  if (!model.tokenizer)
    fail(model.tokenizer_problem.empty() ? "the model has no tokenizer" : model.tokenizer_problem, where,
         "Put the tokenizer.json of its training data next to it.");
  const std::string& jinja = model.text.chat_template;
  const ChatTemplate* form = name.empty() ? chat_template_of(jinja) : nullptr;
  if (form || !name.empty()) {
    format_.emplace(form ? form->name : name, model.tokenizer.get());
    name_ = format_->form().name;
  } else if (jinja.empty()) {
    fail(
        "the model has no chat template", where,
        fmt::format("If it was trained on conversations, name their template: --chat-template {}. If not, crest sample "
                    "--prompt continues a text.",
                    chat_template_names()));
  } else {
    jinja_ = std::make_unique<JinjaTemplate>(jinja, "the model's chat template");
    name_ = "of the model";
  }
  for (uint32_t id = 0; id < model.tokenizer->vocab_size(); ++id)
    if (model.tokenizer->is_special(id) && !model.tokenizer->decode_token(id).empty())
      specials_.emplace_back(model.tokenizer->decode_token(id), id);
  std::ranges::stable_sort(specials_, std::greater(), [](auto& special) { return special.first.size(); });
  end_tokens_ = text_ends(model).end;
  find_turn_end();
}

ChatPrompt::~ChatPrompt() = default;

void ChatPrompt::end_at(uint32_t token) {
  if (std::ranges::find(end_tokens_, token) == end_tokens_.end()) end_tokens_.push_back(token);
}

void ChatPrompt::find_turn_end() {
  if (format_) {
    const Tokenizer& tokenizer = *model_.tokenizer;
    if (auto token = turn_end(format_->form(), tokenizer)) end_at(*token);
    if (format_->form().answer.after.find("{eos}") != std::string_view::npos && tokenizer.end_of_text())
      end_at(*tokenizer.end_of_text());
    for (std::string_view missing : format_->missing())
      if (format_->form().answer.after.starts_with(missing)) end_texts_.emplace_back(missing);
    return;
  }
  // Where the template puts a token behind an answer, the answer ends there.
  const std::string answer = "answer 1";
  std::string made;
  try {
    made = text(std::vector<ChatTurn>{{ChatRole::user, "question"}, {ChatRole::assistant, answer}}, false);
  } catch (const Error&) {
    return;  // a conversation meets the same error later, if at all
  }
  const size_t at = made.rfind(answer);
  if (at == std::string::npos) return;
  const std::string_view after = std::string_view(made).substr(at + answer.size());
  for (auto& [spelling, id] : specials_)
    if (after.starts_with(spelling)) return end_at(id);
}

std::string ChatPrompt::text(std::span<const ChatTurn> turns, bool answer_follows) const {
  // As apply_chat_template has them without tools and documents.
  Json variables = {{"messages", Json::array()},
                    {"tools", nullptr},
                    {"documents", nullptr},
                    {"add_generation_prompt", answer_follows}};
  for (auto& turn : turns) variables["messages"].push_back({{"role", role_name(turn.role)}, {"content", turn.text}});
  add_special_names(model_, variables);
  return jinja_->render(variables);
}

std::vector<DocumentPart> ChatPrompt::parts(std::span<const ChatTurn> turns) const {
  if (!format_) return {{.text = text(turns, true)}};
  std::vector<ChatMessage> messages;
  for (auto& turn : turns) messages.push_back({turn.role, turn.text, false});
  return format_->prompt(messages);
}

// The parts with the special tokens of the template apart from the texts of the turns.
std::vector<DocumentPart> ChatPrompt::guarded_parts(std::span<const ChatTurn> turns) const {
  if (format_) return parts(turns);
  std::vector<ChatTurn> guarded(turns.begin(), turns.end());
  for (auto& turn : guarded)
    for (auto& [spelling, id] : specials_)
      for (size_t at = 0; (at = turn.text.find(spelling, at)) != std::string::npos; at += spelling.size())
        turn.text.insert(at + first_character(spelling).size, guard);
  std::vector<DocumentPart> parts;
  const std::string made = text(guarded, true);
  auto add = [&](std::string_view piece) {
    std::string text;
    for (size_t at; (at = piece.find(guard)) != std::string_view::npos; piece.remove_prefix(at + guard.size()))
      text += piece.substr(0, at);
    text += piece;
    if (!text.empty()) parts.push_back({.text = std::move(text)});
  };
  for (std::string_view rest = made; !rest.empty();) {
    size_t at = rest.size(), length = 0;
    std::optional<uint32_t> token;
    for (auto& [spelling, id] : specials_)
      if (size_t found = rest.find(spelling); found < at) at = found, length = spelling.size(), token = id;
    add(rest.substr(0, at));
    if (token) parts.push_back({.text = "", .token = token});
    rest.remove_prefix(at + length);
  }
  return parts;
}

std::vector<int32_t> ChatPrompt::tokens(std::span<const ChatTurn> turns) const {
  const Tokenizer& tokenizer = *model_.tokenizer;
  std::vector<uint32_t> ids;
  if (std::ranges::none_of(turns, [&](const ChatTurn& turn) { return spells_special(tokenizer, turn.text); })) {
    // As in transformers: one text; special tokens are found by their spelling.
    std::string all;
    for (auto& part : parts(turns)) all += part.token ? tokenizer.decode_token(*part.token) : part.text;
    ids = tokenizer.encode(all, true);
  } else {
    Encoder encoder(tokenizer);
    bool first = true;
    for (auto& part : guarded_parts(turns)) {
      if (part.token) {
        ids.push_back(*part.token);
      } else {
        const std::string_view text = part.text;
        const uint8_t continues = !first, conversation = 1;
        const auto& made = encoder.encode({&text, 1}, {&continues, 1}, {&conversation, 1});
        for (size_t i = 0; i < encoder.ends()[0]; ++i) ids.insert(ids.end(), made[i].begin(), made[i].end());
      }
      first = false;
    }
  }
  for (uint32_t id : ids)
    if (int64_t(id) >= model_.config.vocab)
      fail(fmt::format("the conversation has token {}, but the model's vocabulary has {} tokens", id,
                       model_.config.vocab),
           "tokenizer.json", "Use the tokenizer that the model was trained with.");
  return {ids.begin(), ids.end()};
}

std::string_view ChatPrompt::before_answer() const { return format_ ? format_->form().answer.before : ""; }

std::string ChatPrompt::answer(std::string_view generated) const {
  if (!format_) return std::string(generated);
  const std::string_view after = format_->form().answer.after;
  const size_t end = after.find("{eos}");
  if (end != std::string_view::npos && generated.ends_with(after.substr(0, end))) generated.remove_suffix(end);
  return std::string(generated);
}

}  // namespace crest
