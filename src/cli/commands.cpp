#include "cli/commands.h"

#include "cli/command.h"

namespace crest {

const std::vector<Command>& commands() {
  static const std::vector<Command> table = {
      {"data", "prepare text for training; show what a data folder holds", setup_data},
      {"train", "train a model on a text file or prepared data", setup_train},
      {"sample", "generate text with a trained model", setup_sample},
      {"eval", "loss and perplexity of a model on data", setup_eval},
      {"bench", "measure a forward pass, forward + backward, or a training step", setup_bench},
      {"program", "print the Program of a training step", setup_program},
      {"plan", "parameters, memory and FLOPs before anything runs", setup_plan},
      {"devices", "list devices; --measure their limits", setup_devices},
  };
  return table;
}

}  // namespace crest
