// Converts checkpoints of other programs to a folder for Crest (--init, eval, sample) and
// transformers.
#pragma once
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/weights_map.h"

namespace crest {

// A file that may be a checkpoint of another program.
struct ForeignFile {
  std::string path;
  std::string start;         // its first bytes, at most 1024
  uint64_t bytes = 0;        // of the file
  int64_t heads_wanted = 0;  // for files without the number of heads; 0: not given
};

// An open foreign model: its configuration, and its weights one parameter at a time.
struct ForeignModel {
  ModelConfig config;
  DType stored = DType::f32;
  std::vector<std::string> notes;  // notes for the user, one sentence each
  // Fills a whole parameter of the model, in Crest's shape and orientation.
  std::function<void(const Param&, float*)> read;
};

// A row of the table of formats; the first one to recognize a file opens it. Each is in
// src/trainer/interop/NAME.cpp.
struct ForeignFormat {
  const char* name;
  bool (*recognises)(const ForeignFile&);
  ForeignModel (*open)(const ForeignFile&);  // throws for damaged files and unsupported models
};
const std::vector<ForeignFormat>& foreign_formats();

struct ImportOptions {
  std::string path, out;
  std::string tokenizer;                                      // tokenizer file to copy; empty: none
  int64_t heads = 0;                                          // ForeignFile::heads_wanted
  std::function<void(uint64_t done, uint64_t all)> progress;  // in parameters; may throw: no files are left behind
};
struct ImportResult {
  std::string format, folder;
  ModelConfig config;
  DType stored = DType::f32;
  std::vector<std::string> notes;
  bool transformers = false;  // the folder has a config.json
  bool tokenizer = false;
  uint64_t bytes = 0;  // of model.safetensors
};
// Writes config.json (if transformers has the architecture), model.toml, model.safetensors in fp32,
// and optionally tokenizer.json. The folder appears complete or not at all. Only one tensor at a
// time is in memory.
ImportResult import_model(const ImportOptions& options);

// docs/reference/contract.md, import.
nlohmann::ordered_json to_json(const ImportResult& result);

}  // namespace crest
