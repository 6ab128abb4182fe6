#include "core/output_file.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "core/error.h"
#include "core/io.h"
#include "core/text.h"

namespace crest {

namespace fs = std::filesystem;

namespace {

// The files of a run's folder. Other files there are the user's.
constexpr std::string_view names_of_run[] = {"checkpoints", "config.toml",       "environment.json",
                                             "log.jsonl",   "log.jsonl.damaged", "loss.svg",
                                             "model.toml",  "samples.txt",       "tensorboard"};

bool has(const fs::path& folder, const char* name) { return path_exists((folder / name).string()); }

// The kind of folder above `file`; "": none.
const char* owner(const fs::path& folder, const fs::path& file) {
  const fs::path inside = file.lexically_relative(folder);
  if (has(folder, "manifest.json") && has(folder, "state.json") && has(folder, "model.safetensors"))
    return "a checkpoint";
  const std::string first = inside.begin()->string();
  if (is_name_in_run(first) && has(folder, "config.toml") && (has(folder, "log.jsonl") || has(folder, "checkpoints")))
    return "a run";
  const std::string ending = inside.extension().string();
  const bool tokens = ending == ".bin" || ending == ".mask" || first == "meta.json" || first == "tokenizer.json" ||
                      first == "tokenizer_config.json";
  if (tokens && has(folder, "meta.json") && has(folder, "tokenizer.json")) return "prepared data";
  return "";
}

}  // namespace

bool is_name_in_run(std::string_view name) {
  return std::find(std::begin(names_of_run), std::end(names_of_run), name) != std::end(names_of_run);
}

void require_no_run_file(const std::string& file) {
  if (!path_exists(file)) return;
  std::error_code error;
  const fs::path path = fs::canonical(file, error);
  if (error) return;  // a link to nothing
  for (fs::path folder = path.parent_path(); folder.has_relative_path(); folder = folder.parent_path())
    if (std::string_view of = owner(folder, path); !of.empty())
      fail("this would overwrite a file of " + std::string(of), printable(file, 1000), "Give another name.");
}

void require_place_for(const std::string& file, const char* setting) {
  const std::string folder = parent_path(file);
  if (!is_directory(folder))
    fail("no such folder: " + printable(folder), setting, "Create it, or choose another file.");
  std::error_code error;
  if (fs::exists(file, error) && !fs::is_regular_file(file, error))
    fail(printable(file) + (is_directory(file) ? " is a folder, not a file" : " is a device or a pipe, not a file"),
         setting, "Name a file.");
  require_no_run_file(file);
  const std::string trial = file + ".tmp";  // as write_file_atomic does
  File::create_new(trial).close();
  remove_tree(trial);
}

}  // namespace crest
