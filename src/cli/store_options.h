// --store FILE: the run database of commands that record or read runs.
#pragma once
#include <string>

#include "store/store.h"

namespace CLI {
class App;
}

namespace crest {

struct StoreFile {
  std::string file;  // "" = default_store_file()
  std::string path() const;
  Store open_to_write() const;  // created when it is missing
  Store open_to_read() const;   // an error when it is missing
};
void add_store_option(CLI::App& app, StoreFile& file);

}  // namespace crest
