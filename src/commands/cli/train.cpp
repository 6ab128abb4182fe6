// crest train: from a text file or prepared data to a trained model.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "cli/command.h"
#include "cli/options.h"
#include "cli/prepare_progress.h"
#include "cli/rank_flags.h"
#include "cli/store_options.h"
#include "comm/rank_options.h"
#include "core/error.h"
#include "core/to_stderr.h"
#include "data/chat.h"
#include "predict/defaults.h"
#include "train/resume.h"
#include "train/trainer.h"
#include "train/training_settings.h"

namespace crest {

namespace {

struct TrainFlags {
  TrainRequest request;
  GivenSettings ranks;
  RecordOptions store;
  bool wait_for_saves = false;
};

FlagLayer given_flags(const CLI::App& app) {
  FlagLayer flags;
  for (const CLI::Option* option : app.get_options())
    if (!option->get_lnames().empty())
      for (auto& value : option->results()) flags.push_back("--" + option->get_lnames()[0] + "=" + value);
  return flags;
}

PreparedText prepare(const TrainRequest& request) {
  constexpr double silent_seconds = 1;
  PreparationProgress progress(silent_seconds);
  PreparationShown shown{request.train.quiet ? nullptr : progress.stages(), progress.messages()};
  return prepare_text(request.texts, request.text, shown);
}

int run_train(const CLI::App& app, TrainFlags& o, RankGroup* group) {
  TrainRequest& r = o.request;
  r.flags = given_flags(app);
  r.train.group = group;
  if (o.wait_for_saves) r.train.save_mode = SaveMode::waiting;
  if (!o.store.off) r.store = o.store;
  r.step_timer = [](auto& plain, auto& device) { return predicted_step_times(plain, device); };
  r.stage_costs = predicted_costs_of_stages();
  r.prepare = prepare;
  r.print = [](const std::string& line) { to_stderr("{}\n", line); };
  return int(train(std::move(r)).interrupted ? Exit::interrupted : Exit::ok);
}

}  // namespace

std::function<int()> setup_train(CLI::App& app) {
  auto o = std::make_shared<TrainFlags>();
  TrainRequest& r = o->request;
  TrainOptions& t = r.train;
  app.add_option("TEXT", r.texts,
                 "text files or folders to train on, also .jsonl, .parquet, .gz, .zst, .xz (prepared, then cached)");
  auto option = [&](const char* flag, auto& value, const char* help) {
    return app.add_option(flag, value, help)->group("Training");
  };
  option("--tokenizer", r.text.tokenizer,
         "for TEXT: bytes, bpe:VOCAB or FILE: tokenizer.json, vocab.json, .tiktoken (default: of --init, else "
         "bpe:2048, or bytes for short texts)")
      ->type_name(tokenizer_type);
  option("--chat-template", r.text.chat_template,
         fmt::format("for conversations in TEXT: {} (default: the tokenizer's)", chat_template_names()).c_str())
      ->type_name("NAME");
  app.add_flag("--add-bos", r.text.add_bos, "for TEXT: begin every document with the tokenizer's begin-of-text token")
      ->group("Training");
  option("--out", t.out, "run folder (default: runs/NAME)")->type_name("DIR");
  option("--resume", r.resume, "continue this run from its newest valid checkpoint")->type_name("RUN");
  app.add_flag("--overwrite", t.overwrite, "replace the run at --out")->group("Training");
  add_settings(app, training_settings(), r.training);
  app.add_option(derived_flag, r.derived)  // a key of a run's config.toml
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
  add_recipe_options(app, r.recipe);
  add_rank_options(app, o->ranks);
  add_settings(app, restart_settings(), o->ranks);
  add_device_options(app, r.device);
  add_config_option(app);
  return [o, &app] {
    TrainRequest& r = o->request;
    RankCommand command = {r.resume.empty(), [&](auto& folder) { return continuing_command(r, folder); }};
    return run_in_ranks(r.recipe, r.device, o->ranks, command,
                        [&](RankGroup* group) { return run_train(app, *o, group); });
  };
}

}  // namespace crest
