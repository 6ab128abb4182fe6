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
  if (is_export(first)) return {path, import_export(store, lines)};
  ImportedText text = import_text(lines, description);
  std::vector<RunRecord> records = text.results ? text.results->records : std::vector{text.log->record};
  Store::Added added = store.add_all([&, next = size_t(0)](RunRecord& r) mutable {
    if (next == records.size()) return false;
    r = std::move(records[next++]);
    return true;
  });
  return {path, added, std::move(text)};
}

Json to_json(const std::vector<ImportedFile>& files) {
  Json list = Json::array();
  for (auto& f : files) {
    Json json = {{"file", f.path}, {"runs", f.added.ids}, {"known", f.added.known}};
    if (f.text && f.text->log) {
      const ImportedLog& log = *f.text->log;
      json.update({{"steps", log.steps},
                   {"validations", log.validations},
                   {"lines", log.lines},
                   {"skipped_lines", log.skipped}});
    } else if (f.text) {
      const ImportedResults& r = *f.text->results;
      json.update({{"rows", r.records.size()},
                   {"out_of_memory", r.out_of_memory},
                   {"repeated_lines", r.repeated},
                   {"unreadable_lines", r.unreadable},
                   {"lines", r.lines},
                   {"skipped_lines", r.others}});
    }
    list.push_back(std::move(json));
  }
  return list;
}

}  // namespace crest
