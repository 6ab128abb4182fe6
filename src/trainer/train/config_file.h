// RUN/config.toml: the settings in use and the other flags given. --resume reads it, and --config
// repeats the run.
#pragma once
#include <string>

#include "train/request.h"

namespace crest {

// TOML is UTF-8 only. Throws a usage error with the flag's name; returns the text.
const std::string& check_utf8(const std::string& text, const std::string& flag);

// The text of the file. used: the options of the run, with the settings in use. Any model but a
// preset is read from RUN/model.toml, so changes of the original file do not matter. Paths are
// absolute. Throws usage errors for texts other than UTF-8.
std::string config_text(const TrainRequest& request, const TrainOptions& used);

}  // namespace crest
