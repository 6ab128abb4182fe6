// crest train: from a text file (or prepared data) to a trained model.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>

#include "cli/command.h"
#include "cli/new_record.h"
#include "cli/options.h"
#include "cli/train_flags.h"
#include "cli/train_text.h"
#include "core/error.h"
#include "core/json.h"
#include "core/text.h"
#include "data/dataset.h"
#include "plan/compile.h"
#include "train/run.h"
#include "train/run_files.h"
#include "train/weights_io.h"

namespace crest {

namespace {

namespace fs = std::filesystem;

struct Options {
  RecipeOptions recipe;
  DeviceOptions device;
  TrainOptions train;
  RecordOptions store;
  std::vector<std::string> texts;
  std::string tokenizer, resume;
  bool wait_for_saves = false;
};

void tell(const std::string& line) { std::fputs((line + "\n").c_str(), stderr); }

// Text files given as arguments are prepared once and kept in the cache.
std::string prepared(const Options& o) {
  PreparedText p = prepare_text(o.texts, o.tokenizer);
  if (!o.train.quiet)
    tell(fmt::format("text     {} with tokenizer {} ({} tokens, a vocabulary of {})", p.reused ? "cached" : "prepared",
                     printable(p.tokenizer), format_count(double(p.tokens)), p.vocab_size));
  return p.folder;
}

// JSON's string is a TOML basic string.
std::string quoted(const std::string& s) {
  return nlohmann::json(s).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// RUN/config.toml: what the run depends on, resolved, and the other options that were given. --resume reads it, and
// --config repeats the run. A model that is no preset is read from RUN/model.toml, whatever becomes of its file.
std::string config_text(const CLI::App& app, const std::string& preset, const LibraryOptions& libraries,
                        const TrainOptions& t) {
  const Recipe& r = t.recipe;
  std::vector<std::pair<std::string, std::string>> keys = {
      {"data", quoted(fs::absolute(t.data).string())},
      {"model", quoted(preset.empty() ? fs::absolute(t.out + "/model.toml").string() : preset)},
      {"batch", fmt::format("{}", r.batch)},
      {"seq", fmt::format("{}", r.seq_length())},
      {"grad_accumulation", fmt::format("{}", r.grad_accumulation)},
      {"data_parallel", fmt::format("{}", r.data_parallel)},
      {"precision", quoted(r.precision)},
      {"policy", quoted(r.policy)},
      {"lr", fmt::format("{}", t.lr)},
      {"schedule", quoted(t.schedule)},
      {"warmup", fmt::format("{}", t.warmup)},
      {"seed", fmt::format("{}", t.seed)}};
  if (t.steps > 0)
    keys.push_back({"steps", fmt::format("{}", t.steps)});
  else
    keys.push_back({"max_seconds", fmt::format("{}", t.max_seconds)});
  if (auto* store = app.get_option("--store"); store->count())
    keys.push_back({"store", quoted(fs::absolute(store->as<std::string>()).string())});
  if (!t.init.empty()) keys.push_back({"init", quoted(fs::absolute(t.init).string())});
  for (const auto& [flag, value] : libraries.flags()) keys.push_back({flag.substr(2), quoted(value)});
  static const std::vector<std::string> not_kept = {"help", "config", "resume",     "overwrite",  "out",
                                                    "json", "quiet",  "stop-after", "max-seconds"};
  for (const CLI::Option* o : app.get_options()) {
    if (o->get_lnames().empty() || o->count() == 0) continue;
    std::string key = o->get_lnames()[0];
    if (std::find(not_kept.begin(), not_kept.end(), key) != not_kept.end()) continue;
    std::replace(key.begin(), key.end(), '-', '_');
    if (std::any_of(keys.begin(), keys.end(), [&](auto& k) { return k.first == key; })) continue;
    std::vector<std::string> values;
    for (auto& v : o->results()) values.push_back(quoted(v));
    keys.push_back({key, values.size() == 1 ? values[0] : "[" + join(values, ", ") + "]"});
  }
  std::string text = fmt::format("# {}, {} threads\n", printable(t.device.name), t.device.threads);
  for (auto& [key, value] : keys) text += fmt::format("{} = {}\n", key, value);
  return text;
}

void check_numbers(const CLI::App& app, const TrainOptions& t) {
  constexpr double most = 1e12;
  check_training_flags(app, t);
  check_range(app, "--max-seconds", t.max_seconds, 0, 1e9);
  check_range(app, "--stop-after", double(t.stop_after), 0, most);
  check_range(app, "--save-every", double(t.save_every), 0, most);
  check_range(app, "--keep", double(t.keep), 0, 1e6);
  check_range(app, "--sample-every", double(t.sample_every), 0, most);
  check_range(app, "--sample-tokens", double(t.sample_tokens), 1, 1e6);
}

int run(const CLI::App& app, Options& o) {
  TrainOptions& t = o.train;
  check_numbers(app, t);
  t.device = o.device.find();
  t.memory_limit = o.device.limit(t.device);
  if (o.wait_for_saves) t.save_mode = SaveMode::waiting;
  if (!o.texts.empty() && !t.data.empty() && o.resume.empty())
    fail_usage("text files and --data were both given", "crest train", "Give one of them.");
  if (!o.resume.empty()) {
    if (!o.texts.empty())
      fail_usage("text files cannot be given with --resume", "crest train", "The run's own data is used.");
    if (!t.out.empty() || t.overwrite)
      fail_usage("--resume continues a run in its own folder", t.overwrite ? "--overwrite" : "--out", "Leave it out.");
  }
  if (o.texts.empty() && t.data.empty())
    fail_usage("no data", "crest train",
               "Give a text file (crest train input.txt) or --data DIR made by crest data prepare.");
  if (!o.texts.empty()) t.data = fs::absolute(prepared(o)).string();

  RecipeOptions& r = o.recipe;
  t.resume = !o.resume.empty();
  if (t.resume) {
    t.out = o.resume;
    // The run may have been moved.
    if (fs::path(r.model).filename() == "model.toml" && !fs::exists(r.model)) r.model = t.out + "/model.toml";
  } else if (!t.init.empty()) {
    t.init = open_model(t.init).weights_path;
    if (r.model.empty()) r.model = fs::is_directory(t.init) ? t.init : fs::path(t.init).parent_path().string();
  }
  bool data_decides = r.vocab == 0 && t.init.empty();
  Recipe recipe = r.finish(default_model(t.device));
  if (data_decides)
    if (uint32_t vocab = Dataset::open(t.data).vocab_size()) recipe.model.vocab = vocab;
  t.recipe = resolve(recipe, t.device);
  if (t.out.empty())
    t.out =
        fresh_run_folder(o.texts.empty() ? fs::path(t.data).filename().string() : fs::path(o.texts[0]).stem().string());
  auto& presets = preset_names();
  std::string name = r.model.empty() ? default_model(t.device) : r.model;
  std::string preset = std::find(presets.begin(), presets.end(), name) == presets.end() ? "" : name;
  t.config_toml = [&app, &o, preset](const TrainOptions& resolved) {
    return config_text(app, preset, o.device.libraries, resolved);
  };
  if (!o.store.off) {
    t.record.emplace();
    t.record->store = o.store.file;
    t.record->before = read_conditions(t.device);
    t.record->head = new_record("train", o.store.name, t.recipe, t.device, "", t.record->before);
  }
  return int(run_training(t).interrupted ? Exit::interrupted : Exit::ok);
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
         "for TEXT: bytes, bpe:VOCAB or FILE: tokenizer.json, vocab.json, .tiktoken (default: bpe:2048, short texts "
         "bytes)");
  option("--out", t.out, "run folder (default: runs/NAME)");
  option("--resume", o->resume, "continue this run from its newest valid checkpoint");
  app.add_flag("--overwrite", t.overwrite, "replace the run at --out")->group("Training");
  option("--init", t.init, "start from these weights: Hugging Face folder, run or checkpoint");
  add_training_flags(app, t);
  option("--max-seconds", t.max_seconds,
         "time limit; without --steps the schedule is fitted to it (and the warm-up at least 12 steps)");
  option("--stop-after", t.stop_after, "stop (saved) after this many steps of this call");
  option("--save-every", t.save_every, "steps between checkpoints (default a quarter of the steps; 0: only the last)");
  app.add_flag("--wait-for-saves", o->wait_for_saves,
               "training waits while a checkpoint is written (on a CPU it always does)")
      ->group("Training");
  option("--keep", t.keep, "checkpoints to keep (0: all)")->capture_default_str();
  option("--sample-every", t.sample_every, "steps between samples (0: none)")->capture_default_str();
  option("--sample-tokens", t.sample_tokens, "tokens of a sample")->capture_default_str();
  app.add_flag("--quiet", t.quiet, "no progress lines");
  add_json_option(app, t.json);
  add_record_options(app, o->store);
  add_recipe_options(app, o->recipe);
  add_device_options(app, o->device);
  add_config_option(app);
  return [o, &app] { return run(app, *o); };
}

}  // namespace crest
