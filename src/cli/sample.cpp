// crest sample: generates text with a trained model.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>

#include "checkpoint/weights_io.h"
#include "cli/command.h"
#include "cli/options.h"
#include "core/error.h"
#include "core/io.h"
#include "core/json.h"
#include "core/text.h"
#include "core/to_stderr.h"
#include "data/tokenizer.h"
#include "plan/compile.h"
#include "run/generate.h"
#include "run/text_stream.h"

namespace crest {

namespace {

constexpr uint64_t max_prompt_bytes = uint64_t(64) << 20;

struct Options {
  std::string run, prompt, prompt_file, tokens, precision = "auto";
  DeviceOptions device;
  SamplerOptions sampler;
  int64_t max_tokens = 256, samples = 1;
  std::vector<std::string> stops;
  bool no_echo = false, ignore_end = false, json = false;
  bool has_prompt = false, has_tokens = false;
};

template <class... T>
void message(fmt::format_string<T...> format, T&&... values) {
  to_stderr("{}\n", fmt::format(format, std::forward<T>(values)...));
}

std::vector<int32_t> parse_ids(const std::string& text, int64_t vocab) {
  std::vector<int32_t> ids;
  for (auto& part : split(text, ',')) {
    size_t first = part.find_first_not_of(' '), last = part.find_last_not_of(' ');
    std::string word = first == std::string::npos ? "" : part.substr(first, last - first + 1);
    int64_t id = -1;
    auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (word.empty() || error != std::errc() || end != word.data() + word.size())
      fail_usage(fmt::format("'{}' is not a token id", printable(part)), "--prompt-tokens", "Give ids as 1,2,3.");
    if (id < 0 || id >= vocab)
      fail_usage(fmt::format("token {} is outside the model's vocabulary of {} tokens", id, vocab), "--prompt-tokens");
    ids.push_back(int32_t(id));
  }
  return ids;
}

std::string prompt_text(const Options& o) {
  if (o.prompt_file.empty()) return o.prompt;
  return read_file(o.prompt_file == "-" ? "/dev/stdin" : o.prompt_file, max_prompt_bytes);
}

void check(const Options& o) {
  if (o.run.empty())
    fail_usage("no model given", "--run", "Give a run, a checkpoint, or a folder with config.json and safetensors.");
  validate(o.sampler);
  if (int(o.has_prompt) + int(!o.prompt_file.empty()) + int(o.has_tokens) > 1)
    fail_usage("give only one of --prompt, --prompt-file and --prompt-tokens", "crest sample");
  if (o.max_tokens < 1)
    fail_usage(fmt::format("max-tokens {}", o.max_tokens), "--max-tokens", "It must be at least 1.");
  if (o.samples < 1) fail_usage(fmt::format("num-samples {}", o.samples), "--num-samples", "It must be at least 1.");
  if (o.has_tokens && !o.stops.empty()) fail_usage("--stop works on text, but --prompt-tokens prints ids", "--stop");
}

// Standard output, written at once. The model's control characters never reach a terminal.
class Output {
 public:
  explicit Output(bool quiet) : quiet_(quiet), terminal_(isatty(STDOUT_FILENO) == 1) {}
  void write(std::string_view text) {
    if (quiet_ || text.empty()) return;
    std::string shown = terminal_ ? displayable(text) : std::string(text);
    if (std::fwrite(shown.data(), 1, shown.size(), stdout) != shown.size() || std::fflush(stdout) != 0)
      fail("could not write to standard output", "", "Is the disk full, or has the reader gone away?");
  }

 private:
  bool quiet_, terminal_;
};

const char* name(GenerateEnd end) {
  return end == GenerateEnd::length ? "length" : end == GenerateEnd::end_token ? "end_of_text" : "stop";
}

class Sampling {
 public:
  explicit Sampling(const Options& o) : o_(o), out_(o.json) {}

  int run() {
    model_ = open_model(o_.run, [](const std::string& m) { message("crest: warning: {}", m); });
    std::string text;
    std::vector<int32_t> prompt = find_prompt(text);
    Device device = o_.device.find();
    Recipe recipe;
    recipe.model = model_.config;
    recipe.batch = 1;
    recipe.precision = o_.precision;
    recipe = resolve(recipe, device);
    SessionUse use;
    use.sampling = true;
    use.cache_length = std::min(model_.config.context, int64_t(prompt.size()) + o_.max_tokens);
    CompiledSession session = compile(recipe, device, session_programs(recipe, use));
    check_fits(session, o_.device.limit(device));
    Executor executor(session);
    load_weights(executor, model_);
    message("model    {}{}, {} parameters, {} on {}", printable(model_.config.name),
            model_.step >= 0 ? fmt::format(" at step {}", model_.step) : "",
            format_count(double(model_.config.parameters())), session.recipe.precision, device.name);
    Decoder decoder(executor);
    nlohmann::json list = nlohmann::json::array();
    for (int64_t i = 0; i < o_.samples; ++i) {
      if (i > 0) out_.write("---\n");
      list.push_back(one(decoder, prompt, text, i));
    }
    if (!o_.json) return 0;
    nlohmann::json j = {{"run", o_.run},
                        {"model", model_.config.name},
                        {"device", device.kind},
                        {"precision", session.recipe.precision},
                        {"seed", o_.sampler.seed},
                        {"temperature", o_.sampler.temperature},
                        {"top_k", o_.sampler.top_k},
                        {"top_p", o_.sampler.top_p},
                        {"prompt_tokens", prompt.size()},
                        {"samples", list}};
    j["step"] = model_.step >= 0 ? nlohmann::json(model_.step) : nlohmann::json();
    j["prompt"] = o_.has_tokens ? nlohmann::json() : nlohmann::json(text);
    fmt::print("{}\n", j.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    return 0;
  }

 private:
  std::vector<int32_t> find_prompt(std::string& text) {
    int64_t vocab = model_.config.vocab, context = model_.config.context;
    std::vector<int32_t> prompt;
    if (o_.has_tokens) {
      prompt = parse_ids(o_.tokens, vocab);
    } else {
      if (!model_.tokenizer)
        fail(model_.tokenizer_problem.empty() ? "the model has no tokenizer.json" : model_.tokenizer_problem,
             printable(model_.weights_path),
             "Give token ids instead of text: --prompt-tokens 1,2,3 (the output is ids too).");
      text = prompt_text(o_);
      prompt = prompt_tokens(*model_.tokenizer, text, vocab);
    }
    if (int64_t(prompt.size()) > context) {
      message("the prompt has {} tokens but the context is {}: only its end is used", prompt.size(), context);
      prompt.erase(prompt.begin(), prompt.end() - context);
    }
    return prompt;
  }

  nlohmann::json one(Decoder& decoder, const std::vector<int32_t>& prompt, const std::string& text, int64_t number) {
    const Tokenizer* tokenizer = model_.tokenizer.get();
    GenerateOptions g;
    g.max_tokens = o_.max_tokens;
    g.sampler = o_.sampler;
    g.sample = uint64_t(number);
    if (tokenizer && !o_.has_tokens) g.vocab = tokenizer->vocab_size();
    if (tokenizer && tokenizer->end_of_text() && !o_.ignore_end) g.end_token = int32_t(*tokenizer->end_of_text());
    TextStream stream(o_.stops);
    std::string written;
    auto show = [&](const std::string& piece) {
      written += piece;
      out_.write(piece);
    };
    if (!o_.has_tokens && !o_.no_echo) out_.write(text);
    int64_t slides = decoder.slides(), count = 0;
    Generated result = generate(decoder, prompt, g, [&](int32_t id) {
      ++count;
      if (o_.has_tokens) {
        out_.write(fmt::format("{}{}", count > 1 ? "," : "", id));
        return true;
      }
      show(stream.add(tokenizer->decode_token(uint32_t(id))));
      return !stream.stopped();
    });
    show(stream.finish());
    out_.write("\n");
    slides = decoder.slides() - slides;
    double rate = result.decode_seconds > 0 ? double(count) / result.decode_seconds : 0;
    message("sample   {} tokens, {:.1f} tokens/s; prompt of {} tokens in {}; end: {}", count, rate, prompt.size(),
            format_duration(result.prompt_seconds), name(result.end));
    if (slides > 0)
      message("         the context of {} tokens filled up {} times; each time the last half was kept",
              decoder.cache_length(), slides);
    nlohmann::json j = {{"tokens", result.tokens},
                        {"finish", name(result.end)},
                        {"prompt_seconds", result.prompt_seconds},
                        {"decode_seconds", result.decode_seconds},
                        {"tokens_per_second", rate}};
    j["text"] = o_.has_tokens ? nlohmann::json() : nlohmann::json(written);
    return j;
  }

  const Options& o_;
  Output out_;
  LoadedModel model_;
};

}  // namespace

std::function<int()> setup_sample(CLI::App& app) {
  auto o = std::make_shared<Options>();
  app.add_option("--run", o->run, "run, checkpoint, or folder with config.json and safetensors")->type_name("RUN");
  auto* prompt = app.add_option("--prompt", o->prompt, "text to continue (default: start a new text)");
  app.add_option("--prompt-file", o->prompt_file, "file with the prompt, or - (standard input)")->type_name("FILE");
  auto* tokens =
      app.add_option("--prompt-tokens,--tokens", o->tokens, "prompt as token ids 1,2,3; the output is ids too")
          ->type_name("IDS");
  auto option = [&](const char* flag, auto& value, const char* help) {
    return app.add_option(flag, value, help)->capture_default_str();
  };
  option("--max-tokens", o->max_tokens, "maximum number of tokens to generate");
  option("--temperature", o->sampler.temperature,
         "0: always the most probable token; 1: the model's own probabilities");
  option("--top-k", o->sampler.top_k, "sample from the k most probable tokens (0: all)");
  option("--top-p", o->sampler.top_p, "sample from the fewest tokens whose probabilities add up to this (1: all)");
  option("--seed", o->sampler.seed, "the same seed gives the same text");
  option("--num-samples", o->samples, "number of texts to generate");
  app.add_option("--stop", o->stops, "stop before this text; repeatable")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);  // "[a,b]" is a text, not a list
  app.add_flag("--no-echo", o->no_echo, "do not print the prompt before its continuation");
  app.add_flag("--ignore-end", o->ignore_end, "continue after <|endoftext|>");
  option("--precision", o->precision, "auto (bf16 if the device supports it), fp32, tf32, bf16, fp16");
  add_device_options(app, o->device);
  add_config_option(app);
  add_json_option(app, o->json);
  return [o, prompt, tokens] {
    o->has_prompt = prompt->count() > 0, o->has_tokens = tokens->count() > 0;
    check(*o);
    return Sampling(*o).run();
  };
}

}  // namespace crest
