// The run database that a command reads or writes, and what it records there: --store, --name, --no-store.
#pragma once
#include <string>

#include "store/recorder.h"
#include "store/store.h"

namespace crest {

struct StoreFile {
  std::string file;  // "" = default_store_file()
  double wait = 5;   // seconds, for another process that keeps it locked
  std::string path() const;
  Store open_to_write() const;  // created when it is missing
  Store open_to_read() const;   // an error when it is missing
};

struct RecordOptions : StoreFile {
  std::string name;  // of the record
  bool off = false;
  Recorder open() const { return off ? Recorder() : Recorder(file, {}, {.seconds = wait}); }
};

}  // namespace crest
