// RUN/config.toml: the settings in use and other given flags, for --resume and for repeating the
// run with --config.
#pragma once
#include <string>

#include "train/request.h"

namespace crest {

// TOML must be UTF-8. Returns the text, or throws a usage error with the flag's name.
const std::string& check_utf8(const std::string& text, const std::string& flag);

// The file's text. used: the run's options with the settings in use. Models other than presets are
// read from RUN/model.toml, so later changes to the original file have no effect. Paths are
// absolute. Throws usage errors for other encodings.
std::string config_text(const TrainRequest& request, const TrainOptions& used);

}  // namespace crest
