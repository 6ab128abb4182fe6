// The run database of a command, and its record there: --store, --name, --no-store.
#pragma once
#include <string>

#include "store/recorder.h"
#include "store/store.h"

namespace crest {

struct StoreFile {
  std::string file;  // "" = default_store_file()
  double wait = 5;   // seconds to wait when another process holds the lock
  std::string path() const;
  Store open_to_write() const;  // created when missing
  Store open_to_read() const;   // an error when missing
};

struct RecordOptions : StoreFile {
  std::string name;  // name of the record
  bool off = false;
  Recorder open() const { return off ? Recorder() : Recorder(file, {}, {.seconds = wait}); }
};

}  // namespace crest
