// Any bytes as an export of runs (all of it or a clear error), and as a training log.
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "core/error.h"
#include "store/export.h"
#include "store/import_log.h"

struct TempFolder {
  std::string path = "/tmp/crest-fuzz-XXXXXX";
  TempFolder() {
    if (!::mkdtemp(path.data())) std::abort();
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
};

static crest::Store& store() {
  static TempFolder folder;
  static crest::Store store(folder.path + "/runs.db");
  return store;
}

static void check(bool condition) {
  if (!condition) __builtin_trap();
}

static const std::string& as_file(const uint8_t* data, size_t bytes) {
  static const int fd = ::memfd_create("fuzz", MFD_CLOEXEC);
  static const std::string path = "/proc/self/fd/" + std::to_string(fd);
  check(::ftruncate(fd, 0) == 0 && ::pwrite(fd, data, bytes, 0) == ssize_t(bytes));
  return path;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  using namespace crest;
  const std::string& path = as_file(data, bytes);
  try {
    LineReader lines(path, 1 << 20);
    for (int64_t id : import_export(store(), lines).ids) {
      RunRecord record = store().load(id);
      check(record.uid.size() == 16 && record.status != "running");
      store().erase(id);
    }
  } catch (const Error&) {
  }
  check(store().list({.limit = 1}).empty());
  try {
    LineReader lines(path, log_line_limit);
    ImportedLog log = import_log(lines, {.batch = 8, .seq = 1024});
    check(!log.record.log.empty() && log.steps + log.validations == int64_t(log.record.log.size()));
    for (auto& row : log.record.log) check(row.step >= 0 && !std::isinf(row.step_ms));
  } catch (const Error&) {
  }
  return 0;
}
