#include "inference/sample_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/json.h"
#include "core/text.h"
#include "data/tokenizer.h"
#include "run/text_stream.h"

namespace crest {

using Json = nlohmann::ordered_json;

const char* name(GenerateEnd end) {
  switch (end) {
    case GenerateEnd::length: return "length";
    case GenerateEnd::end_token: return "end_of_text";
    case GenerateEnd::stopped: return "stop";
    case GenerateEnd::interrupted: break;
  }
  return "interrupted";
}

double SampledText::tokens_per_second() const {
  return generated.decode_seconds > 0 ? double(tokens) / generated.decode_seconds : 0;
}

void validate(const SampleOptions& o) {
  if (o.run.empty())
    fail_usage("no model given", "--run", "Give a run, a checkpoint, or a folder with config.json and safetensors.");
  validate(o.sampler);
  if (o.max_tokens < 1)
    fail_usage(fmt::format("max-tokens {}", o.max_tokens), "--max-tokens", "It must be at least 1.");
  if (o.samples < 1) fail_usage(fmt::format("num-samples {}", o.samples), "--num-samples", "It must be at least 1.");
  if (o.tokens && !o.stops.empty()) fail_usage("--stop works on text, but --prompt-tokens prints ids", "--stop");
  if (o.tokens && o.add_bos)
    fail_usage("--add-bos works on text, but --prompt-tokens gives ids", "--add-bos", "Give its id with the others.");
}

static std::vector<int32_t> checked_ids(const std::vector<int64_t>& tokens, int64_t vocab) {
  std::vector<int32_t> ids;
  for (int64_t id : tokens) {
    if (id < 0 || id >= vocab)
      fail_usage(fmt::format("token {} is outside the model's vocabulary of {} tokens", id, vocab), "--prompt-tokens");
    ids.push_back(int32_t(id));
  }
  return ids;
}

static std::vector<int32_t> find_prompt(const SampleOptions& o, const SampleRequest& request, const LoadedModel& model,
                                        const TextEnds& ends) {
  if (request.tokens) return checked_ids(*request.tokens, model.config.vocab);
  if (!model.tokenizer) {
    const bool none = model.tokenizer_problem.empty(), folder = !model.checkpoint;
    const char* missing = folder ? "the model has no tokenizer.json"
                                 : "the checkpoint has no tokenizer: the data that it was trained on had none";
    fail(none ? missing : model.tokenizer_problem, printable(model.weights_path),
         std::string(!none    ? "Correct or replace that file, or give"
                     : folder ? "Put the tokenizer.json of its data next to it, or give"
                              : "Give") +
             " token ids: --prompt-tokens 1,2,3 (the output is ids too).");
  }
  if (o.add_bos && !ends.begin)
    fail_usage("the model has no begin-of-text token", "--add-bos",
               "Leave it out: neither its tokenizer nor its generation_config.json or config.json names one.");
  return prompt_tokens(*model.tokenizer, request.prompt, model.config.vocab, ends.begin, o.add_bos);
}

ModelSampler::ModelSampler(const SampleOptions& options, const LoadedModel& model)
    : ModelSampler(options, model, {static_cast<const SampleRequest&>(options)}, {}) {}

ModelSampler::ModelSampler(const SampleOptions& options, const LoadedModel& model, std::vector<SampleRequest> requests,
                           const std::function<std::string(size_t)>& place)
    : options_(options), model_(model), ends_(text_ends(model)), requests_(std::move(requests)) {
  const int64_t context = model.config.cached_context();
  int64_t longest = 1;
  for (auto& request : requests_) {
    Prompt prompt;
    try {
      prompt.tokens = find_prompt(options, request, model, ends_);
    } catch (const Error& e) {
      if (!place || !model.tokenizer) throw;
      throw Error(e.code(), e.problem(), place(prompts_.size()), e.advice());
    }
    prompt.given = prompt.tokens.size();
    if (int64_t(prompt.given) > context) prompt.tokens.erase(prompt.tokens.begin(), prompt.tokens.end() - context);
    longest = std::max(longest, int64_t(prompt.tokens.size()) + std::min(request.max_tokens, context));
    prompts_.push_back(std::move(prompt));
  }
  session_ = DecodingSession::open(model, options, std::min(context, longest));
}

ModelSampler::~ModelSampler() = default;

const Recipe& ModelSampler::recipe() const { return session_->recipe(); }

int64_t ModelSampler::cache_length() const { return session_->decoder.cache_length(); }

std::string ModelSampler::begin_note() const {
  const Tokenizer* tokenizer = model_.tokenizer.get();
  const SampleRequest& request = requests_[0];
  if (request.tokens || !ends_.begin) return "";
  const std::string token = printable(tokenizer->decode_token(*ends_.begin));
  if (request.prompt.empty()) return fmt::format("{} begins the text", token);
  if (options_.add_bos) return fmt::format("{} before the prompt", token);
  // Where the end-of-text token stands in for a beginning, prompts have none in any program.
  if (!tokenizer->begin_of_text() || tokenizer->encode(request.prompt, true)[0] == *ends_.begin) return "";
  return fmt::format("no {} before the prompt (--add-bos puts it there)", token);
}

SampledText ModelSampler::sample(size_t at, int64_t number, const std::function<void(std::string_view)>& show) {
  const Tokenizer* tokenizer = model_.tokenizer.get();
  const SampleRequest& request = requests_[at];
  bool ids = request.tokens.has_value();
  GenerateOptions g;
  g.max_tokens = request.max_tokens;
  g.sampler = request.sampler;
  g.sample = uint64_t(number);
  if (tokenizer && !ids) g.vocab = tokenizer->vocab_size();
  if (!options_.ignore_end) g.end_tokens = ends_.end;
  TextStream stream(request.stops);
  SampledText s;
  auto add = [&](const std::string& piece) {
    s.text += piece;
    show(piece);
  };
  int64_t slides = session_->decoder.slides();
  s.generated = generate(session_->decoder, prompts_[at].tokens, g, [&](int32_t id) {
    ++s.tokens;
    if (ids) {
      show(fmt::format("{}{}", s.tokens > 1 ? "," : "", id));
      return true;
    }
    add(stream.add(tokenizer->decode_token(uint32_t(id))));
    return !stream.stopped();
  });
  add(stream.finish());
  s.slides = session_->decoder.slides() - slides;
  return s;
}

Json ModelSampler::to_json(const std::vector<SampledText>& samples) const {
  bool ids = options_.tokens.has_value();
  Json list = Json::array();
  for (auto& s : samples)
    list.push_back({{"decode_seconds", s.generated.decode_seconds},
                    {"finish", name(s.generated.end)},
                    {"prompt_seconds", s.generated.prompt_seconds},
                    {"text", ids ? Json() : Json(s.text)},
                    {"tokens", s.generated.tokens},
                    {"tokens_per_second", s.tokens_per_second()}});
  return {{"add_bos", options_.add_bos},
          {"device", options_.device.kind},
          {"model", model_.config.name},
          {"precision", recipe().precision},
          {"prompt", ids ? Json() : Json(options_.prompt)},
          {"prompt_tokens", prompts_[0].tokens.size()},
          {"run", options_.run},
          {"samples", list},
          {"seed", options_.sampler.seed},
          {"step", model_.step >= 0 ? Json(model_.step) : Json()},
          {"temperature", options_.sampler.temperature},
          {"top_k", options_.sampler.top_k},
          {"top_p", options_.sampler.top_p},
          {"weights", options_.weights}};
}

Json ModelSampler::to_json(size_t request, int64_t number, const SampledText& s) const {
  return {{"prompt", requests_[request].prompt},
          {"sample", number},
          {"text", s.text},
          {"finish", name(s.generated.end)},
          {"prompt_tokens", prompts_[request].tokens.size()},
          {"tokens", s.generated.tokens}};
}

}  // namespace crest
