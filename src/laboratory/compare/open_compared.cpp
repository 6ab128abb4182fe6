#include "compare/open_compared.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "core/error.h"
#include "core/io.h"
#include "core/json.h"
#include "core/temporary_folder.h"
#include "core/text.h"
#include "profile/profile.h"
#include "store/export.h"
#include "store/import_log.h"
#include "store/noise_floor.h"
#include "traces/gzip.h"
#include "traces/torch_trace.h"

namespace crest {

namespace {

namespace fs = std::filesystem;

bool is_file(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

std::string start_of(const std::string& path) {
  File file = File::open_read(path);
  std::string text(4096, '\0');
  text.resize(file.read_some(text.data(), text.size()));
  return text;
}

// "runs.jsonl#night" -> "runs.jsonl", "night".
struct Named {
  std::string file, run;
};
Named split_name(const std::string& name) {
  size_t hash = name.rfind('#');
  if (is_file(name) || hash == std::string::npos) return {name, ""};
  return {name.substr(0, hash), name.substr(hash + 1)};
}

RunRecord only_run(const Store& store, const Named& named) {
  if (!named.run.empty()) return store.load(store.find(named.run));
  std::vector<RunRecord> runs = store.list();
  if (runs.size() == 1) return store.load(runs[0].id);
  std::vector<std::string> names;
  for (auto& r : runs)
    if (names.size() < 5) names.push_back(printable(r.name.empty() ? r.uid : r.name, 60));
  fail(fmt::format("holds {} runs", runs.size()), printable(named.file),
       fmt::format("Name one: '{}#RUN'. It holds {}{}", printable(named.file), join(names, ", "),
                   runs.size() > names.size() ? ", ..." : "."));
}

// An export is read through a temporary store.
RunRecord from_export(const Named& named) {
  TemporaryFolder folder;
  Store store(folder / "runs.db");
  LineReader lines(named.file, export_line_limit);
  import_export(store, lines);
  return only_run(store, named);
}

RunRecord with_profile(const std::string& path, const Profile& profile) {
  RunRecord r;
  r.name = fs::path(path).filename().string();
  r.kind = "profile", r.status = "done", r.phase = profile.phase, r.imported_from = path;
  r.recipe = profile.recipe, r.device = profile.device, r.environment = profile.environment;
  r.documents["profile"] = to_json(profile);
  return r;
}

RunRecord from_file(const Named& named) {
  if (is_gzip(File::open_read(named.file))) return with_profile(named.file, profile_of(read_torch_trace(named.file)));
  std::string start = start_of(named.file);
  if (start.starts_with("SQLite format 3")) return only_run(Store(named.file, Store::Mode::read), named);
  if (is_export(start.substr(0, start.find('\n')))) return from_export(named);
  if (!named.run.empty())
    fail("is neither an export nor a run database", printable(named.file), "Name the file alone, without '#'.");
  size_t first = start.find_first_not_of(" \t\r\n");
  bool json = first != std::string::npos && (start[first] == '{' || start[first] == '[');
  if (json && start.find("\"traceEvents\"") == std::string::npos && start.find("\"recipe\"") != std::string::npos) {
    JsonLimits limits;
    limits.bytes = uint64_t(1) << 30, limits.values = 50'000'000;
    auto document = parse_ordered_json_guarded(read_file(named.file, limits.bytes), limits, named.file);
    RunRecord r = with_profile(named.file, profile_from_json(document, named.file));
    // For a prediction (crest plan --as-profile): its range and its basis.
    for (const char* key : {"noise_floor", "calibration"})
      if (auto it = document.find(key); it != document.end()) r.result[key] = *it;
    return r;
  }
  if (json && start.find("\"step\"") == std::string::npos)
    return with_profile(named.file, profile_of(read_torch_trace(named.file)));
  LineReader lines(named.file, log_line_limit);
  LogDescription description;
  description.name = fs::path(named.file).filename().string();
  return import_log(lines, description).record;
}

}  // namespace

RunRecord open_compared(const std::string& name, const StoreFile& file) {
  if (Named named = split_name(name); is_file(named.file)) return from_file(named);
  Store store = file.open_to_read();
  return store.load(store.find(name));
}

double known_noise_floor(const RunRecord& a, const RunRecord& b, const StoreFile& file) {
  double floor = -1;
  try {
    Store store = file.open_to_read();
    for (auto* r : {&a, &b})
      if (auto known = r->key.empty() ? std::nullopt : noise_floor_of(store, r->key, r->device.value("name", "")))
        floor = std::max(floor, known->relative);
  } catch (const Error&) {  // both sides are files, so the store may be missing
  }
  return floor;
}

}  // namespace crest
