#include "predict/calibration.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/cache_folder.h"
#include "core/embedded.h"
#include "core/error.h"
#include "core/io.h"
#include "core/json.h"
#include "core/text.h"
#include "core/to_stderr.h"
#include "device/data_sheet.h"

namespace crest {

const std::vector<EmbeddedFile>& embedded_calibrations();  // calibrations/*.json, by name in devices/

using Json = nlohmann::ordered_json;

namespace {

constexpr int format = 1;
const char* advice = "Make one: crest calibrate.";

std::string text_at(const Json& json, const char* key, const std::string& file) {
  auto it = json.find(key);
  if (it == json.end() || !it->is_string())
    fail(fmt::format("not a calibration: '{}' is not a text", key), file, advice);
  return *it;
}

}  // namespace

std::string calibration_file(const Device& device) {
  std::string folder = cache_folder();
  if (folder.empty()) return "";
  std::string name;
  for (char c : device.name)  // a CPU's name has its threads
    if (std::isalnum(static_cast<unsigned char>(c)))
      name += char(std::tolower(static_cast<unsigned char>(c)));
    else if (!name.empty() && name.back() != '-')
      name += '-';
  while (!name.empty() && name.back() == '-') name.pop_back();
  return join_path(folder, "calibration/" + name + ".json");
}

void Calibration::add(const Profile& step) {
  if (sources.empty()) fail_internal("a measured step has no source");
  times.add(step), ++sources.back().steps;
}

bool Calibration::built_in() const {
  return std::any_of(sources.begin(), sources.end(), [](auto& s) { return s.built_in; });
}

std::vector<std::string> sources_text(const Calibration& c) {
  std::vector<std::pair<std::string, size_t>> by_place;
  for (auto& s : c.sources) {
    std::string place =
        fmt::format("on {}{}, {}", s.built_in ? "another " : "", printable(s.device), printable(s.date.substr(0, 10)));
    auto it = std::find_if(by_place.begin(), by_place.end(), [&](auto& known) { return known.first == place; });
    if (it == by_place.end()) it = by_place.insert(it, {place, 0});
    it->second += s.steps;
  }
  std::vector<std::string> list;
  for (auto& [place, steps] : by_place)
    list.push_back(list.empty() ? fmt::format("{} measured {}", format_number_of(int64_t(steps), "step"), place)
                                : fmt::format("{} {}", steps, place));
  return list;
}

std::string dates_text(const Calibration& c) {
  std::vector<std::string> days;
  for (auto& s : c.sources)
    if (std::string day = printable(s.date.substr(0, 10)); std::find(days.begin(), days.end(), day) == days.end())
      days.push_back(day);
  return join(days, " and ");
}

// The equal members of both objects.
static Json common(const Json& a, const Json& b) {
  Json both = Json::object();
  if (!a.is_object() || !b.is_object()) return both;
  for (auto& [key, value] : a.items()) {
    auto it = b.find(key);
    if (it == b.end()) continue;
    if (*it == value)
      both[key] = value;
    else if (Json inside = common(value, *it); !inside.empty())
      both[key] = inside;
  }
  return both;
}

Json common_environment(const Calibration& c) {
  Json all = c.sources.empty() ? Json() : c.sources.front().environment;
  for (auto& s : c.sources) all = common(all, s.environment);
  return all.is_object() ? all : Json::object();
}

Json sources_json(const Calibration& c) {
  Json list = Json::array();
  for (auto& s : c.sources)
    list.push_back({{"date", s.date}, {"device", s.device}, {"built_in", s.built_in}, {"steps", s.steps}});
  return list;
}

// The newest source is also at the top level, its place in older files.
void save(const Calibration& c, const std::string& file) {
  if (c.sources.empty()) fail_internal("a calibration without a source", file);
  const CalibrationSource& newest = c.sources.back();
  Json json = {{"crest_calibration", format},      {"date", newest.date}, {"crest_version", newest.crest_version},
               {"device", newest.device},          {"kind", c.kind},      {"threads", c.threads},
               {"environment", newest.environment}};
  Json sources = Json::array();
  for (auto& s : c.sources) {
    sources.push_back({{"date", s.date},
                       {"crest_version", s.crest_version},
                       {"device", s.device},
                       {"steps", s.steps},
                       {"environment", s.environment}});
    if (s.built_in) sources.back()["built_in"] = true;
  }
  json["sources"] = sources;
  json.update(c.times.to_json());
  if (!c.collectives.tables().empty()) json["collectives"] = c.collectives.to_json();
  std::error_code ignored;  // write_file_atomic reports a problem with the folder
  std::filesystem::path folder = std::filesystem::path(file).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, ignored);
  write_file_atomic(file, json.dump() + "\n");
}

static JsonLimits limits() {
  JsonLimits limits;
  limits.keys = 1000;
  return limits;
}

static CalibrationSource source_of(const Json& json, size_t steps, const std::string& file) {
  auto built_in = json.find("built_in");
  return {text_at(json, "date", file),
          text_at(json, "crest_version", file),
          text_at(json, "device", file),
          built_in != json.end() && *built_in == true,
          steps,
          json.value("environment", Json())};
}

// Old files have one source, at the top level.
static std::vector<CalibrationSource> sources_of(const Json& json, size_t steps, const std::string& file) {
  auto it = json.find("sources");
  if (it == json.end()) return {source_of(json, steps, file)};
  if (!it->is_array()) fail("not a calibration: 'sources' is not a list", file, advice);
  std::vector<CalibrationSource> list;
  size_t counted = 0;
  for (auto& s : *it) {
    auto own = s.is_object() ? s.find("steps") : s.end();
    if (!s.is_object() || own == s.end() || !own->is_number_unsigned() || *own > steps)
      fail("not a calibration: a source does not say how many of the steps it has", file, advice);
    list.push_back(source_of(s, *own, file));
    counted += list.back().steps;
  }
  if (counted != steps)
    fail(fmt::format("not a calibration: its sources have {} steps, and it has {}", counted, steps), file, advice);
  return list;
}

static Calibration parse(const std::string& text, const std::string& file) {
  Json json = parse_ordered_json_guarded(text, limits(), file);
  if (!json.is_object() || !json.contains("crest_calibration")) fail("not a calibration", file, advice);
  if (json["crest_calibration"] != format)
    fail(fmt::format("a calibration of format {}; this version of crest reads format {}",
                     printable(json["crest_calibration"].dump(), 20), format),
         file, advice);
  Calibration c;
  c.file = file;
  c.kind = text_at(json, "kind", file);
  auto threads = json.find("threads");
  if (threads == json.end() || !threads->is_number_integer() || *threads < 1 || *threads > 1'000'000)
    fail("not a calibration: 'threads' is not a number of threads", file, advice);
  c.threads = *threads;
  c.times = TimeModel::from_json(json, file);
  c.sources = sources_of(json, c.times.steps(), file);
  if (auto it = json.find("collectives"); it != json.end()) c.collectives = CollectiveTimes::from_json(*it, file);
  return c;
}

Calibration load_calibration(const std::string& file) { return parse(read_file(file, limits().bytes), file); }

// Devices of the same model share a calibration. A CPU's name says too little for that.
static bool is_of(const Calibration& c, const Device& device) {
  if (c.kind != device.kind) return false;
  if (c.kind == "cpu") return c.device() == device.name && c.threads == device.threads;
  const DataSheet* sheet = data_sheet_of(c.device());
  return c.device() == device.name || (sheet && sheet == data_sheet_of(device.name));
}

static std::optional<Calibration> built_in(const Device& device) {
  const DataSheet* sheet = device.kind == "cuda" ? data_sheet_of(device.name) : nullptr;
  for (auto& file : embedded_calibrations()) {
    if (!sheet || sheet->name != file.name) continue;
    Calibration c = parse(std::string(file.text), fmt::format("calibrations/{}.json", file.name));
    for (auto& s : c.sources) s.built_in = true;
    return c;
  }
  return std::nullopt;
}

std::optional<Calibration> find_calibration(const std::string& given, const Device& device) {
  std::string file = given.empty() ? calibration_file(device) : given;
  struct stat info;
  if (given.empty() && (file.empty() || stat(file.c_str(), &info) != 0)) return built_in(device);
  Calibration c;
  try {
    c = load_calibration(file);
  } catch (const Error& e) {
    if (!given.empty()) throw;
    to_stderr("crest: warning: {} is ignored: {} {}\n", printable(file), e.problem(), e.advice());
    return built_in(device);
  }
  if (is_of(c, device)) return c;
  if (given.empty()) return built_in(device);
  // A device file of the user's own has no driver name for the device. Trust the user.
  if (device.described && c.kind == device.kind && !data_sheet_of(device.name)) return c;
  fail(fmt::format("the calibration of {} is not one of {}", printable(c.device()), printable(device.name)), file,
       "Measure this device: crest calibrate.");
}

}  // namespace crest
