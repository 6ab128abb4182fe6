#include "inference/evaluate_model.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "checkpoint/safetensors.h"
#include "core/error.h"
#include "core/io.h"
#include "core/json.h"
#include "core/output_file.h"
#include "core/shell_word.h"
#include "core/text.h"
#include "core/timer.h"
#include "core/toml.h"
#include "data/dataset.h"
#include "data/mixture.h"
#include "inference/precision.h"
#include "plan/compile.h"
#include "plan/defaults.h"
#include "plan/what_fits.h"
#include "run/generate.h"

namespace crest {

namespace {

using Message = std::function<void(const std::string&)>;

// Checked before the evaluation, which may take hours.
void check_writable(const std::string& file) {
  bool there = path_exists(file), folder = is_directory(file);
  if (folder || ::access((there ? file : parent_path(file)).c_str(), W_OK) != 0)
    fail(folder ? "is a folder" : std::strerror(errno), printable(file), "--logits needs the name of a file to write.");
  require_no_run_file(file);
}

// The model's own files: files of another program have no marks of a run.
void require_not_of_model(const std::string& file, const LoadedModel& model) {
  const std::string folder = is_directory(model.weights_path) ? model.weights_path : parent_path(model.weights_path);
  const std::string name = file.substr(file.rfind('/') + 1);
  const bool own = name.ends_with(".json") || (name.starts_with("model") && name.ends_with(".safetensors")) ||
                   file == model.weights_path;
  std::error_code ignored;
  if (own && path_exists(file) && std::filesystem::equivalent(parent_path(file), folder, ignored))
    fail("this would overwrite a file of the model", printable(file), "Give --logits another name.");
}

// Data from another tokenizer would give a meaningless loss.
Dataset open_data(const std::string& folder, const LoadedModel& model) {
  Dataset data = Dataset::open(folder);
  int64_t vocab = model.config.vocab;
  // Shards without a vocabulary: every token is checked against the model's.
  if (data.vocab_size() == 0) return Dataset::open(folder, uint32_t(vocab));
  if (int64_t(data.vocab_size()) > vocab) {
    if (model.tokenizer) require_embeddings(model.tokenizer->vocab_size(), model.config, model.tokenizer_path);
    fail(fmt::format("the data has a vocabulary of {} tokens, but the model has {}", data.vocab_size(), vocab),
         printable(folder),
         "Prepare the data with the tokenizer.json of the model's checkpoint: crest data prepare TEXT --tokenizer "
         "FILE.");
  }
  require_same_tokenizer(data, model);
  return data;
}

// The logits of every position of the split's first window, for comparison with other programs.
void write_logits(const std::string& file, Executor& executor, const TokenStream& split, const Message& message) {
  Decoder decoder(executor);
  auto n = size_t(std::min<uint64_t>(uint64_t(decoder.cache_length()), split.total_tokens()));
  std::vector<int32_t> tokens(n);
  split.read(0, n, tokens.data());
  std::vector<float> logits;
  logits.reserve(n * size_t(decoder.vocab()));
  for (int32_t token : tokens) {
    auto row = decoder.feed({&token, 1});
    logits.insert(logits.end(), row.begin(), row.end());
  }
  write_safetensors(file, {{{"tokens", DType::i32, {int64_t(n)}}, tokens.data()},
                           {{"logits", DType::f32, {int64_t(n), decoder.vocab()}}, logits.data()}});
  message(fmt::format("logits of {} written to {}", format_number_of(int64_t(n), "token"), printable(file)));
}

// The data folder in a run's config.toml.
std::string data_of_run(const toml::table& config) {
  const std::string one = config["data"].value_or(std::string());
  if (const toml::array* list = config["data"].as_array(); list && list->size() > 1) {
    std::vector<std::string> flags;
    for (auto& source : *list)
      flags.push_back("--data " + shell_path(parse_data_sources({source.value_or(std::string())})[0].folder));
    fail_usage(fmt::format("the run was trained on a mixture of {} sources", list->size()), "--data",
               fmt::format("Give one of them: {}.", join(flags, ", or ")));
  }
  return one.empty() || one == "-" ? one : parse_data_sources({one})[0].folder;
}

// Missing options come from the checkpoint's
// config.toml, as in training. Returns the policy.
std::string take_from_training(EvaluateOptions& o, const LoadedModel& model) {
  const std::string* text = model.checkpoint ? model.checkpoint->file("config.toml") : nullptr;
  std::string where = join_path(model.weights_path, "config.toml");
  toml::table config = text ? parse_toml(*text, where) : toml::table();
  bool from_run = o.data.empty();
  if (from_run) o.data = data_of_run(config);
  if (o.seq == 0) o.seq = config["seq"].value_or(int64_t(0));
  if (o.packing.empty()) o.packing = config["packing"].value_or(std::string("stream"));
  if (o.data.empty()) fail_usage("no data given", "--data", "Give a folder that crest data prepare wrote.");
  if (from_run && o.data == "-")
    fail_usage("the run was trained on rows from standard input, which are not kept", "--data",
               "Give a folder that crest data prepare wrote.");
  if (from_run && !is_directory(o.data))
    fail_usage("the run's training data no longer exists: " + printable(o.data), "--data",
               "Give a folder that crest data prepare wrote.");
  return config["policy"].value_or(std::string()) == "autocast" ? "autocast" : "pure";
}

std::string why_bytes_are_unknown(const TokenStream& split, bool limited) {
  const std::string what = "note: no bits per byte: the data's tokenizer changes texts, ";
  if (!split.text().bytes)
    return what + "and the data does not state the bytes of its text. Prepare it again: crest data prepare TEXT.";
  return what + (limited ? "and only the bytes of the whole split are known. Leave out --batches."
                         : "and none of the text's bytes are predicted.");
}

}  // namespace

void validate(const EvaluateOptions& o) {
  if (o.run.empty())
    fail_usage("no model given", "--run", "Give a run, a checkpoint, or a folder with config.json and safetensors.");
  if (o.split != "val" && o.split != "train")
    fail_usage("'" + printable(o.split) + "' is not a split", "--split", "Splits: val, train.");
  if (!o.logits.empty()) check_writable(o.logits);
  if (o.batches < 0) fail_usage(fmt::format("batches {}", o.batches), "--batches", "It must be at least 0 (0: all).");
}

ModelEvaluation evaluate_model(EvaluateOptions o, const LoadedModel& model, const Message& message) {
  if (!o.logits.empty()) require_not_of_model(o.logits, model);
  Recipe recipe;
  recipe.policy = take_from_training(o, model);
  Dataset data = open_data(o.data, model);
  const TokenStream& split = o.split == "val" ? data.val() : data.train();
  if (split.empty())
    fail(fmt::format("the data has no tokens in split '{}'", o.split), printable(o.data),
         fmt::format("Use --split {}.", o.split == "val" ? "train" : "val"));
  recipe.model = model.config;
  recipe.batch = o.batch, recipe.seq = o.seq;
  recipe.precision = inference_precision(o.precision);
  recipe.pass_settings["packing"] = o.packing, recipe.pass_settings["weights"] = o.weights;
  recipe = resolve(with_default_precision(recipe, o.device), o.device);
  SessionUse use;
  use.validation = true;
  use.sampling = !o.logits.empty();
  use.cache_length = recipe.seq_length();
  CompiledSession session = compile(recipe, o.device, session_programs(recipe, use));
  check_fits(session, o.memory_limit);
  Executor executor(session);
  load_weights(executor, model);
  if (!o.logits.empty()) write_logits(o.logits, executor, split, message);
  Timer timer, since_message;
  Evaluation e = evaluate(executor, split, data.tokenizer().get(), o.batches, [&](const Evaluation& now, uint64_t all) {
    if (since_message.seconds() < 5) return;
    since_message = {};
    message(fmt::format("{} of {} tokens, loss {:.4f}", now.read, all, now.loss));
  });
  if (data.tokenizer() && e.bytes == 0) message(why_bytes_are_unknown(split, o.batches > 0));
  return {.run = o.run,
          .data = o.data,
          .split = o.split,
          .recipe = recipe,
          .step = model.step,
          .device = o.device,
          .evaluation = e,
          .split_tokens = split.total_tokens(),
          .masked = split.masked(),
          .seconds = timer.seconds()};
}

nlohmann::ordered_json to_json(const ModelEvaluation& m) {
  using Json = nlohmann::ordered_json;
  const Evaluation& e = m.evaluation;
  return {{"batch", m.recipe.batch},
          {"bits_per_byte", e.bytes ? Json(e.bits_per_byte()) : Json()},
          {"data", m.data},
          {"device", m.device.kind},
          {"loss", e.loss},
          {"model", m.recipe.model.name},
          {"perplexity", e.perplexity()},
          {"precision", m.recipe.precision},
          {"run", m.run},
          {"seconds", m.seconds},
          {"seq", m.recipe.seq_length()},
          {"split", m.split},
          {"split_tokens", m.split_tokens},
          {"step", m.step >= 0 ? Json(m.step) : Json()},
          {"tokens", e.tokens},
          {"tokens_per_second", m.tokens_per_second()},
          {"weights", m.recipe.pass_settings.at("weights")}};
}

}  // namespace crest
