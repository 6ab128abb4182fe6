// Writes a model as another program loads it.
#pragma once
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/parameter_reader.h"
#include "checkpoint/weights_io.h"
#include "core/dtype.h"
#include "model/config.h"

namespace crest {

struct ExportOptions {
  std::string to;                                             // a name of export_formats()
  std::string out;                                            // folder or file; must not exist. export_path()
  std::string dtype;                                          // a name of the format's types; "": fp32
  bool other_gelu = false;                                    // accept a program with the other form of GELU
  std::function<void(uint64_t done, uint64_t all)> progress;  // in parameters; may throw: no files are left behind
};

// The input of a format: the model, and the destination.
struct ExportJob {
  const LoadedModel& model;
  const ModelConfig& config;  // without adapters: of `weights`, which have them merged
  const ParameterReader& weights;
  DType dtype;
  std::string folder;
  std::function<void(uint64_t parameters)> advance;  // called after each parameter
  std::vector<std::string> files, notes;             // results: names in the folder; a sentence each
};

// How weights are stored: the value of --dtype. i8: blocks with scales (q8_0).
struct ExportType {
  const char* name;
  DType dtype;
};

// A row of the table of formats.
struct ExportFormat {
  const char *name, *title;       // value of --to; the program as people write it
  std::vector<ExportType> types;  // loaded by the program; the first one is the default
  bool adapters;                  // needs a model with adapters; other formats merge them
  // The features of the model missing in the program, or "". The form of GELU is the matter of
  // `activation`.
  std::string (*lacks)(const ModelConfig&);
  std::optional<ActivationKind> activation;  // the program's form of GELU; absent: it has both
  void (*write)(ExportJob&);
  std::vector<const char*> next;  // what to do with OUT, the folder or the file
  const char* file = nullptr;     // the ending of its only file, which has no folder of its own; null: a folder
};
const std::vector<ExportFormat>& export_formats();

// Where a model goes: `out`, or for the format of a single file without it NAME.gguf by the name of
// the model's folder. Throws a usage error for an unknown format, for a format of a folder without
// `out`, and for a format of a file if `out` is a folder.
std::string export_path(const ExportOptions& options, const std::string& model_path);

struct ExportResult {
  std::string format, folder;
  std::vector<std::string> next;
  ModelConfig config;
  std::string stored;       // type of the weights
  uint64_t bytes = 0;       // of all files
  uint64_t parameters = 0;  // in them
  std::vector<std::string> files, notes;
};
// The folder or file appears complete or not at all. One parameter at a time is in memory. Throws
// for models unknown to the program.
ExportResult export_model(const LoadedModel& model, const ExportOptions& options);

// docs/reference/contract.md, export.
nlohmann::ordered_json to_json(const ExportResult& result);

}  // namespace crest
