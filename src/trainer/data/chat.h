// Chat templates: the text of a conversation, and its trained parts.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace crest {

class Tokenizer;

enum class ChatRole : uint8_t { system, user, assistant };

struct ChatMessage {
  ChatRole role = ChatRole::user;
  std::string_view content;
  bool trained = true;  // of an answer: whether it is trained on
};

struct ChatTemplate {
  // Around a message. In these texts {eos} is the tokenizer's end-of-text token, {bos} its
  // begin-of-text token, or nothing if it has none, and `tokens` are added tokens where it has
  // them.
  struct Form {
    std::string_view before, after;
  };
  std::string_view name;  // value of --chat-template
  std::string_view begin;
  Form system, user;
  std::string_view answer_prompt;  // not trained on, as nothing before it
  Form answer;                     // trained on
  // The same text in Jinja, as `transformers` has it in tokenizer_config.json, of `messages`,
  // `add_generation_prompt`, `eos_token` and `bos_token`.
  std::string_view jinja;
  std::array<std::string_view, 4> tokens = {};
  std::string_view default_system = {};  // of conversations without one
  // Of records with an instruction and an input: the text between the two, and the system text.
  std::string_view input = "\n\n", input_system = {};
  bool system_in_user = false;  // the system text is part of the first user message
};

std::span<const ChatTemplate> chat_templates();
// Null for an unknown name.
const ChatTemplate* chat_template(std::string_view name);
// The template with this text in Jinja. Null: none.
const ChatTemplate* chat_template_of(std::string_view jinja);
// "chatml, llama3, ..."
std::string chat_template_names();

// Whether this is a marker of any template, or begins or ends texts. In a message it stays text.
bool is_chat_marker(std::string_view text);

// The token at the end of an answer, if the tokenizer has it; {eos} is not one.
std::optional<uint32_t> turn_end(const ChatTemplate& form, const Tokenizer& tokenizer);

// A stretch of a document: text, or a special token.
struct DocumentPart {
  std::string text;
  bool trained = true;
  std::optional<uint32_t> token = {};
};

// A template for a tokenizer.
class ChatFormat {
 public:
  // `name`: of a template; "": chatml or llama3 if the tokenizer has their tokens, else plain.
  // `tokenizer`: null for one to be trained later. Throws a usage error for an unknown name.
  ChatFormat(std::string_view name, const Tokenizer* tokenizer);
  const ChatTemplate& form() const { return *form_; }
  // The user named the template: it also applies to lines with a text.
  bool named() const { return named_; }
  // Tokens of the template unknown to the tokenizer: ordinary text.
  const std::vector<std::string_view>& missing() const { return missing_; }
  // The template's tokens without the mark "special" in the tokenizer.
  const std::vector<std::string_view>& not_special() const { return not_special_; }
  // The tokenizer, after its training.
  void set_end_of_text(std::optional<uint32_t> id) { end_of_text_ = id; }

  // The parts of a conversation. Neighbors of the same kind are one part, so text is encoded as a
  // whole. Messages after the last answer are left out, since nothing learns from them; so is an
  // end-of-text token at the end, since every document gets one.
  std::vector<DocumentPart> parts(std::span<const ChatMessage> messages) const;
  // The parts of all messages and the beginning of the next answer: the prompt of a model.
  // Nothing in it is trained, so neighboring texts are one part.
  std::vector<DocumentPart> prompt(std::span<const ChatMessage> messages) const;
  // Why the messages cannot have this form, or "".
  std::string problem(std::span<const ChatMessage> messages) const;

 private:
  void add(std::string_view form, bool trained, std::vector<DocumentPart>& parts) const;
  std::vector<DocumentPart> all_parts(std::span<const ChatMessage> messages, bool training) const;
  const ChatTemplate* form_;
  bool named_;
  std::vector<std::pair<std::string_view, uint32_t>> tokens_;  // in the tokenizer
  std::optional<uint32_t> begin_of_text_, end_of_text_;        // {bos}, {eos}
  std::vector<std::string_view> missing_, not_special_;
};

}  // namespace crest
