// The head of a record of the run store, and the flags that say where it goes; for every command that records.
#pragma once
#include <string>

#include "backend/backend.h"
#include "cli/store_options.h"
#include "measure/conditions.h"
#include "measure/profile.h"
#include "model/recipe.h"
#include "store/recorder.h"

namespace CLI {
class App;
}

namespace crest {

struct RecordOptions : StoreFile {
  std::string name;  // of the record
  bool off = false;
  Recorder open() const { return off ? Recorder() : Recorder(file); }
};
// --store, --name, --no-store.
void add_record_options(CLI::App& app, RecordOptions& options);

// Of a recorded profile, as its own line: median step time, rates, memory.
Json profile_result(const Profile& profile, const std::string& device);

// kind, phase ("" for training), name (the store makes one when empty), command, recipe, device, key, environment.
RunRecord new_record(const std::string& kind, const std::string& name, const Recipe& recipe, const Device& device,
                     const std::string& phase, const Conditions& before);

// RunRecord::key. The recipe must be resolved. variant: what else makes measurements incomparable.
std::string run_key(const Recipe& recipe, const Device& device, const std::string& phase,
                    const std::string& variant = "");

// This process' command line, quoted for a shell.
std::string command_line();

}  // namespace crest
