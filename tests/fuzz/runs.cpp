// Any bytes as an export of runs (all of it or a clear error), or as a training log.
#include <cmath>

#include "fuzz.h"
#include "store/export.h"
#include "store/import_log.h"

using namespace crest;
using namespace crest::fuzz;

static Store& store() {
  static const Folder folder;
  static Store store(folder.path() + "/runs.db");
  return store;
}

static void as_export(std::string_view text) {
  LineReader lines(as_file(text), 1 << 20);
  try {
    for (int64_t id : import_export(store(), lines).ids) {
      RunRecord record = store().load(id);
      check(record.uid.size() == 16 && record.status != "running");
      store().erase(id);
    }
  } catch (const Error&) {
    if (text.find("run") != text.npos) check(store().list({.limit = 1}).empty());
    throw;
  }
}

static void as_log(std::string_view text) {
  LineReader lines(as_file(text), log_line_limit);
  ImportedLog log = import_log(lines, {.batch = 8, .seq = 1024});
  check(!log.record.log.empty() && log.steps + log.validations == int64_t(log.record.log.size()));
  for (auto& row : log.record.log) check(row.step >= 0 && !std::isinf(row.step_ms));
}

static void fuzz_runs(std::string_view text) {
  unsigned way = choose(text, 2);
  or_error([&] { way ? as_log(text) : as_export(text); });
}
CREST_FUZZ_TARGET(fuzz_runs)
