// Options that several subcommands share. Every flag is also a TOML key of --config ('-' becomes '_').
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "model/recipe.h"

namespace CLI {
class App;
}

namespace crest {

// Which of CUDA's libraries a process takes.
struct LibraryOptions {
  std::string folders;          // --libraries: looked in first, ':' between them
  std::string cublaslt, cudnn;  // --cublaslt, --cudnn: a file, or its folder; taken from there or not at all
  bool operator==(const LibraryOptions&) const = default;
  // A usage error for what does not exist.
  void check() const;
  // Checks, and makes it this process' choice: before a library is opened. DeviceOptions::find() does it, too.
  void use() const;
  // As flag and value, with absolute paths; without what was not given.
  std::vector<std::pair<std::string, std::string>> flags() const;
};
void add_library_options(CLI::App& app, LibraryOptions& options);

struct DeviceOptions {
  std::string device = "auto";
  int threads = 0;
  std::string memory_limit;  // "" = what the device has
  LibraryOptions libraries;
  // The device; what a user should know about it goes to standard error.
  Device find() const;
  int64_t limit(const Device& device) const;  // bytes
};
// The preset of a recipe that names none: micro on a GPU, nano on the CPU.
const char* default_model(const Device& device);
void add_device_options(CLI::App& app, DeviceOptions& options);

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
