#include "train/trainer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "comm/rank_group.h"
#include "core/error.h"
#include "core/shell_word.h"
#include "core/text.h"
#include "data/dataset.h"
#include "data/mixture.h"
#include "device/rank_device.h"
#include "passes/pass.h"
#include "passes/recompute.h"
#include "plan/defaults.h"
#include "store/new_record.h"
#include "train/config_file.h"
#include "train/defaults_of_first.h"
#include "train/resume.h"
#include "train/run_data.h"
#include "train/run_files.h"
#include "train/run_text.h"
#include "train/sampling_use.h"
#include "train/training_settings.h"

namespace crest {

namespace {

namespace fs = std::filesystem;

const Setting* row_named(const std::vector<Setting>& table, const std::string& name) {
  for (auto& row : table)
    if (name == row.name || name == row.key()) return &row;
  return nullptr;
}

// --overwrite must not remove this run's inputs.
void check_overwrites_nothing_read(const TrainRequest& request) {
  std::vector<InputPath> inputs;
  for (auto& text : request.texts) inputs.push_back({"TEXT", text});
  for (auto& source : parse_data_sources(request.train.data)) inputs.push_back({"--data", source.folder});
  for (const char* flag : {"--init", "--model", "--tokenizer", "--config"})
    for (auto& path : values_in(request.flags, flag)) inputs.push_back({flag, path});
  check_inputs_stay(request.train.out, inputs);
}

// Converts a request to TrainOptions and runs it.
class Start {
 public:
  explicit Start(TrainRequest request)
      : request_(std::move(request)),
        t_(request_.train),
        settings_(request_.recipe.given),
        leads_(!t_.group || t_.group->leads()),
        continues_(!request_.resume.empty()) {
    t_.restarted = restarted();
    t_.resume = continues_;
    if (!leads_) t_.quiet = true;
  }

  TrainOutcome run() {
    take_settings();
    find_device();
    check_sources();
    if (continues_)
      find_run();
    else if (!t_.init.empty())
      find_initial_model();
    t_.recipe = request_.recipe.finish(default_model(t_.device));
    if (t_.recipe.model.lora.rank && t_.init.empty() && !continues_)
      fail_usage("adapters need a model with weights, but none was given", "--lora",
                 "Add --init DIR, a Hugging Face folder or a run.");
    t_.recipe = prepare_data(t_.recipe);
    if (!leads_) t_.recipe = take_defaults(t_.recipe, t_.group->from_first(std::string()));
    t_.recipe = resolve(with_defaults(t_.recipe, t_.device, default_sources()), t_.device);
    std::optional<FreshFolder> fresh;
    if (t_.out.empty()) name_folder(fresh);
    check_utf8(fs::absolute(t_.out).string(), continues_ ? "--resume" : "--out");
    t_.config_toml = [this](const TrainOptions& used) { return config_text(request_, used); };
    t_.config_toml(t_);  // check write access
    if (request_.store && leads_) begin_record();
    if (t_.group && leads_) {
      t_.group->start_after_first();
      t_.group->from_first(chosen_defaults(t_.recipe));
    }
    return run_training(t_);
  }

 private:
  void print(const std::string& line) const {
    if (!t_.quiet && request_.print) request_.print(line);
  }

  DefaultSources default_sources() const {
    DefaultSources from;
    from.limit = t_.memory_limit / t_.recipe.data_parallel;
    from.timer_of = request_.step_timer;
    from.stage_costs_of = request_.stage_costs;
    if (t_.sample_every > 0) add_sampling(from.use, open_data(t_).tokenizer().get(), t_);
    from.note = [this](auto& line) { print(line); };
    return from;
  }

  void take_settings() {
    for (auto& argument : request_.flags)
      if (const std::string flag = flag_of(argument); flag != argument)
        check_utf8(argument.substr(flag.size() + 1), flag);
    GivenSettings of_run;
    if (continues_) {
      of_run = settings_in(read_config_file(request_.resume + "/config.toml"));
      check_run_file(request_.resume, of_run);
    }
    check_text_options(request_);
    if (!continues_) take_preset();
    settings_of(t_).apply(request_.training);
    if (!t_.base.empty()) t_.base = fs::absolute(t_.base).string();  // it is stored
    if (t_.overwrite) check_overwrites_nothing_read(request_);
    if (t_.stop_after < 1 && value_in(request_.flags, "--stop-after"))
      fail_usage(fmt::format("'{}' is out of range", t_.stop_after), "--stop-after", "It must be at least 1.");
    if (continues_) change(of_run);
  }

  void take_preset() {
    const SettingsOfPreset brought = request_.recipe.of_preset(request_.training);
    if (brought.empty()) return;
    std::string flags;
    for (auto& [name, texts] : brought) flags += fmt::format(" --{} {}", name, texts.back());
    print(fmt::format("recipe   of {}:{}", printable(settings_["model"].back()), flags));
    for (auto& [name, texts] : brought)  // finish() applies the recipe's
      if (row_named(training_settings(), name)) request_.training[name] = texts;
  }

  void change(const GivenSettings& of_run) {
    const Recipe recipe;
    const TrainOptions training;
    for (auto& line : changes_of_run(recipe_settings(), &recipe, of_run, settings_)) print(line);
    for (auto& line : changes_of_run(training_settings(), &training, of_run, request_.training)) print(line);
    if (auto line = keep_global_batch(of_run, settings_)) print(*line);
    choose_sums_anew(of_run, settings_);
  }

  void find_device() {
    t_.device = request_.device.find();
    if (t_.group) connect_devices(*t_.group, t_.device);
    t_.memory_limit = request_.device.limit(t_.device);
  }

  void check_sources() const {
    const bool text = !request_.texts.empty();
    if (text && !t_.data.empty() && !continues_)
      fail_usage("both text files and --data were given", "crest train", "Give only one of them.");
    if (continues_ && text)
      fail_usage("--resume does not accept text files", "crest train", "Leave them out; the run uses its own data.");
    if (continues_ && (!t_.out.empty() || t_.overwrite))
      fail_usage("--resume continues a run in its own folder", t_.overwrite ? "--overwrite" : "--out", "Leave it out.");
    parse_data_sources(t_.data);
    if (!text && t_.data.empty())
      fail_usage("no data given", "crest train",
                 "Give a text file (crest train input.txt), or --data DIR from crest data prepare.");
  }

  // The run's model file at its current place: the folder may have been moved or copied.
  void find_run() {
    t_.out = request_.resume;
    const std::string own = t_.out + "/model.toml";
    const std::string model = request_.recipe.has("model") ? settings_["model"].back() : "";
    if (fs::path(model).filename() == "model.toml" && fs::exists(own)) settings_["model"] = {own};
  }

  void find_initial_model() {
    LoadedModel init = open_model(t_.init, {}, t_.base);
    t_.init = init.weights_path;
    if (init.config.lora.rank) take_adapter(init);
    if (!request_.texts.empty()) request_.text.tokenizer = tokenizer_of(init, request_.text.tokenizer);
    if (!request_.recipe.has("model"))
      settings_["model"] = {fs::is_directory(t_.init) ? t_.init : fs::path(t_.init).parent_path().string()};
  }

  // --init ADAPTER: its shape decides, and peft's files describe it in their own way.
  void take_adapter(const LoadedModel& init) {
    for (auto& [name, texts] : settings_)
      if (!texts.empty() && name.starts_with("lora") && name != "lora-dropout")
        fail_usage(fmt::format("{} is an adapter already, so --{} has no use", printable(t_.init), name), "--" + name,
                   fmt::format("Leave it out to train this adapter on. For a second one, merge the first: crest export "
                               "{} --to merged --out DIR.",
                               shell_path(t_.init)));
    if (!init.adapter) return;
    const LoraConfig& lora = init.config.lora;
    settings_["model"] = {fs::is_directory(init.base_path) ? init.base_path
                                                           : fs::path(init.base_path).parent_path().string()};
    settings_["lora"] = {std::to_string(lora.rank)};
    settings_["lora-qkv"] = {std::to_string(lora.qkv_rank)};
    settings_["lora-alpha"] = {fmt::format("{}", lora.alpha)};
    settings_["lora-scale"] = {lora.rank_stabilized ? "sqrt" : "rank"};
    settings_["lora-targets"] = {lora.targets};
    if (settings_["lora-dropout"].empty()) settings_["lora-dropout"] = {fmt::format("{}", lora.dropout)};
  }

  // Prepares text once and keeps it in the cache, where the other ranks find it. Returns the recipe
  // with the data's vocabulary.
  Recipe prepare_data(Recipe recipe) {
    if (t_.streams()) check_stream(recipe);
    if (!request_.texts.empty()) {  // report wrong settings first: preparing text may take minutes
      Recipe any = recipe;
      if (!recompute_budget(any.recompute).empty()) any.recompute = "full";
      resolve(any, t_.device);
    }
    if (!leads_) t_.group->start_after_first();
    if (!request_.texts.empty()) t_.data = {fs::absolute(prepared_text(recipe)).string()};
    if (!recipe.vocab_given && t_.init.empty())
      if (uint32_t vocab = open_data(t_).vocab_size()) recipe.model.vocab = vocab;
    return recipe;
  }

  void check_stream(const Recipe& recipe) const {
    auto refuse = [](const std::string& what, const std::string& flag, const std::string& advice) {
      fail_usage(what, flag, advice);
    };
    const std::string restarts = value_in(request_.flags, "--restarts").value_or("0");
    if (t_.group || recipe.all_ranks() > 1)
      refuse("only one rank can read standard input", "--data -",
             "Leave --ranks, --data-parallel and --mesh out, or train on a folder of crest data prepare.");
    if (restarts != "0")
      refuse("a restarted run cannot read standard input again", "--restarts",
             "Leave it out. To continue, write the stream again for crest train --resume.");
    if (t_.loader_threads > 1)
      refuse("one thread reads standard input", "--loader-threads", "Leave it out. --prefetch reads ahead.");
    if (packs_documents(recipe))
      refuse("the documents in rows of standard input are unknown", "--packing", "Leave it out.");
    if (t_.stream_tokenizer.starts_with("bpe:"))
      refuse("a tokenizer cannot be trained on tokens", "--tokenizer", "Give the file of the tokens' tokenizer.");
    if (!continues_ && t_.init.empty() && !recipe.vocab_given && t_.stream_tokenizer.empty() &&
        find_preset(recipe.model_source))
      refuse("the vocabulary of the rows is unknown", "--data -",
             "Give --vocab N, or --tokenizer FILE of the tokens' tokenizer.");
    if (isatty(t_.data_descriptor))
      refuse("standard input is a terminal", "--data -", "Pipe rows of tokens into crest train.");
  }

  std::string prepared_text(const Recipe& recipe) const {
    PreparedText p = request_.prepare ? request_.prepare(request_)
                                      : prepare_text(request_.texts, request_.text,
                                                     {.progress = {}, .message = [this](auto& m) { print(m); }});
    print(fmt::format("text     {} with tokenizer {} ({} tokens, vocabulary {})", p.reused ? "cached" : "prepared",
                      printable(p.tokenizer), format_count(double(p.tokens)), p.vocab_size));
    if (!t_.init.empty()) require_embeddings(p.vocab_size, recipe.model, p.tokenizer);
    if (recipe.vocab_given && p.vocab_size > uint64_t(recipe.model.vocab))
      fail(fmt::format("the tokenizer has {} tokens, but --vocab is {}", p.vocab_size, recipe.model.vocab),
           printable(p.tokenizer), "Leave --vocab out.");
    return p.folder;
  }

  void name_folder(std::optional<FreshFolder>& fresh) {
    const char* root = "runs";
    if (!leads_) {
      t_.out = root + ("/" + run_name(request_));  // rank 0 creates it, under a free name
      return;
    }
    fresh.emplace(root, run_name(request_));
    t_.out = fresh->path();
    t_.fresh = true;
    tell_run_folder(t_.out, 0);
  }

  void begin_record() {
    TrainRecord& record = t_.record.emplace();
    record.store = request_.store->file;
    record.wait = request_.store->wait;
    record.before = read_conditions(t_.device);
    record.head = new_record("train", request_.store->name, t_.recipe, t_.device, "", record.before);
  }

  TrainRequest request_;
  TrainOptions& t_;
  GivenSettings& settings_;  // of the recipe
  const bool leads_, continues_;
};

// A C++ program's settings as flags.
FlagLayer layer_of(const SettingTexts& settings) {
  FlagLayer layer;
  for (auto& [name, text] : settings) {
    const Setting* row = nullptr;
    std::vector<std::string> known;
    for (auto* table : {&recipe_settings(), &training_settings(), &device_settings()}) {
      if (!row) row = row_named(*table, name);
      for (auto& r : *table) known.push_back(r.key());
    }
    if (!row) fail_usage(fmt::format("unknown setting '{}'", printable(name)), "train", did_you_mean(name, known));
    if (row->type != SettingType::list) parse_setting(*row, text);
    layer.push_back(row->flag() + "=" + text);
  }
  return layer;
}

TrainRequest request_of(FlagLayer flags) {
  TrainRequest request;
  for (auto& [name, texts] : settings_in(flags)) {
    if (row_named(recipe_settings(), name)) request.recipe.given[name] = texts;
    if (row_named(training_settings(), name)) request.training[name] = texts;
    if (auto* row = row_named(device_settings(), name))
      row->set(*row, &request.device, parse_setting(*row, texts.back()));
  }
  request.derived = values_in(flags, derived_flag);
  request.flags = std::move(flags);
  return request;
}

}  // namespace

TrainRequest new_run(const SettingTexts& settings) { return request_of(layer_of(settings)); }

TrainRequest continued_run(const std::string& run, const SettingTexts& changes) {
  const FlagLayer changed = layer_of(changes);
  TrainRequest request = request_of(combined({read_run_config(run, {changed}, {}, {}), changed}));
  request.resume = run;
  return request;
}

TrainOutcome train(TrainRequest request) { return Start(std::move(request)).run(); }

std::string sample_text(SampleOptions options, const DeviceOptions& device) {
  validate(options);
  LoadedModel model = open_model(options.run);
  options.device = device.find();
  options.memory_limit = device.limit(options.device);
  return ModelSampler(options, model).sample(0, 0, [](std::string_view) {}).text;
}

}  // namespace crest
