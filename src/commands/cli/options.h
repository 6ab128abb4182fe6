// Options shared by several subcommands. Every flag is also a TOML key for --config, with '_' for
// '-'.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "device/device_options.h"
#include "plan/recipe_settings.h"
#include "settings/settings.h"

namespace CLI {
class App;
}

namespace crest {

// --libraries, --cublaslt, --cudnn.
void add_library_options(CLI::App& app, LibraryOptions& options);
// --device, --threads, --memory-limit and the library options.
void add_device_options(CLI::App& app, DeviceOptions& options);

// Collects the given settings of a table, as text; they are checked when they are applied. `given`
// must outlive the App's parsing.
void add_settings(CLI::App& app, const std::vector<Setting>& table, GivenSettings& given);
// The flags of a recipe: models, sizes, settings.
void add_recipe_options(CLI::App& app, RecipeOptions& options);

// The type of values of --tokenizer.
inline constexpr const char* tokenizer_type = "TOKENIZER";

// --json: print one document on standard output.
void add_json_option(CLI::App& app, bool& json);
// --base DIR: for adapters.
void add_base_option(CLI::App& app, std::string& base);
// --config FILE.
void add_config_option(CLI::App& app);

// Parses arguments. Flags override --config (a later file the one before it), and --config
// overrides the config.toml of the run continued by --resume. Where a value is overridden, derived
// ones are computed again. Unknown flags and keys are usage errors with the nearest name. Numbers
// are read strictly: empty ones, NaN, and numbers too large for the type are usage errors, and so
// are empty paths; leading zeros mean nothing.
void parse_command_line(CLI::App& app, int argc, const char* const* argv);
// The keys of a TOML file for --config, by flag name without dashes.
GivenSettings read_config(const CLI::App& app, const std::string& path);

}  // namespace crest
