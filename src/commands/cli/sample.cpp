// crest sample: generates text with a trained model.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/input_text.h"
#include "cli/model_options.h"
#include "cli/options.h"
#include "cli/store_options.h"
#include "cli/text_io.h"
#include "core/error.h"
#include "core/io.h"
#include "core/text.h"
#include "core/timer.h"
#include "inference/sample_model.h"
#include "inference/score_model.h"
#include "terminal/print_json.h"

namespace crest {

namespace {

constexpr uint64_t max_prompts_bytes = uint64_t(1) << 30;

struct SampleFlags {
  SampleOptions sample;
  std::string prompt_file, prompts, tokens, base;
  DeviceOptions device;
  StoreFile store;
  bool no_echo = false, json = false;
  bool has_run = false, has_prompt = false, has_tokens = false;
};

std::vector<int64_t> parse_ids(const std::string& text) {
  std::vector<int64_t> ids;
  for (auto& part : split(text, ',')) {
    size_t first = part.find_first_not_of(' '), last = part.find_last_not_of(' ');
    std::string word = first == std::string::npos ? "" : part.substr(first, last - first + 1);
    int64_t id = -1;
    auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (word.empty() || error != std::errc() || end != word.data() + word.size())
      fail_usage(fmt::format("'{}' is not a token id", printable(part)), "--prompt-tokens", "Give ids as 1,2,3.");
    ids.push_back(id);
  }
  return ids;
}

// Reads the prompt, once the other options are checked.
void read_prompt(SampleFlags& o) {
  if (int(o.has_prompt) + int(!o.prompt_file.empty()) + int(!o.prompts.empty()) + int(o.has_tokens) > 1)
    fail_usage("give only one of --prompt, --prompt-file, --prompts and --prompt-tokens (also --tokens)",
               "crest sample", "--max-tokens limits the length of the text.");
  if (o.has_tokens) o.sample.tokens = parse_ids(o.tokens);
  validate(o.sample);
  if (!o.prompt_file.empty()) o.sample.prompt = read_input(o.prompt_file, max_prompt_bytes);
}

// Somebody at a terminal is asked for the prompt.
void ask_for_prompt(SampleFlags& o) {
  if (o.has_prompt || o.has_tokens || !o.prompt_file.empty() || !isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)) return;
  to_stderr("prompt (empty: a new text)> ");
  if (!read_line(o.sample.prompt, 1)) to_stderr("\n");
}

SampledText sample(const SampleFlags& o, ModelSampler& sampler, TextOutput& out, int64_t number) {
  if (!o.has_tokens && !o.no_echo) out.write(o.sample.prompt);
  SampledText s = sampler.sample(0, number, [&](std::string_view piece) { out.write(piece); });
  out.write("\n");
  message("sample   {}, {:.1f} tokens/s; prompt of {} in {}; end: {}", format_number_of(s.tokens, "token"),
          s.tokens_per_second(), format_number_of(int64_t(sampler.prompt_tokens()), "token"),
          format_duration(s.generated.prompt_seconds), name(s.generated.end));
  if (s.slides > 0)
    message("         the context of {} filled up {} the last half was kept",
            format_number_of(sampler.cache_length(), "token"),
            s.slides == 1 ? "once:" : fmt::format("{} times; each time", s.slides));
  return s;
}

// One line of JSON for each sample of each prompt.
int run_prompts(SampleFlags& o) {
  const std::string where = input_name(o.prompts);
  if (o.prompts == "-" && isatty(STDIN_FILENO))
    fail_usage("standard input is a terminal", "--prompts", "Pipe lines into it, or name a file of them.");
  std::vector<std::string> ignored;
  auto requests = parse_sample_requests(read_input(o.prompts, max_prompts_bytes), where, o.sample, ignored);
  if (!ignored.empty()) message("crest: warning: {}: ignored keys: {}", where, printable(join(ignored, ", ")));
  LoadedModel model = open_model_of_command(o.sample.run, o.base);
  o.sample.device = o.device.find();
  o.sample.memory_limit = o.device.limit(o.sample.device);
  ModelSampler sampler(o.sample, model, std::move(requests), [&](size_t i) { return place_of_line(where, i); });
  print_model(model, sampler.recipe(), o.sample.device);
  const Timer timer;
  int64_t tokens = 0, cut = 0;
  for (size_t i = 0; i < sampler.requests().size(); ++i) {
    cut += sampler.prompt_given(i) > sampler.prompt_tokens(i);
    for (int64_t number = 0; number < o.sample.samples; ++number) {
      const SampledText s = sampler.sample(i, number, [](std::string_view) {});
      tokens += s.tokens;
      write_output(sampler.to_json(i, number, s).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
    }
  }
  if (cut)
    message("crest: warning: only the end of {} was used: the model's context is {}", format_number_of(cut, "prompt"),
            model.config.cached_context());
  message("sample   {}, {} in {}", format_number_of(int64_t(sampler.requests().size()), "prompt"),
          format_number_of(tokens, "token"), format_duration(timer.seconds()));
  return 0;
}

int run_sample(SampleFlags& o) {
  if (!o.has_run) o.sample.run = newest_run(o.store);
  read_prompt(o);
  if (!o.prompts.empty()) return run_prompts(o);
  LoadedModel model = open_model_of_command(o.sample.run, o.base);
  if (!model.text_problem.empty()) message("crest: warning: {}", model.text_problem);
  if (model.tokenizer) ask_for_prompt(o);
  o.sample.device = o.device.find();
  o.sample.memory_limit = o.device.limit(o.sample.device);
  ModelSampler sampler(o.sample, model);
  if (sampler.prompt_given() > sampler.prompt_tokens())
    message("the prompt has {} but the context is {}: only its end is used",
            format_number_of(int64_t(sampler.prompt_given()), "token"), sampler.prompt_tokens());
  print_model(model, sampler.recipe(), o.sample.device);
  if (std::string begin = sampler.begin_note(); !begin.empty()) message("begin    {}", begin);
  TextOutput out(o.json);
  std::vector<SampledText> samples;
  for (int64_t i = 0; i < o.sample.samples; ++i) {
    if (i > 0) out.write("---\n");
    samples.push_back(sample(o, sampler, out, i));
  }
  if (o.json) print_json(sampler.to_json(samples));
  return 0;
}

}  // namespace

std::function<int()> setup_sample(CLI::App& app) {
  auto o = std::make_shared<SampleFlags>();
  SampleOptions& s = o->sample;
  auto* run = app.add_option("--run", s.run,
                             "run, checkpoint, or folder with config.json and safetensors (default: the newest run)")
                  ->type_name("RUN");
  add_base_option(app, o->base);
  auto* prompt =
      app.add_option("--prompt", s.prompt, "text to continue (default: asks in a terminal, else starts a new text)");
  app.add_option("--prompt-file", o->prompt_file, "file with the prompt, or - (standard input)")->type_name("FILE");
  app.add_option("--prompts", o->prompts,
                 "lines {\"prompt\": TEXT} of a file, or - (standard input): prints a line of JSON for each")
      ->type_name("FILE");
  auto* tokens =
      app.add_option("--prompt-tokens,--tokens", o->tokens, "prompt as token ids 1,2,3; the output is ids too")
          ->type_name("IDS");
  auto option = [&](const char* flag, auto& value, const char* help) {
    return app.add_option(flag, value, help)->capture_default_str();
  };
  option("--max-tokens", s.max_tokens, "maximum number of tokens to generate");
  add_sampler_options(app, s.sampler);
  option("--num-samples", s.samples, "number of texts to generate");
  add_stop_option(app, s.stops);
  app.add_flag("--no-echo", o->no_echo, "do not print the prompt before its continuation");
  app.add_flag("--add-bos", s.add_bos, "begin the prompt with the model's begin-of-text token, such as Llama's <s>");
  app.add_flag("--ignore-end", s.ignore_end, "continue after a token that ends the text, such as <|endoftext|>");
  add_precision_options(app, s);
  add_device_options(app, o->device);
  add_store_option(app, o->store);
  add_config_option(app);
  add_json_option(app, o->json);
  return [o, run, prompt, tokens] {
    o->has_run = run->count() > 0;
    o->has_prompt = prompt->count() > 0, o->has_tokens = tokens->count() > 0;
    return run_sample(*o);
  };
}

}  // namespace crest
