// Where the settings of a run come from. Each source is a layer of flags: the config.toml of the
// continued run, then --config files, then the command line. A layer overrides the layers below it.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "settings/settings.h"

namespace crest {

// Flags of one source, in order: "--batch=8".
using FlagLayer = std::vector<std::string>;

// A list in a run's config.toml: settings not given, with defaults computed from other settings
// (follows() of train/training_settings.h).
inline const std::string derived_flag = "--derived";

// "--batch" of "--batch=8".
std::string flag_of(const std::string& argument);
// The last value of a flag as "=value", normalized so that equal values have equal texts ("": a
// flag without one); nullopt: the layer does not have it.
std::optional<std::string> value_in(const FlagLayer& layer, const std::string& flag);
// All values of a flag, as given.
std::vector<std::string> values_in(const FlagLayer& layer, const std::string& flag);
// By name without dashes.
GivenSettings settings_in(const FlagLayer& layer);

// `lower` without the flags overridden by `upper`. A default in derived_flag goes, too, if `upper`
// changes one of its sources: Crest computes it again. --mesh and --ranks state the same number, so
// either overrides the other.
FlagLayer without(const FlagLayer& lower, const FlagLayer& upper);
// The effective flags of layers, from the lowest to the highest.
FlagLayer combined(const std::vector<FlagLayer>& layers);

// The remedy for a lost or damaged config.toml of a run.
std::string how_to_restore_config(const std::string& run);

// The keys of a TOML file. known: the allowed flags; empty: any. Usage errors name the file and
// suggest the nearest key.
FlagLayer read_config_file(const std::string& path, const std::vector<std::string>& known = {});

// RUN/config.toml as the lowest layer of a continued run. It leaves out flags for loading code into
// the process, because the author of the folder must not choose code. note: gets a line for each
// such flag unless `above` gives it. Throws if `run` is not a run.
FlagLayer read_run_config(const std::string& run, const std::vector<FlagLayer>& above,
                          const std::vector<std::string>& known, const std::function<void(const std::string&)>& note);

}  // namespace crest
