// crest eval: loss and perplexity of a model on prepared data.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <cstring>

#include "checkpoint/safetensors.h"
#include "checkpoint/weights_io.h"
#include "cli/command.h"
#include "cli/options.h"
#include "core/error.h"
#include "core/io.h"
#include "core/json.h"
#include "core/text.h"
#include "core/to_stderr.h"
#include "core/toml.h"
#include "data/dataset.h"
#include "plan/compile.h"
#include "run/evaluate.h"
#include "run/generate.h"

namespace crest {

namespace {

struct Options {
  std::string run, data, split = "val", precision = "auto", policy = "pure", packing, logits;
  DeviceOptions device;
  int64_t batches = 0, batch = 8, seq = 0;
  bool json = false;
};

// Checked before the evaluation, which may take hours.
void check_writable(const std::string& file) {
  bool there = path_exists(file), folder = is_directory(file);
  if (folder || ::access((there ? file : parent_path(file)).c_str(), W_OK) != 0)
    fail(folder ? "is a folder" : std::strerror(errno), printable(file), "--logits needs the name of a file to write.");
}

void check(const Options& o) {
  if (o.run.empty())
    fail_usage("no model given", "--run", "Give a run, a checkpoint, or a folder with config.json and safetensors.");
  if (o.split != "val" && o.split != "train")
    fail_usage("'" + printable(o.split) + "' is not a split", "--split", "Splits: val, train.");
  if (!o.logits.empty()) check_writable(o.logits);
  if (o.batches < 0) fail_usage(fmt::format("batches {}", o.batches), "--batches", "It must be at least 0 (0: all).");
}

// Data from another tokenizer would give a meaningless loss.
Dataset open_data(const Options& o, const LoadedModel& model) {
  Dataset data = Dataset::open(o.data);
  int64_t vocab = model.config.vocab;
  // Shards that do not state their vocabulary: every token is checked against the model's.
  if (data.vocab_size() == 0) return Dataset::open(o.data, uint32_t(vocab));
  if (int64_t(data.vocab_size()) > vocab)
    fail(fmt::format("the data has a vocabulary of {} tokens, but the model has {}", data.vocab_size(), vocab),
         printable(o.data),
         "Prepare the data with the tokenizer.json of the model's checkpoint: crest data prepare TEXT --tokenizer "
         "FILE.");
  if (data.tokenizer() && model.tokenizer && data.tokenizer()->to_json() != model.tokenizer->to_json())
    fail("the data was not prepared with the model's tokenizer", printable(o.data),
         "Prepare the data with the tokenizer.json of the model's checkpoint: crest data prepare TEXT --tokenizer "
         "FILE.");
  return data;
}

// The logits of every position of the split's first window, for comparison with other programs.
void write_logits(const Options& o, Executor& executor, const TokenStream& split) {
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
  write_safetensors(o.logits, {{{"tokens", DType::i32, {int64_t(n)}}, tokens.data()},
                               {{"logits", DType::f32, {int64_t(n), decoder.vocab()}}, logits.data()}});
  to_stderr("logits of {} tokens written to {}\n", n, printable(o.logits));
}

// What was not given is taken from the checkpoint's config.toml: the same as in training.
void take_from_training(Options& o, const LoadedModel& model) {
  const std::string* text = model.checkpoint ? model.checkpoint->file("config.toml") : nullptr;
  std::string where = join_path(model.weights_path, "config.toml");
  toml::table config = text ? parse_toml(*text, where) : toml::table();
  bool from_run = o.data.empty();
  if (from_run) o.data = config["data"].value_or(std::string());
  if (o.seq == 0) o.seq = config["seq"].value_or(int64_t(0));
  if (o.packing.empty()) o.packing = config["packing"].value_or(std::string("stream"));
  if (config["policy"].value_or(std::string()) == "autocast") o.policy = "autocast";
  if (o.data.empty()) fail_usage("no data given", "--data", "Give a folder that crest data prepare wrote.");
  if (from_run && !is_directory(o.data))
    fail_usage("the run's training data no longer exists: " + printable(o.data), "--data",
               "Give a folder that crest data prepare wrote.");
}

int run(Options o) {
  check(o);
  LoadedModel model = open_model(o.run, [](const std::string& m) { to_stderr("crest: warning: {}\n", m); });
  take_from_training(o, model);
  Dataset data = open_data(o, model);
  const TokenStream& split = o.split == "val" ? data.val() : data.train();
  if (split.empty())
    fail(fmt::format("the data has no tokens in split '{}'", o.split), printable(o.data),
         fmt::format("Use --split {}.", o.split == "val" ? "train" : "val"));
  Device device = o.device.find();
  Recipe recipe;
  recipe.model = model.config;
  recipe.batch = o.batch, recipe.seq = o.seq;
  recipe.precision = o.precision, recipe.policy = o.policy;
  recipe.levers["packing"] = o.packing;
  recipe = resolve(recipe, device);
  SessionUse use;
  use.validation = true;
  use.sampling = !o.logits.empty();
  use.cache_length = recipe.seq_length();
  CompiledSession session = compile(recipe, device, session_programs(recipe, use));
  check_fits(session, o.device.limit(device));
  Executor executor(session);
  load_weights(executor, model);
  if (!o.logits.empty()) write_logits(o, executor, split);
  using Clock = std::chrono::steady_clock;
  auto start = Clock::now(), shown = start;
  Evaluation e = evaluate(executor, split, data.tokenizer().get(), o.batches, [&](const Evaluation& now, uint64_t all) {
    if (Clock::now() - shown < std::chrono::seconds(5)) return;
    shown = Clock::now();
    to_stderr("{} of {} tokens, loss {:.4f}\n", now.read, all, now.loss);
  });
  double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  if (o.json) {
    nlohmann::json j = {{"run", o.run},          {"model", model.config.name},
                        {"data", o.data},        {"split", o.split},
                        {"loss", e.loss},        {"perplexity", e.perplexity()},
                        {"tokens", e.tokens},    {"split_tokens", split.total_tokens()},
                        {"batch", recipe.batch}, {"seq", recipe.seq_length()},
                        {"device", device.kind}, {"precision", recipe.precision},
                        {"seconds", seconds},    {"tokens_per_second", double(e.read) / seconds}};
    j["step"] = model.step >= 0 ? nlohmann::json(model.step) : nlohmann::json();
    j["bits_per_byte"] = e.bytes ? nlohmann::json(e.bits_per_byte()) : nlohmann::json();
    fmt::print("{}\n", j.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    return 0;
  }
  fmt::print("model        {}{}\n", printable(model.config.name),
             model.step >= 0 ? fmt::format(" at step {}", model.step) : "");
  fmt::print("data         {}\n", printable(o.data));
  fmt::print("loss         {:.4f} nats per token\nperplexity   {:.3f}\n", e.loss, e.perplexity());
  if (e.bytes) fmt::print("bits/byte    {:.4f}\n", e.bits_per_byte());
  fmt::print("tokens       {} of the {} of split {}{}, in windows of {}\nspeed        {} tokens/s ({}, {})\n", e.tokens,
             split.total_tokens(), o.split, split.masked() ? ", loss mask applied" : "", recipe.seq_length(),
             format_count(double(e.read) / seconds), device.kind, recipe.precision);
  return 0;
}

}  // namespace

std::function<int()> setup_eval(CLI::App& app) {
  auto o = std::make_shared<Options>();
  app.add_option("--run", o->run, "run, checkpoint, or folder with config.json and safetensors")->type_name("RUN");
  app.add_option("--data", o->data, "folder of prepared data (default: the run's)")->type_name("DIR");
  auto option = [&](const char* flag, auto& value, const char* help) {
    return app.add_option(flag, value, help)->capture_default_str();
  };
  option("--split", o->split, "val or train");
  option("--batches", o->batches, "batches to evaluate (0: the whole split)");
  option("--batch", o->batch, "sequences per batch");
  app.add_option("--seq", o->seq, "tokens per sequence (default: as in training, else the model's context)");
  app.add_option("--packing", o->packing,
                 "how rows are filled: stream (windows of the text) or documents (whole documents packed) (default: as "
                 "in training)");
  option("--precision", o->precision, "auto (bf16 if the device supports it), fp32, tf32, bf16, fp16");
  app.add_option("--logits", o->logits,
                 "write tokens and logits of the split's first window to this file (safetensors)")
      ->type_name("FILE");
  add_device_options(app, o->device);
  add_config_option(app);
  add_json_option(app, o->json);
  return [o] { return run(*o); };
}

}  // namespace crest
