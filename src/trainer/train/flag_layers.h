// Sources of a run's settings. Each source is a layer of flags: config.toml of the continued run,
// then --config files, then the command line. A layer overrides the layers below it.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "settings/settings.h"

namespace crest {

// One source's flags in order: "--batch=8".
using FlagLayer = std::vector<std::string>;

// The list in config.toml of settings with computed defaults, from other settings (follows() of
// train/training_settings.h).
inline const std::string derived_flag = "--derived";

// "--batch=8" -> "--batch".
std::string flag_of(const std::string& argument);
// A flag's last value as "=value", normalized so equal values have equal text ("": a flag without a
// value); nullopt: not in this layer.
std::optional<std::string> value_in(const FlagLayer& layer, const std::string& flag);
// All values of a flag, unchanged.
std::vector<std::string> values_in(const FlagLayer& layer, const std::string& flag);
// By name, without dashes.
GivenSettings settings_in(const FlagLayer& layer);

// `lower` without the flags overridden by `upper`. A default in derived_flag also goes if `upper`
// changes one of its sources: Crest computes it again. --mesh and --ranks state the same number,
// and --epochs and --steps the same length, so each overrides the other.
FlagLayer without(const FlagLayer& lower, const FlagLayer& upper);
// The effective flags, with layers from lowest to highest.
FlagLayer combined(const std::vector<FlagLayer>& layers);

// How to repair a run after its config.toml was lost or damaged.
std::string how_to_restore_config(const std::string& run);

// A TOML file's keys. known: the allowed flags; empty: any. Usage errors name the file and the
// nearest key.
FlagLayer read_config_file(const std::string& path, const std::vector<std::string>& known = {});

// RUN/config.toml as the lowest layer of a continued run. Skips flags that load code into the
// process, because the author of a folder must not choose code. note: receives a line for each such
// flag, unless `above` gives it. Throws if `run` is not a run.
FlagLayer read_run_config(const std::string& run, const std::vector<FlagLayer>& above,
                          const std::vector<std::string>& known, const std::function<void(const std::string&)>& note);

}  // namespace crest
