#include "store/import_file.h"

#include "core/error.h"
#include "core/text.h"
#include "store/export.h"

namespace crest {

ImportedFile import_file(Store& store, const std::string& path, const LogDescription& description) {
  LineReader lines(path, export_line_limit);
  std::string first;
  if (lines.next(first)) {
    if (first.starts_with("SQLite format 3"))
      fail("is a run database, not an export", printable(path),
           "Read it with --store, or export it: crest runs export --all --store FILE -o runs.jsonl.");
    lines.unread(first);
  }
  if (is_export(first)) return {path, import_export(store, lines), std::nullopt};
  ImportedLog log = import_log(lines, description);
  Store::Added added = store.add_all([&, given = false](RunRecord& r) mutable {
    if (given) return false;
    r = log.record;
    return given = true;
  });
  return {path, added, std::move(log)};
}

Json to_json(const std::vector<ImportedFile>& files) {
  Json list = Json::array();
  for (auto& f : files) {
    Json json = {{"file", f.path}, {"runs", f.added.ids}, {"known", f.added.known}};
    if (f.log)
      json.update({{"steps", f.log->steps},
                   {"validations", f.log->validations},
                   {"lines", f.log->lines},
                   {"skipped_lines", f.log->skipped}});
    list.push_back(std::move(json));
  }
  return list;
}

}  // namespace crest
