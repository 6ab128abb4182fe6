// crest eval: loss and perplexity of a model on prepared data.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/options.h"
#include "core/text.h"
#include "core/to_stderr.h"
#include "inference/evaluate_model.h"
#include "inference/precision.h"
#include "terminal/print_json.h"

namespace crest {

namespace {

struct EvalFlags {
  EvaluateOptions evaluate;
  std::string base;
  DeviceOptions device;
  bool json = false;
};

void print_eval(const ModelEvaluation& m) {
  const Evaluation& e = m.evaluation;
  fmt::print("model        {}{}\n", printable(m.recipe.model.name),
             m.step >= 0 ? fmt::format(" at step {}", m.step) : "");
  fmt::print("data         {}\n", printable(m.data));
  fmt::print("loss         {:.4f} nats per token\nperplexity   {:.3f}\n", e.loss, e.perplexity());
  if (e.bytes) fmt::print("bits/byte    {:.4f}\n", e.bits_per_byte());
  fmt::print("tokens       {} of the {} of split {}{}, in windows of {}\nspeed        {} tokens/s ({}, {})\n", e.tokens,
             m.split_tokens, m.split, m.masked ? ", loss mask applied" : "", m.recipe.seq_length(),
             format_count(m.tokens_per_second()), m.device.kind, inference_text(m.recipe));
}

int run_eval(EvalFlags& o) {
  validate(o.evaluate);
  LoadedModel model = open_model(
      o.evaluate.run, [](const std::string& m) { to_stderr("crest: warning: {}\n", m); }, o.base);
  o.evaluate.device = o.device.find();
  o.evaluate.memory_limit = o.device.limit(o.evaluate.device);
  ModelEvaluation m = evaluate_model(o.evaluate, model, [](const std::string& line) { to_stderr("{}\n", line); });
  if (o.json)
    print_json(to_json(m));
  else
    print_eval(m);
  return 0;
}

}  // namespace

std::function<int()> setup_eval(CLI::App& app) {
  auto o = std::make_shared<EvalFlags>();
  EvaluateOptions& e = o->evaluate;
  app.add_option("--run", e.run, "run, checkpoint, or folder with config.json and safetensors")->type_name("RUN");
  add_base_option(app, o->base);
  app.add_option("--data", e.data, "folder of prepared data (default: the run's)")->type_name("DIR");
  auto option = [&](const char* flag, auto& value, const char* help) {
    return app.add_option(flag, value, help)->capture_default_str();
  };
  option("--split", e.split, "val or train");
  option("--batches", e.batches, "batches to evaluate (0: the whole split)");
  option("--batch", e.batch, "sequences per batch");
  app.add_option("--seq", e.seq, "tokens per sequence (default: as in training, else the model's context)");
  app.add_option("--packing", e.packing,
                 "how rows are filled: stream (windows of the text) or documents (whole documents packed) (default: as "
                 "in training)");
  option("--precision", e.precision,
         "auto (bf16 if the device supports it), fp32, tf32, bf16, fp16; fp8 is computed as bf16");
  option("--weights", e.weights, weights_help);
  app.add_option("--logits", e.logits, "write tokens and logits of the split's first window to this file (safetensors)")
      ->type_name("FILE");
  add_device_options(app, o->device);
  add_config_option(app);
  add_json_option(app, o->json);
  return [o] { return run_eval(*o); };
}

}  // namespace crest
