// The weights of a model as one list of tensors, whether they are in one safetensors file or in
// many.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/safetensors.h"

namespace crest {

class WeightsFolder {
 public:
  // path: a .safetensors file, a model.safetensors.index.json, or a folder with model.safetensors
  // or the index (of both, model.safetensors wins, as in transformers). Throws if nothing is found,
  // and for a pickle, a damaged file, an index with files elsewhere, or a tensor missing in its
  // shard.
  static WeightsFolder open(const std::string& path);

  struct Item {
    TensorSpec spec;
    uint32_t file;   // into files()
    uint32_t index;  // into files()[file].tensors()
  };
  // One file: in file order. An index: sorted by name.
  const std::vector<Item>& tensors() const { return items_; }
  const std::vector<SafetensorsFile>& files() const { return files_; }
  const std::string& path() const { return path_; }
  // Position in tensors(); -1 if absent.
  int64_t find(std::string_view name) const;
  // Reads a tensor completely; `bytes` must be byte_count(spec). Thread-safe.
  void read(size_t position, void* to, uint64_t bytes) const;

 private:
  void add_file(const std::string& path);
  void add_index(const std::string& path);
  void sort_names();

  std::string path_;
  std::vector<SafetensorsFile> files_;
  std::vector<Item> items_;
  std::vector<uint32_t> by_name_;
};

// The tensors of an index file: (tensor, shard), sorted by tensor. Shards must be plain names of
// .safetensors files.
std::vector<std::pair<std::string, std::string>> parse_shard_index(std::string_view json, const std::string& where);

}  // namespace crest
