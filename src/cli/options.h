// Options that several subcommands share. Every flag is also a TOML key of --config ('-' becomes '_').
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "model/recipe.h"

namespace CLI {
class App;
}

namespace crest {

struct DeviceOptions {
  std::string device = "auto";
  int threads = 0;
  std::string memory_limit;  // "" = what the device has
  std::string libraries;     // folders, ':' between them
  // The device; what a user should know about it goes to standard error.
  Device find() const;
  // Makes --libraries the first folders to look in; a usage error for one that does not exist. find() does it, too.
  void use_libraries() const;
  int64_t limit(const Device& device) const;  // bytes
};
// The preset of a recipe that names none: micro on a GPU, nano on the CPU.
const char* default_model(const Device& device);
void add_device_options(CLI::App& app, DeviceOptions& options);
// --libraries alone.
void add_libraries_option(CLI::App& app, DeviceOptions& options);

// Flags of the recipe; finish() loads the model and fills the Recipe (not yet resolved for a device).
struct RecipeOptions {
  RecipeOptions() { recipe.recompute = "auto"; }
  std::string model;  // "" = the device's default preset
  Recipe recipe;      // levers are parsed straight into it
  std::vector<std::string> kernels;
  int64_t vocab = 0;  // overrides the model's vocabulary
  double dropout = -1;
  // default_model is taken when --model is absent.
  Recipe finish(const std::string& default_model) const;
};
void add_recipe_options(CLI::App& app, RecipeOptions& options);

// --json: one document on standard output.
void add_json_option(CLI::App& app, bool& json);
// --config FILE.
void add_config_option(CLI::App& app);

// Parses with --config support: keys of the file first, flags after. Unknown flags and keys are usage errors with the
// nearest right name.
void parse_command_line(CLI::App& app, int argc, const char* const* argv);

}  // namespace crest
