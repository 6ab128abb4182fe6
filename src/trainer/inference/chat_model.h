// A conversation with a saved model: crest chat.
#pragma once
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/weights_io.h"
#include "core/error.h"
#include "inference/chat_prompt.h"
#include "inference/decoding_session.h"

namespace crest {

struct ChatOptions {
  std::string run;            // the name of the model
  std::string system;         // text before the conversation; "": none
  std::string chat_template;  // name; "": the model's
  DecodingOptions decoding;
  SamplerOptions sampler;
  int64_t max_tokens = 1024;  // of an answer
  int64_t context = 0;        // of the conversation, in tokens; 0: the model's, at most longest_context
  std::vector<std::string> stops;

  static constexpr int64_t longest_context = 8192;
};

struct ChatAnswer {
  std::string text;
  std::vector<int32_t> prompt;  // all tokens of the conversation before the answer
  Generated generated;
  int64_t left_out = 0;    // questions and answers without room in the context
  bool full = false;       // the context ended the answer, before max_tokens
  bool forgotten = false;  // interrupted before it began: the question is not in the conversation
  double seconds = 0;
};

// A question too long for the context. The conversation stays as it was.
class QuestionTooLong : public Error {
 public:
  using Error::Error;
};

// Throws for a wrong option, before anything is opened.
void validate(const ChatOptions& options);

class ModelChat {
 public:
  // Both must outlive it.
  ModelChat(const ChatOptions& options, const LoadedModel& model);
  ~ModelChat();
  const Recipe& recipe() const { return session_->compiled.recipe; }
  const std::string& template_name() const { return prompt_.name(); }
  int64_t context() const { return session_->decoder.cache_length(); }

  // Appends a question and its answer to the conversation. The keys and values of earlier turns
  // stay in the cache, and only new tokens are computed. show: receives the answer's text as it is
  // drawn. interrupted: whether to end the answer. If the context has no room for an answer,
  // the oldest questions and answers are left out, until the conversation takes at most half of
  // it. Throws QuestionTooLong, and the conversation stays as it was, if the question alone is too
  // long.
  ChatAnswer answer(const std::string& question, const std::function<void(std::string_view)>& show,
                    const std::function<bool()>& interrupted = {});
  // Begins a new conversation, with the same system text and other random numbers.
  void reset();
  // Questions and answers so far.
  int64_t turns() const;

 private:
  std::vector<int32_t> fit(std::vector<ChatTurn>& turns, int64_t& left_out) const;
  void generate_answer(ChatAnswer& answer, const std::function<void(std::string_view)>& show,
                       const std::function<bool()>& interrupted);

  const ChatOptions& options_;
  const LoadedModel& model_;
  const ChatPrompt prompt_;
  std::unique_ptr<DecodingSession> session_;
  std::vector<ChatTurn> turns_;
  uint64_t conversation_ = 0;
};

// docs/reference/contract.md, chat.
nlohmann::ordered_json to_json(const ChatAnswer& answer);

}  // namespace crest
