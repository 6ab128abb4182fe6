// Checkpoints of other programs -> a folder that Crest (--init, eval, sample) and transformers open.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/weights_map.h"

namespace crest {

// A file that may be somebody's checkpoint.
struct ForeignFile {
  std::string path;
  std::string start;         // its first bytes, at most 1024
  uint64_t bytes = 0;        // of the file
  int64_t heads_wanted = 0;  // for files that do not say how many heads the model has; 0: not given
};

// A foreign model, open: what it is, and its weights one parameter at a time.
struct ForeignModel {
  ModelConfig config;
  DType stored = DType::f32;
  std::vector<std::string> notes;  // what a user should know, a sentence each
  // Fills a parameter of the model: all of it, in Crest's shape and orientation.
  std::function<void(const ParameterShape&, float*)> read;
};

// A row of the table of formats: the first that recognises a file opens it. One file each: src/interop/NAME.cpp.
struct ForeignFormat {
  const char* name;
  bool (*recognises)(const ForeignFile&);
  ForeignModel (*open)(const ForeignFile&);  // throws for damaged files and for what Crest does not compute
};
const std::vector<ForeignFormat>& foreign_formats();

struct ImportOptions {
  std::string path, out;
  std::string tokenizer;                                      // a tokenizer file to go with the model; empty: none
  int64_t heads = 0;                                          // ForeignFile::heads_wanted
  std::function<void(uint64_t done, uint64_t all)> progress;  // parameters; may throw: nothing is left behind
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
// Writes config.json (where transformers has the architecture), model.toml, model.safetensors in fp32, and perhaps
// tokenizer.json. The folder is complete or not there; one tensor at a time is in memory.
ImportResult import_model(const ImportOptions& options);

}  // namespace crest
