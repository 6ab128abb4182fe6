// Checkpoints that survive kills, full disks, power loss and bit rot. One is a folder
// ROOT/step-NNNNNN with
//   model.safetensors      canonical weights (with a config.json next to it, transformers loads the folder)
//   optimizer.safetensors  moments and other states (masters are the weights above); absent when there are none
//   state.json             {"step": N, "state": what the caller gave}, with "finite_weights": false where they are not
//   whatever small files the caller adds (config.json, tokenizer.json, config.toml)
//   manifest.json          size and SHA-256 of every file, a hash per tensor; written last
// docs/reference/checkpoints.md explains the protocol and its reasons.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint_manifest.h"
#include "checkpoint/safetensors.h"
#include "core/folder.h"

namespace crest {

struct CheckpointContents {
  int64_t step = 0;                          // completed optimizer steps, >= 0
  std::vector<TensorSource> weights;         // logical, canonical tensors; any order
  std::vector<TensorSource> optimizer;       // may be empty
  std::shared_ptr<const void> memory;        // keeps the tensors' data alive; empty if something else does
  bool finite_weights = true;                // as far as the caller knows
  std::string state = "{}";                  // a JSON value: loader position, scalars, seeds, ...
  std::map<std::string, std::string> files;  // name -> bytes of small files
};

struct SaveResult {
  std::string path;                   // the published folder
  uint64_t bytes = 0;                 // of all files
  bool already_there = false;         // a valid checkpoint with the same content existed; nothing was written
  std::vector<std::string> warnings;  // the checkpoint is safe, but updating `latest` or removing old ones failed
};

// Creates ROOT if its parent folder exists, writes ROOT/step-NNNNNN, and keeps the newest `keep`
// checkpoints (0 = all), always including the new one, and ROOT/best besides. Throws if the
// checkpoint is not safely on disk (full disk, I/O error, ...); existing checkpoints are then
// untouched. Only one process at a time may save below a root; a second one gets an error. If ROOT
// or the folder above it is a symbolic link, no earlier file is deleted: `keep` has no effect.
SaveResult save_checkpoint(const CheckpointContents& contents, const std::string& root, int keep);

class Checkpoint {
 public:
  // Opens one folder. Verifies manifest, sizes, headers and small files now, and tensors when they
  // are loaded, or all of them by verify(). Throws an error with the name of the damaged file.
  static Checkpoint open(const std::string& folder);
  // Reads every tensor and compares its hash, in parallel. Throws an error with the name of the
  // first damaged tensor.
  void verify() const;

  const std::string& path() const { return path_; }
  int64_t step() const { return manifest_.step; }
  const std::string& state() const { return state_; }
  bool finite_weights() const { return finite_weights_; }
  // The bytes of a small file; nullptr if the checkpoint does not have it.
  const std::string* file(const std::string& name) const;
  const std::map<std::string, std::string>& files() const { return files_; }
  std::vector<TensorSpec> weight_specs() const { return specs("model.safetensors"); }
  // SHA-256 of a weight, by its name.
  const Digest& weight_digest(const std::string& tensor) const {
    return manifest_.files.at("model.safetensors").tensors.at(tensor);
  }

  // Throws if the tensors are not exactly the expected ones (names, shapes, dtypes; any order),
  // naming the first difference. Call it before allocating.
  void require_weights(const std::vector<TensorSpec>& expected) const { require("model.safetensors", expected); }
  // Does the same check, then reads every tensor and compares its hash. If one throws, the contents
  // of the targets are undefined.
  void load_weights(const std::vector<TensorTarget>& targets) const { load("model.safetensors", targets); }
  void load_optimizer(const std::vector<TensorTarget>& targets) const { load("optimizer.safetensors", targets); }

 private:
  std::vector<TensorSpec> specs(const std::string& name) const;
  void require(const std::string& name, const std::vector<TensorSpec>& expected) const;
  void load(const std::string& name, const std::vector<TensorTarget>& targets) const;

  std::string path_, state_;
  bool finite_weights_ = true;
  Manifest manifest_;
  std::map<std::string, SafetensorsFile> tensors_;
  std::map<std::string, std::string> files_;
};

// The newest checkpoint below ROOT with every byte verified and finite weights; nullopt if there is
// none (or no such folder). `report` gets a line for each skipped one: the reason, and the one used
// instead. The link `latest` is for people only.
std::optional<Checkpoint> find_checkpoint(const std::string& root,
                                          const std::function<void(const std::string&)>& report = {});

// The checkpoint folders below ROOT by name, newest first, unverified. A folder left by a killed
// replacement (.replaced-step-N) counts as step N, after step-N itself.
struct CheckpointFolder {
  int64_t step;
  bool replaced;
  std::string name;
};
std::vector<CheckpointFolder> list_checkpoints(const std::string& root);
// Names in ROOT for the newest checkpoint, and for the one that `keep` never removes.
inline constexpr const char* latest_label = "latest";
inline constexpr const char* best_label = "best";
// Points ROOT/LABEL at a checkpoint by a relative link, or where the file system has no
// links by a text with its name.
void label_checkpoint(const Folder& root, const std::string& label, const std::string& name);
// The checkpoint that such a link or text names; "": neither.
std::string labeled_checkpoint(const std::string& root, const std::string& label);
// The step in the name of such a folder; nullopt: another name.
std::optional<int64_t> step_in_name(std::string_view name);
// "step-000120"
std::string checkpoint_name(int64_t step);

}  // namespace crest
