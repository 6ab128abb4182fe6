#include "store/export.h"

#include <fmt/format.h>

#include <set>

#include "core/error.h"
#include "core/io.h"
#include "core/json.h"
#include "core/text.h"
#include "store/record_json.h"

namespace crest {

namespace {

constexpr const char* format_name = "crest-runs";
constexpr int format_version = 2;  // 1: rows of the log have 8 values
constexpr size_t rows_per_line = 4000;
constexpr size_t most_rows = 50'000'000, most_documents = 100;  // of a run
// A profile of a deep unfused model has millions of values; everything else is far smaller.
constexpr JsonLimits line_limits{
    .bytes = export_line_limit, .depth = 64, .values = 20'000'000, .string_bytes = uint64_t(64) << 20, .keys = 20'000};

void write_run(const Store& store, int64_t id, const std::function<void(const Json&)>& line) {
  RunRecord r = store.load(id);
  Json run = {{"type", "run"}};
  run.update(run_to_json(r));
  run.erase("id");
  line(run);
  for (size_t i = 0; i < r.samples.size(); i += rows_per_line)
    line({{"type", "samples"}, {"rows", samples_to_rows(r.samples, i, rows_per_line)}});
  for (size_t i = 0; i < r.log.size(); i += rows_per_line)
    line({{"type", "log"}, {"rows", log_to_rows(r.log, i, rows_per_line)}});
  for (auto& [name, json] : r.documents) line({{"type", "document"}, {"name", name}, {"json", json}});
}

// Reads the lines of an export as records.
class Reader {
 public:
  explicit Reader(LineReader& lines) : lines_(lines) { read_header(); }

  // False after the last one.
  bool next(RunRecord& record) {
    if (type_ == "end") return finish();
    expect(type_ == "run", "a line that belongs to no run");
    record = run_from_json(line_, lines_.where());
    record.imported_from = lines_.path();
    expect(uids_.insert(record.uid).second, "a duplicate run uid");
    while (advance() && type_ != "run" && type_ != "end") add_part(record);
    return true;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) { fail(what, lines_.where(), import_advice); }
  void expect(bool good, const std::string& otherwise) {
    if (!good) refuse(otherwise);
  }

  // Reads a line into line_ and type_; a premature end of the file is an error.
  bool advance() {
    std::string text;
    if (!lines_.next(text)) refuse("is truncated: no line of type 'end'");
    try {
      line_ = parse_ordered_json_guarded(text, line_limits, lines_.where());
    } catch (const Error& e) {
      refuse(e.problem());
    }
    expect(line_.is_object() && line_.contains("type") && line_["type"].is_string(), "not an object with a type");
    type_ = line_["type"].get<std::string>();
    return true;
  }

  void read_header() {
    advance();
    expect(type_ == "header" && line_.value("format", Json()) == format_name, "not the header of an export");
    Json version = line_.value("version", Json());
    expect(version.is_number_integer(), "a header without version");
    if (version > format_version)
      fail(fmt::format("was written by a newer Crest (format {}, this one reads {})", version.dump(), format_version),
           printable(lines_.path()), "Use that version of Crest.");
    advance();
  }

  void add_part(RunRecord& record) {
    if (type_ == "samples" || type_ == "log") {
      expect(line_.contains("rows") && line_["rows"].is_array(), "a line without rows");
      expect(record.samples.size() + record.log.size() <= most_rows, "a run of too many rows");
      if (type_ == "samples")
        append_samples(line_["rows"], record.samples, lines_.where());
      else
        append_log(line_["rows"], record.log, lines_.where());
      return;
    }
    expect(type_ == "document", fmt::format("unknown type '{}'", printable(type_)));
    expect(line_.contains("name") && line_["name"].is_string() && line_.contains("json"), "a document without a name");
    auto name = line_["name"].get<std::string>();
    expect(!name.empty() && name.size() <= 200 && record.documents.size() < most_documents, "too many documents");
    expect(record.documents.emplace(name, std::move(line_["json"])).second, "a duplicate document");
  }

  bool finish() {
    Json runs = line_.value("runs", Json());
    expect(runs.is_number_integer() && runs == uids_.size(), "a number of runs that does not match");
    for (std::string text; lines_.next(text);)
      expect(text.find_first_not_of(" \t") == std::string::npos, "a line after the end");
    return false;
  }

  LineReader& lines_;
  Json line_;
  std::string type_;
  std::set<std::string> uids_;
};

}  // namespace

void write_export(const Store& store, const std::vector<int64_t>& ids,
                  const std::function<void(std::string_view)>& write) {
  auto line = [&](const Json& json) { write(dump_json(json) + "\n"); };
  line({{"type", "header"},
        {"format", format_name},
        {"version", format_version},
        {"crest_version", CREST_VERSION},
        {"written", utc_now()},
        {"runs", ids.size()}});
  for (int64_t id : ids) write_run(store, id, line);
  line({{"type", "end"}, {"runs", ids.size()}});
}

ExportedFile write_export_file(const Store& store, const std::vector<int64_t>& ids, const std::string& file) {
  std::string temporary = file + ".tmp";
  try {
    File out = File::create_new(temporary);
    write_export(store, ids, [&](std::string_view text) { out.write(text); });
    out.sync();
    out.close();
    rename_path(temporary, file);
  } catch (...) {
    remove_tree(temporary);
    throw;
  }
  return {file, ids.size()};
}

Json to_json(const ExportedFile& exported) { return {{"file", exported.file}, {"runs", exported.runs}}; }

bool is_export(std::string_view first_line) {
  // A log may start with anything, so this must not throw; the header is short.
  if (first_line.size() > 4096 || first_line.empty() || first_line[0] != '{') return false;
  Json json = Json::parse(first_line.begin(), first_line.end(), nullptr, false);
  return json.is_object() && json.value("type", Json()) == "header" && json.contains("format");
}

Store::Added import_export(Store& store, LineReader& lines) {
  Reader reader(lines);
  return store.add_all([&](RunRecord& record) { return reader.next(record); });
}

}  // namespace crest
