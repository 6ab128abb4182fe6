// crest eval: loss and perplexity of a model on prepared data or a text, accuracy in tasks.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/model_options.h"
#include "cli/options.h"
#include "core/error.h"
#include "core/text.h"
#include "core/to_stderr.h"
#include "inference/evaluate_model.h"
#include "inference/evaluate_tasks.h"
#include "inference/precision.h"
#include "terminal/print_json.h"
#include "terminal/table.h"

namespace crest {

namespace {

struct EvalFlags {
  EvaluateOptions evaluate;
  std::string base, text;
  std::vector<std::string> tasks;
  int64_t limit = 0;
  DeviceOptions device;
  bool json = false;
};

std::string model_line(const std::string& model, int64_t step) {
  return fmt::format("model        {}{}\n", printable(model), step >= 0 ? fmt::format(" at step {}", step) : "");
}

void print_eval(const ModelEvaluation& m) {
  const Evaluation& e = m.evaluation;
  fmt::print("{}data         {}\n", model_line(m.recipe.model.name, m.step), printable(m.data));
  fmt::print("loss         {:.4f} nats per token\nperplexity   {:.3f}\n", e.loss, e.perplexity());
  if (e.bytes) fmt::print("bits/byte    {:.4f}\n", e.bits_per_byte());
  fmt::print("tokens       {} of the {} of split {}{}, in windows of {}\nspeed        {} tokens/s ({}, {})\n", e.tokens,
             m.split_tokens, m.split, m.masked ? ", loss mask applied" : "", m.recipe.seq_length(),
             format_count(m.tokens_per_second()), m.device.kind, inference_text(m.recipe));
}

std::string percent(const Accuracy& a) {
  return std::isnan(a.error) ? fmt::format("{:.4f}", a.value) : fmt::format("{:.4f} ± {:.4f}", a.value, a.error);
}

void print_tasks(const TaskEvaluation& e) {
  fmt::print("{}", model_line(e.model, e.step));
  Table table({{"task", Align::left}, {"n"}, {"acc"}, {"acc_norm"}, {"acc_bytes"}});
  for (const TaskScores& s : e.tasks) {
    std::vector<std::string> row = {s.task.name, fmt::format("{}", s.logprobs.size()), percent(s.plain)};
    for (const Accuracy& a : {s.by_characters, s.by_bytes}) row.push_back(s.task.normalized ? percent(a) : "-");
    table.row(row);
  }
  fmt::print("{}", table.text(use_color(1)));
  for (const TaskScores& s : e.tasks)
    if (s.cut)
      to_stderr("crest: warning: {}: {} cut at the left: the model's context is {}\n", printable(s.task.name),
                s.cut == 1 ? "1 text was" : fmt::format("{} texts were", s.cut), e.context);
  to_stderr("{} in {} ({} on {})\n", format_number_of(e.tokens, "token"), format_duration(e.seconds),
            inference_text(e.recipe), e.device.name);
}

void print_text(const TextEvaluation& e) {
  fmt::print("{}text         {}\n", model_line(e.model, e.step), printable(e.file));
  fmt::print("loss         {:.4f} nats per token\nperplexity   {:.3f}\nbits/byte    {:.4f}\n", e.loss(), e.perplexity(),
             e.bits_per_byte());
  fmt::print("tokens       {} of {} bytes, in windows of {}\nspeed        {} tokens/s ({}, {})\n", e.tokens, e.bytes,
             e.context, format_count(double(e.tokens) / e.seconds), e.device.kind, inference_text(e.recipe));
}

int run_scored(EvalFlags& o) {
  ScoreOptions s{static_cast<const DecodingOptions&>(o.evaluate), o.evaluate.run};
  if (s.run.empty())
    fail_usage("no model given", "--run", "Give a run, a checkpoint, or a folder with config.json and safetensors.");
  if (o.limit < 0) fail_usage(fmt::format("limit {}", o.limit), "--limit", "It must be at least 0 (0: all).");
  std::vector<std::string> files;
  for (const std::string& names : o.tasks)
    for (const std::string& name : split(names, ',')) files.push_back(name);
  if (std::count(files.begin(), files.end(), ""))
    fail_usage("the name of a file is empty", "--tasks", "Give FILE or FILE,FILE.");
  std::vector<Task> tasks;
  for (const std::string& file : files) tasks.push_back(read_task(file, o.limit));
  LoadedModel model = open_model_of_command(s.run, o.base);
  s.device = o.device.find();
  s.memory_limit = o.device.limit(s.device);
  auto message = [](const std::string& line) { to_stderr("{}\n", line); };
  if (!o.text.empty()) {
    const TextEvaluation e = evaluate_text(s, model, o.text, message);
    o.json ? print_json(to_json(e)) : print_text(e);
  } else {
    const TaskEvaluation e = evaluate_tasks(s, model, std::move(tasks), message);
    o.json ? print_json(to_json(e)) : print_tasks(e);
  }
  return 0;
}

int run_eval(EvalFlags& o) {
  validate(o.evaluate);
  LoadedModel model = open_model_of_command(o.evaluate.run, o.base);
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
  add_precision_options(app, e);
  app.add_option("--logits", e.logits, "write tokens and logits of the split's first window to this file (safetensors)")
      ->type_name("FILE");
  app.add_option("--text", o->text, "perplexity and bits per byte of this text file, instead of prepared data")
      ->type_name("FILE");
  app.add_option("--tasks", o->tasks,
                 "accuracy in multiple-choice tasks: files of JSON lines. Crest knows HellaSwag, ARC, PIQA and "
                 "WinoGrande by their fields")
      ->type_name("FILE,...")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
  app.add_option("--limit", o->limit, "with --tasks: use only the first N questions of each file (0: all)")
      ->capture_default_str();
  add_device_options(app, o->device);
  add_config_option(app);
  add_json_option(app, o->json);
  return [o, &app] {
    auto given = [&app](const char* flag) { return app.get_option(flag)->count() > 0; };
    const char* way = given("--tasks") ? "--tasks" : given("--text") ? "--text" : nullptr;
    if (given("--limit") && !given("--tasks")) fail_usage("--limit needs --tasks", "--limit", "Give --tasks FILE.");
    if (!way) return run_eval(*o);
    for (const char* flag : {"--text", "--data", "--split", "--batches", "--batch", "--seq", "--packing", "--logits"})
      if (std::string(flag) != way && given(flag))
        fail_usage(fmt::format("{} and {} exclude each other", way, flag), flag, fmt::format("Leave out {}.", flag));
    return run_scored(*o);
  };
}

}  // namespace crest
