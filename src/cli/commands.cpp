#include "cli/commands.h"

#include "cli/command.h"

namespace crest {

const std::vector<Command>& commands() {
  static const std::vector<Command> table = {
      {"train", "train a model on a text file or prepared data", setup_train},
      {"program", "print the Program of a training step", setup_program},
  };
  return table;
}

}  // namespace crest
