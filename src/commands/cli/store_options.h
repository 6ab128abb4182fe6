// The run database options of commands with recorded runs.
#pragma once
#include "store/record_options.h"

namespace CLI {
class App;
}

namespace crest {

// --store FILE.
void add_store_option(CLI::App& app, StoreFile& file);
// --store, --name, --no-store.
void add_record_options(CLI::App& app, RecordOptions& options);

}  // namespace crest
