// The weights of a model as one list of tensors, whether they lie in one safetensors file or in many.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/safetensors.h"

namespace crest {

class WeightsFolder {
 public:
  // path: a .safetensors file, a model.safetensors.index.json, or a folder that holds model.safetensors or the index
  // (the index wins when both exist, as in transformers). Throws: nothing found, a pickle, a damaged file, an index
  // that names anything but a file beside it, a tensor that is not in the shard that the index names.
  static WeightsFolder open(const std::string& path);

  struct Item {
    TensorSpec spec;
    uint32_t file;   // into files()
    uint32_t index;  // into files()[file].tensors()
  };
  // One file: in file order; an index: sorted by name.
  const std::vector<Item>& tensors() const { return items_; }
  const std::vector<SafetensorsFile>& files() const { return files_; }
  const std::string& path() const { return path_; }
  // Position in tensors(), -1 when absent.
  int64_t find(std::string_view name) const;
  // Reads a tensor whole; `bytes` must be byte_count(spec). Safe from several threads.
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

// The tensor list of an index file: (tensor, shard), sorted by tensor. Shards must be plain names of .safetensors
// files.
std::vector<std::pair<std::string, std::string>> parse_shard_index(std::string_view json, const std::string& where);

}  // namespace crest
