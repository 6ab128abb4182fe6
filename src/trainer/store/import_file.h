// Imports a file of runs: an export, or the log of a training program.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "store/import_log.h"
#include "store/store.h"

namespace crest {

struct ImportedFile {
  std::string path;
  Store::Added added;
  std::optional<ImportedLog> log;  // absent for an export
};
// Throws for any other file; then nothing is imported from it.
ImportedFile import_file(Store& store, const std::string& path, const LogDescription& description);
// docs/reference/contract.md, runs import.
Json to_json(const std::vector<ImportedFile>& files);

}  // namespace crest
