#include "cli/store_options.h"

#include <CLI/CLI.hpp>

namespace crest {

void add_store_option(CLI::App& app, StoreFile& o) {
  app.add_option("--store", o.file, "run database (default: CREST_STORE, else crest.db in the working folder)")
      ->type_name("FILE")
      ->group("Run database");
  app.add_option("--store-wait", o.wait, "seconds to wait while another process holds the run database")
      ->check(CLI::Range(0.0, 86400.0))
      ->group("Run database");
}

void add_record_options(CLI::App& app, RecordOptions& o) {
  add_store_option(app, o);
  app.add_option("--name", o.name, "name of the record")->type_name("NAME")->group("Run database");
  app.add_flag("--no-store", o.off, "record nothing")->group("Run database");
}

}  // namespace crest
