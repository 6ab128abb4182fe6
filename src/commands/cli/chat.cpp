// crest chat: a conversation with a trained model.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/command.h"
#include "cli/model_options.h"
#include "cli/options.h"
#include "cli/store_options.h"
#include "cli/text_io.h"
#include "core/error.h"
#include "core/text.h"
#include "core/to_stderr.h"
#include "data/chat.h"
#include "host/stop_signal.h"
#include "inference/chat_model.h"

namespace crest {

namespace {

struct ChatFlags {
  ChatOptions chat;
  std::string base;
  DeviceOptions device;
  StoreFile store;
  bool json = false, has_run = false;
};

constexpr const char* commands_help =
    "/reset    begin a new conversation\n"
    "/help     this list\n"
    "/quit     end (also Ctrl-D)\n"
    "//TEXT    send /TEXT to the model\n"
    "Ctrl-C    end the answer; where you type: end the program\n";

class Conversation {
 public:
  Conversation(const ChatFlags& flags, ModelChat& chat)
      : flags_(flags), chat_(chat), out_(flags.json), typed_(isatty(STDIN_FILENO) == 1) {}

  // Until the end of the input; the exit code.
  int run() {
    std::string line;
    for (int64_t number = 1;; ++number) {
      if (typed_) to_stderr("> ");
      if (!read_line(line, number)) {
        if (typed_) to_stderr("\n");
        return 0;
      }
      if (typed_ && line.empty()) continue;
      if (typed_ && line[0] == '/' && !line.starts_with("//")) {
        if (line == "/quit") return 0;
        obey(line);
        continue;
      }
      if (typed_ && line[0] == '/') line.erase(0, 1);
      if (int signal = answer(line, number)) return signal;
    }
  }

 private:
  void obey(const std::string& line) {
    if (line == "/help") {
      to_stderr("{}", commands_help);
    } else if (line == "/reset") {
      chat_.reset();
      message("(a new conversation)");
    } else {
      message("There is no command {}. /help lists them; //TEXT sends /TEXT.", printable(line));
    }
  }

  // 0, or the exit code after a signal.
  int answer(const std::string& question, int64_t number) {
    // Ctrl-C ends an answer only where somebody types; elsewhere it ends the program, as always.
    std::optional<StopSignal> stop;
    if (typed_) stop.emplace();
    std::function<bool()> interrupted;
    if (typed_) interrupted = [] { return StopSignal::requested(); };
    ChatAnswer a;
    try {
      a = chat_.answer(
          question, [&](std::string_view piece) { out_.write(piece); }, interrupted);
    } catch (const QuestionTooLong& e) {
      if (!typed_) fail(e.problem(), fmt::format("standard input, line {}", number), e.advice());
      message("crest: error: {}", e.what());
      return 0;
    }
    out_.write("\n");
    if (flags_.json) print(to_json(a));
    explain(a);
    const int signal = StopSignal::signal_number();
    return signal != 0 && signal != SIGINT ? int(Exit::interrupted) : 0;
  }

  static void print(const nlohmann::ordered_json& object) {
    write_output(object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  }

  void explain(const ChatAnswer& a) const {
    if (a.left_out > 0)
      message("(the context of {} was full: the conversation continues without its oldest {})",
              format_number_of(chat_.context(), "token"),
              a.left_out == 1 ? "question and answer" : fmt::format("{} questions and answers", a.left_out));
    if (a.full)
      message("(the answer was cut: the context of {} is full)", format_number_of(chat_.context(), "token"));
    else if (a.generated.end == GenerateEnd::length)
      message("(the answer was cut after {}: --max-tokens)", format_number_of(flags_.chat.max_tokens, "token"));
    if (a.generated.end == GenerateEnd::interrupted)
      message("{}", a.forgotten ? "(interrupted: the question is forgotten)" : "(interrupted)");
  }

  const ChatFlags& flags_;
  ModelChat& chat_;
  TextOutput out_;
  const bool typed_;
};

int run_chat(ChatFlags& o) {
  if (!o.has_run) o.chat.run = newest_run(o.store);
  validate(o.chat);
  LoadedModel model = open_model_of_command(o.chat.run, o.base);
  if (!model.text_problem.empty()) message("crest: warning: {}", model.text_problem);
  o.chat.decoding.device = o.device.find();
  o.chat.decoding.memory_limit = o.device.limit(o.chat.decoding.device);
  ModelChat chat(o.chat, model);
  print_model(model, chat.recipe(), o.chat.decoding.device);
  message("chat     template {}, context of {}{}", chat.template_name(), format_number_of(chat.context(), "token"),
          isatty(STDIN_FILENO) ? "; /help lists commands" : "");
  return Conversation(o, chat).run();
}

}  // namespace

std::function<int()> setup_chat(CLI::App& app) {
  auto o = std::make_shared<ChatFlags>();
  ChatOptions& c = o->chat;
  auto* run = app.add_option("--run", c.run,
                             "run, checkpoint, or folder with config.json and safetensors (default: the newest run)")
                  ->type_name("RUN");
  add_base_option(app, o->base);
  auto option = [&](const char* flag, auto& value, const char* help) {
    return app.add_option(flag, value, help)->capture_default_str();
  };
  app.add_option("--system", c.system, "instructions to the model, before the first question")->type_name("TEXT");
  app.add_option("--chat-template", c.chat_template,
                 fmt::format("how turns are written: {} (default: the model's template)", chat_template_names()))
      ->type_name("NAME");
  app.add_option("--context", c.context,
                 fmt::format("tokens of the conversation kept in memory (default: the model's context, at most {})",
                             ChatOptions::longest_context))
      ->type_name("TOKENS");
  option("--max-tokens", c.max_tokens, "maximum number of tokens of an answer");
  add_sampler_options(app, c.sampler);
  add_stop_option(app, c.stops);
  add_precision_options(app, c.decoding);
  add_device_options(app, o->device);
  add_store_option(app, o->store);
  add_config_option(app);
  add_json_option(app, o->json);
  return [o, run] {
    o->has_run = run->count() > 0;
    return run_chat(*o);
  };
}

}  // namespace crest
