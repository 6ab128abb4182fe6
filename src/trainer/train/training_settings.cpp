#include "train/training_settings.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "comm/rank_options.h"
#include "device/device_options.h"
#include "passes/optimizers.h"
#include "plan/recipe_settings.h"
#include "train/schedule.h"

namespace crest {

namespace {

constexpr double most_steps = 1e12;

// A whole number from 0 (or row.min) that changes no measurement, and may change on --resume.
template <auto member>
Setting count_setting(Setting row) {
  row.min = std::max(row.min, 0.0), row.max = std::min(row.max, most_steps);
  row.identity = false;
  row.resume = OnResume::accepts;
  return setting<member>(row);
}

// One source is a text, as in runs before there were mixtures; several are a list.
Setting data_setting(const char* group) {
  Setting row = setting<&TrainOptions::data>({.name = "data",
                                              .group = group,
                                              .help = "prepared data (crest data prepare), shards of llm.c or nanoGPT, "
                                                      "or -: rows of tokens from standard input. Several make a "
                                                      "mixture, each with its weight: DIR:WEIGHT",
                                              .example = "data/shakespeare",
                                              .common = true,
                                              .identity = false,
                                              .local = true});
  row.get = [](const Setting&, const void* object) {
    const auto& data = static_cast<const TrainOptions*>(object)->data;
    if (data.size() > 1) return SettingValue(data);
    return SettingValue(data.empty() ? std::string() : data[0]);
  };
  return row;
}

std::vector<Setting> data_settings() {
  const char* group = "Data";
  return {
      data_setting(group),
      setting<&TrainOptions::init>({.name = "init",
                                    .group = group,
                                    .help = "initial weights: Hugging Face folder, run or checkpoint",
                                    .example = "runs/first",
                                    .common = true,
                                    .identity = false,
                                    .local = true,
                                    .resume = OnResume::refuses}),
      setting<&TrainOptions::base>({.name = "base",
                                    .group = group,
                                    .help =
                                        "folder of the base model of an adapter (--init ADAPTER, --resume), if it is "
                                        "not where the adapter says",
                                    .example = "models/qwen",
                                    .identity = false,
                                    .newer = true,
                                    .local = true,
                                    .resume = OnResume::accepts}),
      count_setting<&TrainOptions::prefetch>({.name = "prefetch",
                                              .group = group,
                                              .help = "batches to read ahead; 0: read when a step needs them",
                                              .unit = "batches",
                                              .max = 1000,
                                              .local = true}),
      count_setting<&TrainOptions::loader_threads>({.name = "loader-threads",
                                                    .group = group,
                                                    .help = "reading threads, with --prefetch",
                                                    .min = 1,
                                                    .max = 1000,
                                                    .local = true}),
  };
}

std::vector<Setting> schedule_settings() {
  const char* group = "Training";
  std::vector<const char*> schedules;
  for (auto& name : schedule_names()) schedules.push_back(name.c_str());
  std::vector<const char*> decays;
  for (auto& name : decay_shape_names()) decays.push_back(name.c_str());
  return {
      count_setting<&TrainOptions::steps>(
          {.name = "steps",
           .group = group,
           .help = "optimizer steps",
           .unit = "steps",
           .default_value = "of --epochs, or 1000, or as many as fit into --max-seconds",
           .min = 1,
           .common = true}),
      setting<&TrainOptions::epochs>({.name = "epochs",
                                      .group = group,
                                      .help = "passes over the training data, rounded up to steps; in place of --steps",
                                      .unit = "passes",
                                      .default_value = "none",
                                      .min = 0,
                                      .max = 1e9,
                                      .common = true,
                                      .identity = false,
                                      .stored = false,
                                      .resume = OnResume::accepts}),
      setting<&TrainOptions::max_seconds>(
          {.name = "max-seconds",
           .group = group,
           .help = "time limit of the training loop, checked after each step. Without --steps, Crest "
                   "measures 12 warm-up steps and fits the schedule to the limit. The run may exceed it by 15%",
           .unit = "seconds",
           .default_value = "none",
           .min = 0,
           .max = 1e9,
           .common = true,
           .identity = false,
           .stored = false,
           .resume = OnResume::accepts}),
      setting<&TrainOptions::lr>(
          {.name = "lr",
           .group = group,
           .help = "peak learning rate",
           .default_value = "6e-4 sqrt(768 / width), from 1e-4 to 3e-3; below 1024 tokens a step, times sqrt(tokens / "
                            "1024); lion: a fifth of it; sgd: 100 times",
           .min = 0,
           .above = true,
           .common = true,
           .identity = false}),
      setting<&TrainOptions::min_lr>({.name = "min-lr",
                                      .group = group,
                                      .help = "final learning rate",
                                      .default_value = "a tenth of the peak",
                                      .min = 0,
                                      .identity = false}),
      setting<&TrainOptions::warmup>({.name = "warmup",
                                      .group = group,
                                      .help = "steps at the start with a rising learning rate",
                                      .unit = "steps",
                                      .default_value = "2% of the steps, from 40 to 2000; a fifth below 200 steps",
                                      .min = 0,
                                      .max = most_steps,
                                      .identity = false}),
      setting<&TrainOptions::schedule>({.name = "schedule",
                                        .group = group,
                                        .help = "shape of the learning-rate decay",
                                        .choices = schedules,
                                        .identity = false}),
      setting<&TrainOptions::decay_share>({.name = "decay-share",
                                           .group = group,
                                           .help = "with --schedule wsd: share of the steps that decay, at the end",
                                           .min = 0,
                                           .max = 1,
                                           .identity = false}),
      setting<&TrainOptions::decay_shape>(
          {.name = "decay-shape",
           .group = group,
           .help = "with --schedule wsd: factor of the peak over the progress t of the decay: 1 - sqrt(t), 1 - t, or "
                   "(1 + cos(pi t)) / 2",
           .choices = decays,
           .identity = false}),
      setting<&TrainOptions::seed>({.name = "seed",
                                    .group = group,
                                    .help = "seed for weights, data order and dropout",
                                    .min = 0,
                                    .max = 9e15,
                                    .identity = false,
                                    .resume = OnResume::refuses}),
      count_setting<&TrainOptions::val_every>({.name = "val-every",
                                               .group = group,
                                               .help = "steps between validations; 0: never",
                                               .unit = "steps",
                                               .default_value = "a tenth of the steps",
                                               .common = true}),
      count_setting<&TrainOptions::val_batches>(
          {.name = "val-batches", .group = group, .help = "batches per validation", .unit = "batches", .min = 1}),
      count_setting<&TrainOptions::patience>({.name = "patience",
                                              .group = group,
                                              .help =
                                                  "validations without an improvement before the run ends; 0: it does "
                                                  "not end early",
                                              .unit = "validations",
                                              .stored = false}),
      setting<&TrainOptions::until_loss>(
          {.name = "until-loss",
           .group = group,
           .help = "ends the run once the validation loss is at most this, and prints the steps, tokens and seconds "
                   "until then; 0: it does not end early",
           .unit = "nats",
           .min = 0,
           .max = 1e9,
           .identity = false,
           .stored = false,
           .resume = OnResume::accepts}),
      setting<&TrainOptions::on_spike>(
          {.name = "on-spike",
           .group = group,
           .help =
               "response to a jump of the training loss: a warning, or a return to the newest checkpoint before it, "
               "without the samples since that checkpoint",
           .choices = {"warn", "rollback"},
           .identity = false,
           .stored = false,
           .resume = OnResume::accepts}),
      setting<&TrainOptions::min_delta>({.name = "min-delta",
                                         .group = group,
                                         .help = "with --patience: the smallest improvement of the validation loss",
                                         .unit = "nats",
                                         .min = 0,
                                         .max = 1e9,
                                         .identity = false,
                                         .stored = false,
                                         .resume = OnResume::accepts}),
  };
}

std::vector<Setting> saving_settings() {
  const char* group = "Saving and samples";
  return {
      count_setting<&TrainOptions::save_every>({.name = "save-every",
                                                .group = group,
                                                .help = "steps between checkpoints; 0: only at the end",
                                                .unit = "steps",
                                                .default_value = "a quarter of the steps",
                                                .common = true}),
      count_setting<&TrainOptions::keep>({.name = "keep",
                                          .group = group,
                                          .help = "newest checkpoints to keep; 0: all",
                                          .unit = "checkpoints",
                                          .max = 1e6}),
      setting<&TrainOptions::keep_best>({.name = "keep-best",
                                         .group = group,
                                         .help = "save the weights with the lowest validation loss, and keep them as "
                                                 "checkpoints/best",
                                         .identity = false,
                                         .stored = false,
                                         .resume = OnResume::accepts}),
      count_setting<&TrainOptions::sample_every>(
          {.name = "sample-every", .group = group, .help = "steps between text samples; 0: none", .unit = "steps"}),
      count_setting<&TrainOptions::sample_tokens>({.name = "sample-tokens",
                                                   .group = group,
                                                   .help = "tokens per sample",
                                                   .unit = "tokens",
                                                   .min = 1,
                                                   .max = 1e6}),
  };
}

}  // namespace

static std::vector<Setting> several_ranks_settings() {
  return {count_setting<&TrainOptions::check_ranks>(
      {.name = "check-ranks",
       .group = "Ranks",
       .help = "steps between comparisons of the weights of all ranks (and before every save); 0: never",
       .unit = "steps",
       .stored = false})};
}

const std::vector<Setting>& training_settings() {
  static const std::vector<Setting> all = [] {
    std::vector<Setting> rows = data_settings();
    for (auto& more : {schedule_settings(), saving_settings(), several_ranks_settings()})
      rows.insert(rows.end(), more.begin(), more.end());
    return rows;
  }();
  return all;
}

const std::vector<const Setting*>& run_settings() {
  static const std::vector<const Setting*> all = [] {
    std::vector<const Setting*> rows;
    for (auto* table : {&recipe_settings(), &training_settings()})
      for (auto& row : *table)
        if (row.stored) rows.push_back(&row);
    return rows;
  }();
  return all;
}

const Setting* find_run_setting(const std::string& name) {
  for (auto* row : run_settings())
    if (name == row->name || name == row->key()) return row;
  return nullptr;
}

Settings settings_of(TrainOptions& options) { return Settings().add(training_settings(), &options); }
Settings settings_of(const TrainOptions& options) { return settings_of(const_cast<TrainOptions&>(options)); }

const std::vector<SettingTable>& setting_tables() {
  static const Recipe recipe;
  static const TrainOptions training;
  static const RankOptions ranks;
  static const DeviceOptions device;
  static const std::vector<SettingTable> all = {{&recipe_settings(), &recipe},
                                                {&training_settings(), &training},
                                                {&rank_settings(), &ranks},
                                                {&restart_settings(), &ranks},
                                                {&device_settings(), &device}};
  return all;
}

std::vector<std::string> follows(const std::string& setting) {
  static const std::map<std::string, std::vector<std::string>> all = {
      {"lr", {"model", "optimizer", "batch", "seq", "grad-accumulation"}},
      {"min-lr", {"lr"}},
      {"warmup", {"steps"}},
      {"val-every", {"steps"}},
      {"save-every", {"steps"}}};
  auto it = all.find(setting);
  return it == all.end() ? std::vector<std::string>() : it->second;
}

}  // namespace crest
