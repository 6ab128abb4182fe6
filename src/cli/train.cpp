// crest train: from a text file (or prepared data) to a trained model.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "cli/command.h"
#include "cli/options.h"
#include "core/error.h"
#include "core/text.h"
#include "data/dataset.h"
#include "data/prepare.h"
#include "plan/compile.h"
#include "train/run.h"
#include "train/run_files.h"

namespace crest {

namespace {

namespace fs = std::filesystem;

struct Options {
  RecipeOptions recipe;
  DeviceOptions device;
  TrainOptions train;
  std::vector<std::string> texts;
  std::string tokenizer, resume;
};

std::string cache_folder() {
  if (const char* c = std::getenv("CREST_CACHE")) return c;
  if (const char* c = std::getenv("XDG_CACHE_HOME")) return std::string(c) + "/crest/data";
  if (const char* h = std::getenv("HOME")) return std::string(h) + "/.cache/crest/data";
  return ".crest-cache/data";
}

// Text files given as arguments are prepared once and kept in the cache.
std::string prepared(const Options& o) {
  PrepareOptions p;
  p.inputs = o.texts;
  uint64_t bytes = 0;
  std::error_code error;
  for (auto& t : o.texts)
    if (uint64_t size = fs::file_size(t, error); !error) bytes += size;
  p.tokenizer = !o.tokenizer.empty() ? o.tokenizer : bytes < (256 << 10) ? "bytes" : "bpe:2048";
  p.message = [](const std::string& m) { fmt::print(stderr, "{}\n", m); };
  PrepareResult r = prepare_cached(p, cache_folder());
  if (!o.train.quiet)
    fmt::print(stderr, "text     {} with tokenizer {} ({} tokens a vocabulary of {})\n",
               r.reused ? "cached" : "prepared", p.tokenizer,
               format_count(double(r.info.train_tokens + r.info.val_tokens)), r.info.vocab_size);
  return r.folder.string();
}

// The options of this run as TOML, so that --resume (or --config) repeats it.
std::string config_text(const CLI::App& app, const std::string& data) {
  static const std::vector<std::string> not_kept = {"help", "config", "resume",     "overwrite", "out",
                                                    "json", "quiet",  "stop-after", "data"};
  std::string text = fmt::format("# crest train --config config.toml repeats this run\ndata = \"{}\"\n", data);
  for (const CLI::Option* o : app.get_options()) {
    if (o->get_lnames().empty() || o->count() == 0) continue;
    std::string key = o->get_lnames()[0];
    if (std::find(not_kept.begin(), not_kept.end(), key) != not_kept.end()) continue;
    std::replace(key.begin(), key.end(), '-', '_');
    std::vector<std::string> quoted;
    for (auto& v : o->results()) {
      std::string escaped;
      for (char c : v) escaped += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
      quoted.push_back("\"" + escaped + "\"");
    }
    text += fmt::format("{} = {}\n", key, quoted.size() == 1 ? quoted[0] : "[" + join(quoted, ", ") + "]");
  }
  return text;
}

int run(const CLI::App& app, Options& o) {
  TrainOptions& t = o.train;
  t.device = o.device.find();
  t.memory_limit = o.device.limit(t.device);
  if (!o.texts.empty() && !t.data.empty())
    fail_usage("text files and --data were both given", "crest train", "Give one of them.");
  if (!o.resume.empty() && !o.texts.empty())
    fail_usage("text files cannot be given with --resume", "crest train", "The run's own data is used.");
  if (o.texts.empty() && t.data.empty())
    fail_usage("no data", "crest train",
               "Give a text file (crest train input.txt) or --data DIR made by crest data prepare.");
  if (!o.texts.empty()) t.data = fs::absolute(prepared(o)).string();

  RecipeOptions& r = o.recipe;
  if (r.model.empty() && !t.init.empty()) r.model = t.init;
  Recipe recipe = r.finish("nano");
  if (r.vocab == 0 && t.init.empty())
    if (uint32_t vocab = Dataset::open(t.data).vocab_size()) recipe.model.vocab = vocab;
  t.recipe = resolve(recipe, t.device);
  if (!o.resume.empty()) {
    t.resume = true;
    t.out = o.resume;
  } else if (t.out.empty()) {
    t.out =
        fresh_run_folder(o.texts.empty() ? fs::path(t.data).filename().string() : fs::path(o.texts[0]).stem().string());
  }
  t.config_toml = config_text(app, t.data);
  return run_training(t);
}

}  // namespace

std::function<int()> setup_train(CLI::App& app) {
  auto o = std::make_shared<Options>();
  TrainOptions& t = o->train;
  app.add_option("TEXT", o->texts, "text files or folders to train on (prepared and cached)");
  auto option = [&](const char* flag, auto& value, const char* help) {
    return app.add_option(flag, value, help)->group("Training");
  };
  option("--data", t.data, "prepared data (crest data prepare), llm.c or nanoGPT shards");
  option("--tokenizer", o->tokenizer,
         "for TEXT: bytes, bpe:VOCAB or a tokenizer.json (default: bpe:2048, short texts bytes)");
  option("--out", t.out, "run folder (default: runs/NAME)");
  option("--resume", o->resume, "continue this run from its newest valid checkpoint");
  app.add_flag("--overwrite", t.overwrite, "replace the run at --out")->group("Training");
  option("--init", t.init, "start from these weights: Hugging Face folder, run or checkpoint");
  option("--steps", t.steps, "optimizer steps (default 1000)");
  option("--max-seconds", t.max_seconds, "time limit; without --steps the schedule is fitted to it");
  option("--stop-after", t.stop_after, "stop (saved) after this many steps of this call");
  option("--lr", t.lr, "peak learning rate (default 6e-4 sqrt(768 / width))");
  option("--min-lr", t.min_lr, "final learning rate (default a tenth)");
  option("--warmup", t.warmup, "warm-up steps (default a fiftieth of the steps)");
  option("--schedule", t.schedule, "cosine, wsd, linear or constant")->capture_default_str();
  option("--val-every", t.val_every, "steps between validations (default a tenth of the steps; 0: never)");
  option("--val-batches", t.val_batches, "batches of a validation")->capture_default_str();
  option("--save-every", t.save_every, "steps between checkpoints (default a quarter of the steps; 0: only the last)");
  option("--keep", t.keep, "checkpoints to keep (0: all)")->capture_default_str();
  option("--sample-every", t.sample_every, "steps between samples (0: none)")->capture_default_str();
  option("--sample-tokens", t.sample_tokens, "tokens of a sample")->capture_default_str();
  option("--seed", t.seed, "of weights, data order and dropout")->capture_default_str();
  app.add_flag("--quiet", t.quiet, "no progress lines");
  add_json_option(app, t.json);
  add_recipe_options(app, o->recipe);
  add_device_options(app, o->device);
  add_config_option(app);
  return [o, &app] { return run(app, *o); };
}

}  // namespace crest
