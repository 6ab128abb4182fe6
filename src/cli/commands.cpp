#include "cli/command.h"

namespace crest {

// One file each: cli/NAME.cpp.
std::function<int()> setup_data(CLI::App&);
std::function<int()> setup_train(CLI::App&);
std::function<int()> setup_sample(CLI::App&);
std::function<int()> setup_eval(CLI::App&);
std::function<int()> setup_bench(CLI::App&);
std::function<int()> setup_profile(CLI::App&);
std::function<int()> setup_program(CLI::App&);
std::function<int()> setup_plan(CLI::App&);
std::function<int()> setup_devices(CLI::App&);
std::function<int()> setup_comm(CLI::App&);
std::function<int()> setup_runs(CLI::App&);
std::function<int()> setup_compare(CLI::App&);
std::function<int()> setup_report(CLI::App&);
std::function<int()> setup_lab(CLI::App&);
std::function<int()> setup_import(CLI::App&);
std::function<int()> setup_completions(CLI::App&);

const std::vector<Command>& commands() {
  static const std::vector<Command> table = {
      {"data", "prepare text for training; show what a data folder holds", setup_data},
      {"import", "take over a checkpoint of llm.c or nanoGPT", setup_import},
      {"train", "train a model on a text file or prepared data", setup_train},
      {"sample", "generate text with a trained model", setup_sample},
      {"eval", "loss and perplexity of a model on data", setup_eval},
      {"bench", "measure a forward pass, forward + backward, or a training step", setup_bench},
      {"profile", "where the time and the memory of a step go", setup_profile},
      {"compare", "why two runs differ: time and memory, split into causes", setup_compare},
      {"program", "print the Program of a training step", setup_program},
      {"plan", "parameters, memory and FLOPs before anything runs", setup_plan},
      {"devices", "list devices; --measure their limits", setup_devices},
      {"comm", "measure collectives between processes: all-reduce and others", setup_comm},
      {"runs", "what was recorded: list, show, export, import, delete", setup_runs},
      {"report", "a report over runs that can be sent to somebody: HTML, Markdown", setup_report},
      {"lab", "experiments with a verdict on each claim of their documents: list, show, run", setup_lab},
      {"completions", "what makes bash, zsh or fish complete crest's command line", setup_completions},
  };
  return table;
}

}  // namespace crest
