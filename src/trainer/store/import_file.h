// Imports a file of runs: an export, the log of a training program, or a table of results.
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
  std::optional<ImportedText> text = std::nullopt;  // absent for an export
};
// Throws for any other file; then nothing is imported from it.
ImportedFile import_file(Store& store, const std::string& path, const LogDescription& description);
// docs/reference/contract.md, runs import.
Json to_json(const std::vector<ImportedFile>& files);

}  // namespace crest
