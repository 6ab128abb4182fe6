#include "checkpoint/safetensors_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>

#include "core/error.h"
#include "core/json.h"
#include "core/text.h"

namespace crest {

static constexpr size_t max_shards = 1000;
static constexpr std::string_view extension = ".safetensors";

// An index may come from anywhere: it must not reach outside its folder.
static bool is_plain_name(std::string_view name) {
  if (name.size() > 255 || !name.ends_with(extension) || name[0] == '.') return false;
  return std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return c >= 0x20 && c != 0x7f && c != '/' && c != '\\' && c != ':'; });
}

std::vector<std::pair<std::string, std::string>> parse_shard_index(std::string_view json, const std::string& where) {
  nlohmann::json index = parse_json_guarded(json, {.bytes = uint64_t(64) << 20, .depth = 8}, where);
  auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (!index.is_object() || map == index.end() || !map->is_object())
    fail("is not an index of safetensors files: no \"weight_map\"", printable(where));
  std::vector<std::pair<std::string, std::string>> out;
  out.reserve(map->size());
  for (auto& [tensor, shard] : map->items()) {
    if (!shard.is_string())
      fail(fmt::format("the file of tensor '{}' is not a string", printable(tensor)), printable(where));
    auto& file = shard.get_ref<const std::string&>();
    if (!is_plain_name(file))
      fail(fmt::format("tensor '{}' is assigned to '{}', which is not a .safetensors file in the same folder",
                       printable(tensor), printable(file)),
           printable(where), "File names must not contain folders; put all files next to the index.");
    out.emplace_back(tensor, file);
  }
  if (out.empty()) fail("the index names no tensors", printable(where));
  return out;  // nlohmann's objects are sorted by key
}

// "model-00001-of-00002.safetensors"; "": none.
static std::string first_shard(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("model-") && name.ends_with(extension)) names.push_back(name);
  }
  return names.empty() ? "" : *std::min_element(names.begin(), names.end());
}

void WeightsFolder::sort_names() {
  by_name_.resize(items_.size());
  std::iota(by_name_.begin(), by_name_.end(), 0u);
  std::sort(by_name_.begin(), by_name_.end(),
            [&](uint32_t a, uint32_t b) { return items_[a].spec.name < items_[b].spec.name; });
}

void WeightsFolder::add_file(const std::string& path) {
  files_.push_back(SafetensorsFile::open(path));
  auto& tensors = files_.back().tensors();
  for (size_t i = 0; i < tensors.size(); ++i) items_.push_back({tensors[i].spec, 0, uint32_t(i)});
}

void WeightsFolder::add_index(const std::string& path) {
  auto entries = parse_shard_index(read_file(path, uint64_t(64) << 20), path);
  std::map<std::string, uint32_t> shards;
  for (auto& [tensor, shard] : entries) {
    auto [at, is_new] = shards.emplace(shard, uint32_t(files_.size()));
    if (is_new) {
      if (shards.size() > max_shards) fail(fmt::format("names more than {} files", max_shards), printable(path));
      const std::string file = join_path(parent_path(path), shard);
      if (!path_exists(file))
        fail(fmt::format("'{}' is missing, where the index places tensor '{}'", printable(shard), printable(tensor)),
             printable(path), "The folder was copied or downloaded in part: get the missing file.");
      files_.push_back(SafetensorsFile::open(file));
    }
    auto& file = files_[at->second];
    int64_t index = file.find(tensor);
    if (index < 0)
      fail(fmt::format("tensor '{}' is not in '{}', where the index places it", printable(tensor), printable(shard)),
           printable(path), "A file is missing or belongs to another model. Download the folder again.");
    items_.push_back({file.tensors()[size_t(index)].spec, at->second, uint32_t(index)});
  }
}

WeightsFolder WeightsFolder::open(const std::string& path) {
  WeightsFolder out;
  out.path_ = path;
  if (!is_directory(path)) {
    if (!path_exists(path))
      fail("no such file or folder", printable(path), "Give a .safetensors file or a folder that holds one.");
    if (path.ends_with(".index.json"))
      out.add_index(path);
    else
      out.add_file(path);
  } else if (std::string single = join_path(path, "model.safetensors"); path_exists(single)) {
    out.add_file(single);
  } else if (std::string index = join_path(path, "model.safetensors.index.json"); path_exists(index)) {
    out.add_index(index);
  } else {
    for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json", "consolidated.00.pth", "model.pt"})
      if (path_exists(join_path(path, name))) {
        bool index = std::string_view(name).ends_with(".json");
        fail_pickle(join_path(path, index ? "pytorch_model-*.bin" : name));
      }
    if (std::string shard = first_shard(path); !shard.empty())
      fail(fmt::format("'{}' is a part of a model, but model.safetensors.index.json is missing", printable(shard)),
           printable(path), "The folder was copied or downloaded in part: get the index, too.");
    fail("no model.safetensors and no model.safetensors.index.json in this folder", printable(path),
         "Give a folder with model weights, or a .safetensors file.");
  }
  out.sort_names();
  return out;
}

int64_t WeightsFolder::find(std::string_view name) const {
  auto at = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                             [&](uint32_t i, std::string_view n) { return items_[i].spec.name < n; });
  return at != by_name_.end() && items_[*at].spec.name == name ? int64_t(*at) : -1;
}

void WeightsFolder::read(size_t position, void* to, uint64_t bytes) const {
  auto& item = items_.at(position);
  files_[item.file].read(item.index, to, bytes);
}

}  // namespace crest
