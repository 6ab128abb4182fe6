#include "store/record_options.h"

namespace crest {

std::string StoreFile::path() const { return file.empty() ? default_store_file() : file; }
Store StoreFile::open_to_write() const { return Store(path(), Store::Mode::write, {.seconds = wait}); }
Store StoreFile::open_to_read() const { return Store(path(), Store::Mode::read, {.seconds = wait}); }

}  // namespace crest
