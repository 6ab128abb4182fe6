// Training from C++: what crest train does, without its command line. Link with the parts base,
// step, devices and trainer.
//
// Settings have the names and values of `crest train` (docs/reference/settings.md). A run is a
// folder with config.toml, log.jsonl and checkpoints/ (train/run_files.h), as the command writes
// it.
//
//   #include "train/trainer.h"
//   using namespace crest;
//
//   TrainRequest request = new_run({{"model", "nano"}, {"batch", "4"}, {"seq", "32"}, {"steps", "20"}});
//   request.texts = {"text.txt"};
//   request.train.out = "run";
//   request.train.on_step = [](const StepRow& row) { fmt::print("{} {}\n", row.step, row.loss); };
//   train(request);
//
//   train(continued_run("run", {{"steps", "30"}}));
//
//   SampleOptions sample;
//   sample.run = "run", sample.prompt = "the ";
//   fmt::print("{}\n", sample_text(sample));
//
// Errors are exceptions of type Error (core/error.h) and say what to do.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "inference/sample_model.h"
#include "train/request.h"

namespace crest {

// Settings by name: {"batch", "4"}. Names may have dashes or underscores. A list has one entry for
// each element. docs/reference/settings.md has the units.
using SettingTexts = std::vector<std::pair<std::string, std::string>>;

// A new run. settings: recipe, training and device. Also set request.texts (files and folders) or
// the setting `data` (a folder of `crest data prepare`, or the result of prepare_text).
// request.train.out is the run's folder ("": runs/NAME). It must not exist, unless
// request.train.overwrite is set. Throws usage errors for unknown names and wrong values.
TrainRequest new_run(const SettingTexts& settings);

// Continues the run in a folder from its newest valid checkpoint, bit for bit. changes: new values
// of settings, such as more `steps`. train() rejects changes to the data, the model and other fixed
// settings. Crest recomputes defaults derived from a changed setting. Throws if the folder is not a
// run.
TrainRequest continued_run(const std::string& run, const SettingTexts& changes = {});

// Trains in this process. The run ends at the number of steps, the time limit or a signal (SIGINT,
// SIGTERM), and is then saved. Progress goes to standard error unless request.train.quiet is set.
// Throws usage errors for conflicting settings, does_not_fit if memory is too small, and the errors
// of run_training(). Saved checkpoints stay intact.
TrainOutcome train(TrainRequest request);

// The model's continuation of options.prompt, without the prompt. options.run: a run, a checkpoint,
// or a folder with config.json and safetensors. options.max_tokens limits the number of new tokens.
// `device` replaces options.device and options.memory_limit.
std::string sample_text(SampleOptions options, const DeviceOptions& device = {});

}  // namespace crest
