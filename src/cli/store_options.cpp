#include "cli/store_options.h"

#include <CLI/CLI.hpp>

namespace crest {

std::string StoreFile::path() const { return file.empty() ? default_store_file() : file; }
Store StoreFile::open_to_write() const { return Store(path(), Store::Mode::write); }
Store StoreFile::open_to_read() const { return Store(path(), Store::Mode::read); }

void add_store_option(CLI::App& app, StoreFile& o) {
  app.add_option("--store", o.file, "run database (default: CREST_STORE, else crest.db in the working folder)")
      ->group("Run database");
}

}  // namespace crest
