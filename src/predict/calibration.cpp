#include "predict/calibration.h"

#include <fmt/format.h>
#include <sys/stat.h>

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
  for (char c : device.name)  // names the threads of a CPU
    if (std::isalnum(static_cast<unsigned char>(c)))
      name += char(std::tolower(static_cast<unsigned char>(c)));
    else if (!name.empty() && name.back() != '-')
      name += '-';
  while (!name.empty() && name.back() == '-') name.pop_back();
  return join_path(folder, "calibration/" + name + ".json");
}

void save(const Calibration& c, const std::string& file) {
  Json json = {{"crest_calibration", format}, {"date", c.date}, {"crest_version", c.crest_version},
               {"device", c.device},          {"kind", c.kind}, {"threads", c.threads},
               {"environment", c.environment}};
  json.update(c.times.to_json());
  if (c.built_in) json["built_in"] = true;  // with collectives of this machine
  if (!c.collectives.tables().empty()) json["collectives"] = c.collectives.to_json();
  std::error_code ignored;  // write_file_atomic reports what is wrong with the folder
  std::filesystem::path folder = std::filesystem::path(file).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, ignored);
  write_file_atomic(file, json.dump() + "\n");
}

static JsonLimits limits() {
  JsonLimits limits;
  limits.keys = 1000;
  return limits;
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
  c.date = text_at(json, "date", file);
  c.crest_version = text_at(json, "crest_version", file);
  c.device = text_at(json, "device", file);
  c.kind = text_at(json, "kind", file);
  auto threads = json.find("threads");
  if (threads == json.end() || !threads->is_number_integer() || *threads < 1 || *threads > 1'000'000)
    fail("not a calibration: 'threads' is not a number of threads", file, advice);
  c.threads = *threads;
  c.environment = json.value("environment", Json());
  c.built_in = json.contains("built_in") && json["built_in"] == true;
  c.times = TimeModel::from_json(json, file);
  if (auto it = json.find("collectives"); it != json.end()) c.collectives = CollectiveTimes::from_json(*it, file);
  return c;
}

Calibration load_calibration(const std::string& file) { return parse(read_file(file, limits().bytes), file); }

// Devices of one model share a calibration. A CPU's name says too little for that.
static bool is_of(const Calibration& c, const Device& device) {
  if (c.kind != device.kind) return false;
  if (c.kind == "cpu") return c.device == device.name && c.threads == device.threads;
  const DataSheet* sheet = data_sheet_of(c.device);
  return c.device == device.name || (sheet && sheet == data_sheet_of(device.name));
}

static std::optional<Calibration> built_in(const Device& device) {
  const DataSheet* sheet = device.kind == "cuda" ? data_sheet_of(device.name) : nullptr;
  for (auto& file : embedded_calibrations()) {
    if (!sheet || sheet->name != file.name) continue;
    Calibration c = parse(std::string(file.text), fmt::format("calibrations/{}.json", file.name));
    c.built_in = true;
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
  // A device file of one's own does not say what the driver calls the device: the user knows.
  if (device.described && c.kind == device.kind && !data_sheet_of(device.name)) return c;
  fail(fmt::format("the calibration of {} is not one of {}", printable(c.device), printable(device.name)), file,
       "Measure this device: crest calibrate.");
}

}  // namespace crest
