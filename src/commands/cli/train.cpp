// crest train: from a text file or prepared data to a trained model.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <optional>

#include "checkpoint/checkpoint.h"
#include "checkpoint/weights_io.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/prepare_progress.h"
#include "cli/rank_flags.h"
#include "cli/store_options.h"
#include "comm/launch.h"
#include "comm/rank_options.h"
#include "core/error.h"
#include "core/shell_word.h"
#include "core/text.h"
#include "core/to_stderr.h"
#include "core/toml_string.h"
#include "core/unpack.h"
#include "data/chat.h"
#include "data/dataset.h"
#include "data/prepare_text.h"
#include "device/rank_device.h"
#include "passes/recompute.h"
#include "plan/compile.h"
#include "plan/recipe_settings.h"
#include "predict/recompute_budget.h"
#include "store/new_record.h"
#include "train/run.h"
#include "train/run_files.h"
#include "train/training_settings.h"

namespace crest {

namespace {

namespace fs = std::filesystem;

struct Options {
  RecipeOptions recipe;
  GivenSettings training, ranks;
  DeviceOptions device;
  TrainOptions train;
  RecordOptions store;
  std::vector<std::string> texts;
  std::string tokenizer, chat_template, resume;
  std::vector<std::string> derived;  // keys of settings with defaults of the run's (--derived)
  bool wait_for_saves = false;
};

void print_line(const std::string& line) { std::fputs((line + "\n").c_str(), stderr); }

// The tokenizer for text files: that of the initial model, since its weights mean nothing on other
// tokens.
std::string tokenizer_of(const LoadedModel& model, const std::string& given) {
  std::string init = printable(model.weights_path);
  auto refuse = [&](const std::string& difference) {
    fail_usage(fmt::format("'{}' is not the tokenizer of the model {}: {}", printable(given), init, difference),
               "--tokenizer",
               model.tokenizer ? "Leave it out: --init uses the model's tokenizer."
                               : "Give the tokenizer that the model was trained with.");
  };
  if (given.starts_with("bpe:")) refuse("it would be trained on the text");
  if (!model.tokenizer) {
    if (!given.empty()) return given;
    bool none = model.tokenizer_problem.empty();
    fail(none ? "the model has no tokenizer.json, so its tokens are unknown"
              : "the model's tokenizer cannot be used: " + model.tokenizer_problem,
         init, "Give the tokenizer that it was trained with, in a form that Crest reads: --tokenizer FILE.");
  }
  if (given.empty()) return model.tokenizer_path;
  if (given != "bytes" && !fs::exists(given)) return given;  // an error of prepare_text
  Tokenizer tokenizer = given == "bytes" ? Tokenizer::bytes() : Tokenizer::load(given);
  std::string difference = tokenizer.difference(*model.tokenizer, "this one", "the model");
  if (!difference.empty()) refuse(difference);
  return given;
}

// Text files given as arguments are prepared once and kept in the cache.
std::string prepared(const Options& o) {
  constexpr double silent_seconds = 1;
  PreparationProgress progress(silent_seconds);
  PreparationShown shown{o.train.quiet ? nullptr : progress.stages(), progress.messages()};
  PreparedText p = prepare_text(o.texts, o.tokenizer, o.chat_template, shown);
  if (!o.train.quiet)
    print_line(fmt::format("text     {} with tokenizer {} ({} tokens, vocabulary {})", p.reused ? "cached" : "prepared",
                           printable(p.tokenizer), format_count(double(p.tokens)), p.vocab_size));
  return p.folder;
}

// TOML is UTF-8 only: reject a run that could not be continued before it starts.
const std::string& check_utf8(const std::string& text, const std::string& flag) {
  if (!is_utf8(text))
    fail_usage(fmt::format("'{}' is not UTF-8, so the run's config.toml cannot store it", printable(text, 1000)), flag,
               "Rename the file or folder to a UTF-8 name.");
  return text;
}

std::string toml_value(const SettingValue& value, const std::string& flag) {
  if (auto* text = std::get_if<std::string>(&value)) return toml_string(check_utf8(*text, flag));
  auto* list = std::get_if<std::vector<std::string>>(&value);
  if (!list) return text_of(value);
  std::vector<std::string> parts;
  for (auto& element : *list) parts.push_back(toml_string(check_utf8(element, flag)));
  return "[" + join(parts, ", ") + "]";
}

// Absolute, so that the file can be read from anywhere.
std::string toml_path(const std::string& path, const std::string& flag) {
  return toml_string(check_utf8(fs::absolute(path).string(), flag));
}

// RUN/config.toml: the settings in use and the other options given. --resume reads it, and --config
// repeats the run. A model that is not a preset is read from RUN/model.toml, even if its own file
// changes.
std::string config_text(const CLI::App& app, const std::string& preset, const Options& o, const TrainOptions& t) {
  std::vector<std::pair<std::string, std::string>> keys = {
      {"data", toml_path(t.data, "--data")},
      {"model", preset.empty() ? toml_path(t.out + "/model.toml", "--out") : toml_string(preset)}};
  auto written = [&](const std::string& key) {
    return std::any_of(keys.begin(), keys.end(), [&](auto& k) { return k.first == key; });
  };
  if (t.steps <= 0) keys.push_back({"max_seconds", text_of(t.max_seconds)});
  if (!t.init.empty()) keys.push_back({"init", toml_path(t.init, "--init")});
  // Settings that are not set (steps, --init) have empty text or a number below their range.
  std::vector<std::string> derived;
  for (auto& settings : {settings_of(t.recipe), settings_of(t)})
    for (auto& row : settings.rows()) {
      SettingValue value = row.value();
      auto* list = std::get_if<std::vector<std::string>>(&value);
      auto* whole = std::get_if<int64_t>(&value);
      auto* truth = std::get_if<bool>(&value);
      bool unset = text_of(value).empty() || (list && list->empty()) || (whole && double(*whole) < row.setting->min) ||
                   (truth && !*truth);
      if (unset || written(row.setting->key()) || row.setting->name == std::string("max-seconds")) continue;
      keys.push_back({row.setting->key(), toml_value(value, row.setting->flag())});
      auto given = o.training.find(row.setting->name);
      bool was_derived = std::find(o.derived.begin(), o.derived.end(), row.setting->key()) != o.derived.end();
      if (!follows(row.setting->name).empty() && (given == o.training.end() || given->second.empty() || was_derived))
        derived.push_back(toml_string(row.setting->key()));
    }
  if (!derived.empty()) keys.push_back({"derived", "[" + join(derived, ", ") + "]"});
  if (auto* store = app.get_option("--store"); store->count())
    keys.push_back({"store", toml_path(store->as<std::string>(), "--store")});
  for (const auto& [flag, value] : o.device.libraries.flags())
    keys.push_back({flag.substr(2), toml_string(check_utf8(value, flag))});
  // The tokenizer and its template are in the data.
  static const std::vector<std::string> not_kept = {"help",       "help-all",    "config",    "resume",
                                                    "overwrite",  "out",         "json",      "quiet",
                                                    "stop-after", "max-seconds", "tokenizer", "chat-template"};
  for (const CLI::Option* o : app.get_options()) {
    if (o->get_lnames().empty() || o->count() == 0) continue;
    std::string key = o->get_lnames()[0];
    if (std::find(not_kept.begin(), not_kept.end(), key) != not_kept.end()) continue;
    std::replace(key.begin(), key.end(), '-', '_');
    if (written(key)) continue;
    std::vector<std::string> values;
    for (auto& v : o->results()) values.push_back(toml_string(check_utf8(v, o->get_name())));
    keys.push_back({key, values.size() == 1 ? values[0] : "[" + join(values, ", ") + "]"});
  }
  std::string text = fmt::format("# {}, {}\n", printable(t.device.name), format_number_of(t.device.threads, "thread"));
  for (auto& [key, value] : keys) text += fmt::format("{} = {}\n", key, value);
  return text;
}

// The file of a run that is continued: whole, and with values that can be read. Errors name it, not
// a flag that nobody gave.
void check_run_file(const CLI::App& app, const std::string& run) {
  const std::string file = run + "/config.toml";
  const GivenSettings of_run = read_config(app, file);
  if (!of_run.count("data")) {  // every run has it
    auto saved = list_checkpoints(run + "/checkpoints");
    if (saved.empty() && last_logged_step(run) == 0) fail_not_begun(run);
    fail("the file has lost the run's settings: it names no data", printable(file),
         saved.empty()
             ? std::string("Restore the file from a copy.")
             : fmt::format("Restore it from the last checkpoint: cp {} {}",
                           shell_path(run + "/checkpoints/" + saved[0].name + "/config.toml"), shell_path(file)));
  }
  for (auto* table : {&recipe_settings(), &training_settings()})
    for (auto& row : *table)
      if (auto it = of_run.find(row.name); it != of_run.end())
        for (auto& text : it->second) parse_setting(row, text, fmt::format("{}, key {}", printable(file), row.key()));
}

// Settings given with --resume (as flags, or in --config) that differ from the run's own file. What
// the file lacks had its default.
void check_changes(const CLI::App& app, const Options& o) {
  const std::string file = o.resume + "/config.toml";
  const GivenSettings of_run = read_config(app, file);
  auto check = [&](const std::vector<Setting>& table, const void* defaults, const GivenSettings& given) {
    for (auto& row : table) {
      auto was = of_run.find(row.name), now = given.find(row.name);
      if (now == given.end() || now->second.empty() || row.resume == OnResume::accepts) continue;
      auto text = [&](const GivenSettings::const_iterator& it) {
        if (row.type == SettingType::list) return join(it->second, ",");
        return text_of(parse_setting(row, it->second.back()));
      };
      std::string before = was != of_run.end() ? text(was) : text_of(row.get(row, defaults)), after = text(now);
      if (before == after) continue;
      std::string shown = before.empty() ? "not set" : printable(before);
      if (row.resume == OnResume::refuses)
        fail_usage(before.empty()
                       ? fmt::format("the run has no {}, but {} was given", row.name, printable(after))
                       : fmt::format("the run has {} {}, but {} was given", row.name, shown, printable(after)),
                   row.flag(), fmt::format("Leave out {} to continue the run.", row.flag()));
      if (!o.train.quiet)
        print_line(fmt::format("note     {} was {}; the run continues with {}", row.flag(), shown, printable(after)));
    }
  };
  const Recipe recipe;
  const TrainOptions training;
  check(recipe_settings(), &recipe, o.recipe.given);
  check(training_settings(), &training, o.training);
}

// --tokenizer and --chat-template are for text. Files of runs of earlier versions have both, and
// the data that the text became.
void check_text_options(const CLI::App& app, Options& o) {
  if (!o.texts.empty()) return;
  std::vector<std::string> files = app.get_option("--config")->results();
  if (!o.resume.empty()) files.push_back(o.resume + "/config.toml");
  for (auto [name, value] : {std::pair{"tokenizer", &o.tokenizer}, {"chat-template", &o.chat_template}}) {
    for (auto& file : files) {
      GivenSettings of_run = read_config(app, file);
      auto was = of_run.find(name);
      if (value->empty() || !of_run.count("data") || was == of_run.end() || was->second.back() != *value) continue;
      if (o.resume.empty())
        to_stderr("crest: note: {} of {} is ignored: the data has its own.\n", name, printable(file));
      value->clear();
    }
    if (!value->empty())
      fail_usage(fmt::format("'{}' was given without text: the data has its own", printable(*value)),
                 std::string("--") + name,
                 o.resume.empty() ? "Leave it out, or give the text instead of --data." : "Leave it out.");
  }
}

// What --overwrite must not remove: all that this command reads.
void check_overwrites_nothing_read(const CLI::App& app, const Options& o) {
  std::vector<InputPath> inputs;
  for (auto& text : o.texts) inputs.push_back({"TEXT", text});
  for (const char* flag : {"--data", "--init", "--model", "--tokenizer", "--config"})
    for (auto& path : app.get_option(flag)->results()) inputs.push_back({flag, path});
  check_inputs_stay(o.train.out, inputs);
}

// The default name of a run: that of its text or data.
std::string run_name(const Options& o) {
  bool text = !o.texts.empty();
  fs::path path = fs::absolute(text ? name_inside(o.texts[0]) : o.train.data).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  return (text ? path.stem() : path.filename()).string();
}

// A run that is continued with another number of ranks keeps its global batch: the micro steps
// follow.
void keep_global_batch(const CLI::App& app, Options& o) {
  const std::string file = o.resume + "/config.toml";
  auto recipe_of = [](const GivenSettings& given) {
    Recipe recipe;
    GivenSettings sizes;
    for (const char* name : {"batch", "grad-accumulation", "ranks", "data-parallel"})
      if (auto it = given.find(name); it != given.end()) sizes[name] = it->second;
    settings_of(recipe).apply(sizes);
    return recipe;
  };
  Recipe then = recipe_of(read_config(app, file)), now = recipe_of(o.recipe.given);
  if (then.world_size() == now.world_size() || then.grad_accumulation != now.grad_accumulation) return;
  int64_t global = then.batch * then.grad_accumulation * then.world_size(), micro = now.batch * now.world_size();
  if (global % micro != 0)
    fail_usage(fmt::format("the run has {} sequences per step, which {} ranks with --batch {} cannot share equally",
                           global, now.world_size(), now.batch),
               now.ranks > 1 ? "--ranks" : "--resume",
               fmt::format("Choose --ranks and --batch so that their product divides {}.", global));
  o.recipe.given["grad-accumulation"] = {std::to_string(global / micro)};
  if (!o.train.quiet)
    print_line(
        fmt::format("note     the run continues with {} instead of {} ranks, {} micro steps instead of {}: the same "
                    "global batch, but not bit for bit",
                    now.world_size(), then.world_size(), global / micro, then.grad_accumulation));
}

// A run's file has all settings, also those that nobody gave. Where the number of ranks, or what
// they share, is another one now, defaults of the run do not decide how they sum.
void choose_sums_anew(const CLI::App& app, Options& o) {
  const GivenSettings of_run = read_config(app, o.resume + "/config.toml");
  GivenSettings& now = o.recipe.given;
  auto last = [](const GivenSettings& given, const char* name) {
    auto it = given.find(name);
    return it == given.end() || it->second.empty() ? std::string() : it->second.back();
  };
  auto changed = [&](const char* name) { return last(of_run, name) != last(now, name); };
  auto leave_out = [&](const char* name) {
    for (auto& row : recipe_settings())
      if (row.name == std::string(name) && last(now, name) == row.default_value && !changed(name)) now[name].clear();
  };
  if (changed("shard") || changed("gather")) leave_out("reduce");
  if (changed("ranks") || changed("data-parallel"))
    for (const char* name : {"shard", "reduce", "bucket", "comm-dtype"}) leave_out(name);
}

// The command that continues this one in a folder: what the run's config.toml does not hold.
std::vector<std::string> continued(const Options& o, const std::string& folder) {
  std::vector<std::string> arguments = {own_arguments().at(0), "train", "--resume", folder};
  if (o.train.json) arguments.push_back("--json");
  if (o.train.quiet) arguments.push_back("--quiet");
  if (o.train.stop_after > 0) arguments.push_back(fmt::format("--stop-after={}", o.train.stop_after));
  if (auto it = o.training.find("max-seconds"); it != o.training.end() && !it->second.empty())
    arguments.push_back("--max-seconds=" + it->second.back());
  return arguments;
}

int run(const CLI::App& app, Options& o, RankGroup* group) {
  TrainOptions& t = o.train;
  t.group = group;
  t.restarted = restarted();
  const bool leads = !group || group->leads();
  if (!leads) t.quiet = true;
  for (const CLI::Option* option : app.get_options())
    if (!option->get_lnames().empty())
      for (auto& value : option->results()) check_utf8(value, option->get_name());
  if (!o.resume.empty()) check_run_file(app, o.resume);
  check_text_options(app, o);
  settings_of(t).apply(o.training);
  if (t.overwrite) check_overwrites_nothing_read(app, o);
  if (t.stop_after < 1 && app.get_option("--stop-after")->count())
    fail_usage(fmt::format("'{}' is out of range", t.stop_after), "--stop-after", "It must be at least 1.");
  if (!o.resume.empty()) {
    check_changes(app, o);
    keep_global_batch(app, o);
    choose_sums_anew(app, o);
  }
  t.device = o.device.find();
  if (group) connect_devices(*group, t.device);
  t.memory_limit = o.device.limit(t.device);
  if (o.wait_for_saves) t.save_mode = SaveMode::waiting;
  if (!o.texts.empty() && !t.data.empty() && o.resume.empty())
    fail_usage("both text files and --data were given", "crest train", "Give only one of them.");
  if (!o.resume.empty()) {
    if (!o.texts.empty())
      fail_usage("--resume does not accept text files", "crest train", "Leave them out; the run uses its own data.");
    if (!t.out.empty() || t.overwrite)
      fail_usage("--resume continues a run in its own folder", t.overwrite ? "--overwrite" : "--out", "Leave it out.");
  }
  if (o.texts.empty() && t.data.empty())
    fail_usage("no data given", "crest train",
               "Give a text file (crest train input.txt), or --data DIR from crest data prepare.");
  RecipeOptions& r = o.recipe;
  auto model = [&] { return r.has("model") ? r.given["model"].back() : ""; };
  t.resume = !o.resume.empty();
  if (t.resume) {
    t.out = o.resume;
    // The run's own file at its present place: the folder may have been moved or copied.
    if (std::string own = t.out + "/model.toml"; fs::path(model()).filename() == "model.toml" && fs::exists(own))
      r.given["model"] = {own};
  } else if (!t.init.empty()) {
    LoadedModel init = open_model(t.init);
    t.init = init.weights_path;
    if (!o.texts.empty()) o.tokenizer = tokenizer_of(init, o.tokenizer);
    if (!r.has("model"))
      r.given["model"] = {fs::is_directory(t.init) ? t.init : fs::path(t.init).parent_path().string()};
  }
  Recipe recipe = r.finish(default_model(t.device));
  if (!o.texts.empty()) {  // wrong settings are found before the text is prepared, which may take minutes
    Recipe any = recipe;
    if (!recompute_budget(any.recompute).empty()) any.recompute = "full";
    resolve(any, t.device);
  }
  if (!leads) group->start_after_first();
  if (!o.texts.empty()) t.data = fs::absolute(prepared(o)).string();
  if (!recipe.vocab_given && t.init.empty())
    if (uint32_t vocab = Dataset::open(t.data).vocab_size()) recipe.model.vocab = vocab;
  t.recipe = resolve(within_budget(recipe, t.device, "", !leads), t.device);
  std::optional<FreshFolder> fresh;
  if (t.out.empty() && !leads) {
    t.out = "runs/" + run_name(o);  // rank 0 creates it, with a free name
  } else if (t.out.empty()) {
    fresh.emplace("runs", run_name(o));
    t.out = fresh->path();
    t.fresh = true;
    tell_run_folder(t.out, 0);
  }
  check_utf8(fs::absolute(t.out).string(), o.resume.empty() ? "--out" : "--resume");
  std::string preset = preset_called(recipe.model_source);
  t.config_toml = [&app, &o, preset](const TrainOptions& resolved) { return config_text(app, preset, o, resolved); };
  t.config_toml(t);  // check that it can be written
  if (!o.store.off && leads) {
    t.record.emplace();
    t.record->store = o.store.file;
    t.record->wait = o.store.wait;
    t.record->before = read_conditions(t.device);
    t.record->head = new_record("train", o.store.name, t.recipe, t.device, "", t.record->before);
  }
  if (group && leads) group->start_after_first();
  return int(run_training(t).interrupted ? Exit::interrupted : Exit::ok);
}

}  // namespace

std::function<int()> setup_train(CLI::App& app) {
  auto o = std::make_shared<Options>();
  TrainOptions& t = o->train;
  app.add_option("TEXT", o->texts,
                 "text files or folders to train on, also .jsonl, .gz, .zst, .xz (prepared, then cached)");
  auto option = [&](const char* flag, auto& value, const char* help) {
    return app.add_option(flag, value, help)->group("Training");
  };
  option("--tokenizer", o->tokenizer,
         "for TEXT: bytes, bpe:VOCAB or FILE: tokenizer.json, vocab.json, .tiktoken (default: that of --init, else "
         "bpe:2048, or bytes for short texts)")
      ->type_name(tokenizer_type);
  option("--chat-template", o->chat_template,
         fmt::format("for conversations in TEXT: {} (default: the tokenizer's)", chat_template_names()).c_str())
      ->type_name("NAME");
  option("--out", t.out, "run folder (default: runs/NAME)")->type_name("DIR");
  option("--resume", o->resume, "continue this run from its newest valid checkpoint")->type_name("RUN");
  app.add_flag("--overwrite", t.overwrite, "replace the run at --out")->group("Training");
  add_settings(app, training_settings(), o->training);
  app.add_option(derived_flag, o->derived)  // a key of a run's config.toml
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false)
      ->group("");
  option("--stop-after", t.stop_after, "save and stop after this many steps of this command");
  app.add_flag("--wait-for-saves", o->wait_for_saves,
               "pause training while a checkpoint is written (always so on a CPU)")
      ->group("Saving and samples");
  app.add_flag("--quiet", t.quiet, "print no progress lines");
  add_json_option(app, t.json);
  add_record_options(app, o->store);
  add_recipe_options(app, o->recipe);
  add_rank_options(app, o->ranks);
  add_settings(app, restart_settings(), o->ranks);
  add_device_options(app, o->device);
  add_config_option(app);
  return [o, &app] {
    RankCommand command = {o->resume.empty(), [&](auto& folder) { return continued(*o, folder); }};
    return run_in_ranks(o->recipe, o->device, o->ranks, command, [&](RankGroup* group) { return run(app, *o, group); });
  };
}

}  // namespace crest
