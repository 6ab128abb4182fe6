// The run database options of commands with recorded runs.
#pragma once
#include <string>

#include "store/record_options.h"

namespace CLI {
class App;
}

namespace crest {

// --store FILE.
void add_store_option(CLI::App& app, StoreFile& file);
// --store, --name, --no-store.
void add_record_options(CLI::App& app, RecordOptions& options);
// The folder of the newest recorded training run with a checkpoint, and a line with its name.
// Throws if there is none.
std::string newest_run(const StoreFile& store);

}  // namespace crest
