// Runs as a file to import on another machine: JSON lines, each small, so the size of a run is not
// limited.
//   {"type": "header", "format": "crest-runs", "version": 1, ...}
//   {"type": "run", ...} then its {"type": "samples" | "log", "rows": [...]} and {"type": "document", "name", "json"}
//   {"type": "end", "runs": N}
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "store/lines.h"
#include "store/store.h"

namespace crest {

// Passes whole lines to `write`.
void write_export(const Store& store, const std::vector<int64_t>& ids,
                  const std::function<void(std::string_view)>& write);

struct ExportedFile {
  std::string file;
  size_t runs = 0;
};
// The file appears complete or not at all.
ExportedFile write_export_file(const Store& store, const std::vector<int64_t>& ids, const std::string& file);
// docs/reference/contract.md, runs export.
Json to_json(const ExportedFile& exported);

// The longest line accepted by import.
inline constexpr uint64_t export_line_limit = uint64_t(512) << 20;
// Whether a first line belongs to an export.
bool is_export(std::string_view first_line);
// Imports all runs of the export, or none when a line is damaged; the error names it.
Store::Added import_export(Store& store, LineReader& lines);

}  // namespace crest
