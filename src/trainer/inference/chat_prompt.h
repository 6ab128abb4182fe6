// The tokens of a conversation, by a model's chat template.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/weights_io.h"
#include "data/chat.h"

namespace crest {

class JinjaTemplate;

struct ChatTurn {
  ChatRole role = ChatRole::user;
  std::string text;
};

class ChatPrompt {
 public:
  // name: of a template (--chat-template); "": the model's own. The model must outlive it. Throws
  // if the model has no tokenizer, or no readable template.
  ChatPrompt(const LoadedModel& model, const std::string& name);
  ~ChatPrompt();

  // The tokens of tokenizer.apply_chat_template(turns, add_generation_prompt=True), with one
  // difference: the spelling of a special token in a turn stays text.
  std::vector<int32_t> tokens(std::span<const ChatTurn> turns) const;
  // The answer in the conversation: without the text between it and its end in the template.
  std::string answer(std::string_view generated) const;
  // Text of the template before an answer, written by the model itself, such as " ".
  std::string_view before_answer() const;

  // Tokens at the end of an answer: of the model's files, and of the template.
  const std::vector<uint32_t>& end_tokens() const { return end_tokens_; }
  // Ends without a token in the tokenizer.
  const std::vector<std::string>& end_texts() const { return end_texts_; }
  // For people: "chatml".
  const std::string& name() const { return name_; }

 private:
  std::string text(std::span<const ChatTurn> turns, bool answer_follows) const;
  std::vector<DocumentPart> parts(std::span<const ChatTurn> turns) const;
  std::vector<DocumentPart> guarded_parts(std::span<const ChatTurn> turns) const;
  void find_turn_end();
  void end_at(uint32_t token);

  const LoadedModel& model_;
  std::string name_;
  std::optional<ChatFormat> format_;                        // of Crest's own templates
  std::unique_ptr<JinjaTemplate> jinja_;                    // of others
  std::vector<std::pair<std::string, uint32_t>> specials_;  // spelling and id; the longest first
  std::vector<uint32_t> end_tokens_;
  std::vector<std::string> end_texts_;
};

}  // namespace crest
