#include "device/data_sheet.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "backend/cuda/discover.h"
#include "core/embedded.h"
#include "core/error.h"
#include "core/io.h"
#include "core/text.h"
#include "core/toml.h"

namespace crest {

const std::vector<EmbeddedFile>& embedded_devices();  // devices/*.toml, by name

const std::vector<std::string> data_sheet_precisions = {"fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8"};

namespace {

constexpr size_t max_file_bytes = 1 << 16;

class Reader {
 public:
  Reader(const toml::table& table, std::string where) : table_(table), where_(std::move(where)) {}

  // Rejects unknown keys.
  void known(const std::vector<std::string>& keys) const {
    for (auto&& [key, value] : table_) {
      std::string name(key.str());
      if (std::find(keys.begin(), keys.end(), name) == keys.end())
        fail_usage(fmt::format("unknown key '{}' in a device file", printable(name)), place(value),
                   did_you_mean(name, keys) + " Keys: " + join(keys, ", ") + ".");
    }
  }
  std::string text(const char* key) const {
    const toml::node* node = needed(key);
    auto value = node->value<std::string>();
    if (!node->is_string() || value->empty()) fail_usage(fmt::format("'{}' must be a string", key), place(*node), "");
    return *value;
  }
  // Positive and finite.
  double number(const char* key) const { return positive(*needed(key), key); }
  int64_t count(const char* key) const {
    double value = number(key);
    if (value != std::floor(value) || value > 1e18)
      fail_usage(fmt::format("'{}' must be a whole number", key), place(*needed(key)), "");
    return int64_t(value);
  }
  const toml::table& sub(const char* key) const {
    const toml::node* node = needed(key);
    if (!node->is_table()) fail_usage(fmt::format("'{}' must be a table", key), place(*node), "");
    return *node->as_table();
  }
  double positive(const toml::node& node, std::string_view key) const {
    auto value = node.value<double>();
    if (!node.is_number() || !std::isfinite(*value) || *value <= 0)
      fail_usage(fmt::format("'{}' must be a positive number", printable(key)), place(node), "");
    return *value;
  }
  std::string place(const toml::node& node) const {
    return fmt::format("{} (line {}, column {})", printable(where_), node.source().begin.line,
                       node.source().begin.column);
  }

  std::string place(const char* key) const { return place(*needed(key)); }

 private:
  const toml::node* needed(const char* key) const {
    const toml::node* node = table_.get(key);
    if (!node) fail_usage(fmt::format("'{}' is missing", key), printable(where_), "devices/h100.toml is an example.");
    return node;
  }
  const toml::table& table_;
  std::string where_;
};

std::vector<std::pair<std::string, double>> peaks_of(const Reader& reader) {
  const std::vector<std::string>& precisions = data_sheet_precisions;
  std::vector<std::pair<std::string, double>> peaks;
  const toml::table& table = reader.sub("peaks");
  for (auto&& [key, value] : table) {
    std::string name(key.str());
    if (std::find(precisions.begin(), precisions.end(), name) == precisions.end())
      fail_usage(fmt::format("'{}' is not a precision", printable(name)), reader.place(value),
                 did_you_mean(name, precisions) + " Precisions: " + join(precisions, ", ") + ".");
  }
  for (auto& name : precisions)
    if (const toml::node* value = table.get(name)) peaks.emplace_back(name, reader.positive(*value, name));
  // Every device has it, and precisions without units of their own run in it.
  if (!table.contains("fp32"))
    fail_usage("'fp32' is missing", reader.place("peaks"), "Give its rate without tensor cores.");
  return peaks;
}

// "9.0" -> 90.
int capability_number(const std::string& text) {
  auto parts = split(text, '.');
  return std::stoi(parts[0]) * 10 + std::stoi(parts[1]);
}

std::string capability_of(const Reader& reader) {
  std::string text = reader.text("capability");
  bool digits = text.size() >= 3 && text.size() <= 4 && text[text.size() - 2] == '.';
  for (size_t i = 0; digits && i < text.size(); ++i)
    digits = i == text.size() - 2 || (text[i] >= '0' && text[i] <= '9');
  if (!digits)
    fail_usage(fmt::format("'{}' is not a compute capability", printable(text)), reader.place("capability"),
               "Give major and minor version, for example 9.0.");
  return text;
}

// A file may differ from its original sheet, so its device has another name.
std::string name_of_described(const DataSheet& s) {
  return s.title + (s.file.empty() ? " (described)" : fmt::format(" (described by {})", s.file));
}

bool ends_in_words(std::string_view text, std::string_view words) {
  return text.ends_with(words) && (text.size() == words.size() || text[text.size() - words.size() - 1] == ' ');
}

bool is_file(const std::string& text) { return text.size() > 5 && text.ends_with(".toml"); }

}  // namespace

std::optional<double> DataSheet::peak(const std::string& precision) const {
  for (auto& [name, value] : peaks)
    if (name == precision) return value;
  return std::nullopt;
}

double DataSheet::host_link_one_way() const {
  return host_link_bandwidth > 0 ? host_link_bandwidth / 2 : usual_host_link;
}

DataSheet parse_data_sheet(const std::string& text, const std::string& name, const std::string& where) {
  toml::table table = parse_toml(text, where, {max_file_bytes, 8});
  Reader reader(table, where);
  reader.known({"title", "driver_name", "kind", "capability", "multiprocessors", "shared_per_block", "memory_bytes",
                "bandwidth", "l2_bytes", "link", "host_link", "network", "node_gpus", "peaks", "power", "source"});
  DataSheet s;
  s.name = name;
  s.title = reader.text("title"), s.driver_name = reader.text("driver_name");
  s.kind = reader.text("kind"), s.source = reader.text("source");
  if (s.kind == "cuda") s.capability = capability_of(reader);
  s.multiprocessors = reader.count("multiprocessors"), s.shared_per_block = reader.count("shared_per_block");
  s.memory_bytes = reader.count("memory_bytes"), s.l2_bytes = reader.count("l2_bytes");
  s.bandwidth = reader.number("bandwidth");
  Reader link(reader.sub("link"), where);
  link.known({"name", "bandwidth"});
  s.link = link.text("name"), s.link_bandwidth = link.number("bandwidth");
  if (table.contains("host_link")) {
    Reader host(reader.sub("host_link"), where);
    host.known({"name", "bandwidth"});
    s.host_link = host.text("name"), s.host_link_bandwidth = host.number("bandwidth");
  }
  if (table.contains("network")) {
    Reader network(reader.sub("network"), where);
    network.known({"name", "bandwidth"});
    s.network = network.text("name"), s.network_bandwidth = network.number("bandwidth");
  }
  if (table.contains("node_gpus")) s.node_gpus = int(std::min<int64_t>(reader.count("node_gpus"), 1024));
  s.peaks = peaks_of(reader);
  if (table.contains("power")) s.power = reader.number("power");
  return s;
}

const std::vector<DataSheet>& data_sheets() {
  static const std::vector<DataSheet> sheets = [] {
    std::vector<DataSheet> all;
    for (auto& file : embedded_devices()) {
      std::string name(file.name);
      all.push_back(parse_data_sheet(std::string(file.text), name, "devices/" + name + ".toml"));
    }
    return all;
  }();
  return sheets;
}

bool is_data_sheet(const std::string& name_or_file) {
  auto& sheets = data_sheets();
  return is_file(name_or_file) ||
         std::any_of(sheets.begin(), sheets.end(), [&](auto& s) { return s.name == name_or_file; });
}

DataSheet find_data_sheet(const std::string& name_or_file) {
  for (auto& s : data_sheets())
    if (s.name == name_or_file) return s;
  if (is_file(name_or_file)) {
    std::filesystem::path path = name_or_file;
    DataSheet s = parse_data_sheet(read_file(name_or_file, max_file_bytes), path.stem().string(), name_or_file);
    s.file = path.filename().string();
    return s;
  }
  std::vector<std::string> names;
  for (auto& s : data_sheets()) names.push_back(s.name);
  fail_usage(fmt::format("'{}' is not a device", printable(name_or_file)), "device file",
             fmt::format("{} Devices: {}; or FILE.toml.", did_you_mean(name_or_file, names), join(names, ", ")));
}

const DataSheet* data_sheet_of(const std::string& device_name) {
  for (auto& s : data_sheets())
    if (device_name == name_of_described(s) || ends_in_words(device_name, s.driver_name)) return &s;
  return nullptr;
}

std::optional<DataSheet> sheet_of(const Device& device, const std::string& name_or_file) {
  if (device.described) return find_data_sheet(name_or_file);
  const DataSheet* sheet = device.kind == "cuda" ? data_sheet_of(device.name) : nullptr;
  return sheet ? std::optional(*sheet) : std::nullopt;
}

Device described_device(const DataSheet& s) {
  if (s.kind != "cuda")
    throw Error(Exit::no_device, fmt::format("Crest has no kernels for {} ({})", printable(s.title), printable(s.kind)),
                "--device " + printable(s.name),
                "Plan for a CUDA device or the CPU; crest devices --sheets lists them.");
  Device d;
  d.kind = "cuda";
  d.name = name_of_described(s);
  d.sm = capability_number(s.capability);
  d.isa = fmt::format("sm_{}", d.sm);
  d.multiprocessors = int(s.multiprocessors);
  d.shared_per_block = s.shared_per_block;
  d.native_bf16 = s.peak("bf16").has_value();
  d.cublaslt = d.cudnn = d.nvrtc = true;
  d.described = true;
  d.total_memory = s.memory_bytes;
  d.memory = std::max<int64_t>(0, d.total_memory - cuda::reserved_memory);
  return d;
}

nlohmann::ordered_json to_json(const DataSheet& s) {
  using Json = nlohmann::ordered_json;
  Json peaks = Json::object();
  for (auto& [precision, rate] : s.peaks) peaks[precision] = rate;
  return {
      {"name", s.name},
      {"title", s.title},
      {"kind", s.kind},
      {"capability", s.capability.empty() ? Json(nullptr) : Json(s.capability)},
      {"multiprocessors", s.multiprocessors},
      {"shared_per_block", s.shared_per_block},
      {"memory_bytes", s.memory_bytes},
      {"bandwidth", s.bandwidth},
      {"l2_bytes", s.l2_bytes},
      {"link", {{"name", s.link}, {"bandwidth", s.link_bandwidth}}},
      {"host_link",
       s.host_link.empty() ? Json(nullptr) : Json{{"name", s.host_link}, {"bandwidth", s.host_link_bandwidth}}},
      {"network", s.network.empty() ? Json(nullptr) : Json{{"name", s.network}, {"bandwidth", s.network_bandwidth}}},
      {"node_gpus", s.node_gpus},
      {"peaks", peaks},
      {"power_w", s.power > 0 ? Json(s.power) : Json(nullptr)},
      {"source", s.source}};
}

nlohmann::ordered_json to_json(const std::vector<DataSheet>& sheets) {
  auto list = nlohmann::ordered_json::array();
  for (auto& s : sheets) list.push_back(to_json(s));
  return list;
}

}  // namespace crest
