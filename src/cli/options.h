// Options that several subcommands share. Every flag is also a TOML key of --config ('-' becomes '_').
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
// --device, --threads, --memory-limit, and those of libraries.
void add_device_options(CLI::App& app, DeviceOptions& options);

// What was given of a table of settings, as text: checked when it is applied. What is declared for an App must stay at
// its address until the App has parsed.
void add_settings(CLI::App& app, const std::vector<Setting>& table, GivenSettings& given);
// The tables of settings, each with a struct that holds its defaults: recipe, training, device.
struct SettingTable {
  const std::vector<Setting>* rows;
  const void* defaults;
};
const std::vector<SettingTable>& setting_tables();
// The flags of a recipe: models, sizes, levers.
void add_recipe_options(CLI::App& app, RecipeOptions& options);

// --json: one document on standard output.
void add_json_option(CLI::App& app, bool& json);
// --config FILE.
void add_config_option(CLI::App& app);

// Parses with --config support: keys of the file first, flags after. Unknown flags and keys are usage errors with the
// nearest right name. Numbers are read strictly: an empty one, one that does not fit its type, and NaN are usage
// errors, and leading zeros mean nothing.
void parse_command_line(CLI::App& app, int argc, const char* const* argv);
// The keys of a TOML file as --config takes them, by flag without dashes.
GivenSettings read_config(const CLI::App& app, const std::string& path);

}  // namespace crest
