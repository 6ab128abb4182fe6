// Finds the model that a path names: a run, a checkpoint, or a Hugging Face folder.
#include <fmt/format.h>

#include "checkpoint/weights_io.h"
#include "core/error.h"
#include "core/io.h"
#include "core/text.h"
#include "data/tokenizer.h"
#include "model/config_files.h"

namespace crest {

namespace {

// The tokenizer.json of Llama 3 has 9 MB.
constexpr uint64_t max_tokenizer_bytes = uint64_t(64) << 20;

void read_tokenizer(LoadedModel& model, const std::string& text, const std::string& where) {
  try {
    model.tokenizer = std::make_shared<const Tokenizer>(Tokenizer::parse(text, where));
  } catch (const Error& e) {
    model.tokenizer_problem = fmt::format("{}: {}", printable(e.where().empty() ? where : e.where()), e.problem());
  }
}

LoadedModel from_checkpoint(Checkpoint checkpoint) {
  LoadedModel model;
  std::string where = checkpoint.path();
  if (const std::string* text = checkpoint.file("model.toml"))
    model.config = parse_model_toml(*text, join_path(where, "model.toml"));
  else if (const std::string* json = checkpoint.file("config.json"))
    model.config = parse_huggingface_config(*json, join_path(where, "config.json"));
  else
    fail("the checkpoint has neither model.toml nor config.json, so its model is unknown", printable(where));
  if (const std::string* text = checkpoint.file("tokenizer.json"))
    read_tokenizer(model, *text, join_path(where, "tokenizer.json"));
  model.weights_path = where;
  model.step = checkpoint.step();
  model.checkpoint = std::move(checkpoint);
  return model;
}

LoadedModel from_folder(const std::string& path) {
  std::string folder = is_directory(path) ? path : parent_path(path);
  LoadedModel model;
  auto config = read_model_file(folder);
  if (!config) fail("no such file or folder", printable(path));
  model.config = *config;
  std::string tokenizer = join_path(folder, "tokenizer.json");
  if (path_exists(tokenizer)) read_tokenizer(model, read_file(tokenizer, max_tokenizer_bytes), tokenizer);
  bool weights = path.ends_with(".safetensors") || path.ends_with(".safetensors.index.json");
  model.weights_path = weights ? path : folder;
  return model;
}

[[noreturn]] void fail_no_checkpoint(const std::string& root, const std::string& path) {
  if (list_checkpoints(root).empty())
    fail("the run has no checkpoint yet", printable(path),
         "Wait for the first one, or train with a smaller --save-every.");
  fail("the run has no valid checkpoint: every one is damaged or has weights that are not finite", printable(path),
       "The reasons are listed above. Check disk and memory. Train again, or restore the folder from a copy.");
}

std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

LoadedModel open_model(const std::string& given, const std::function<void(const std::string&)>& report) {
  std::string path = without_slashes(given);
  if (path.empty() || !path_exists(path))
    fail("no such run or model", printable(given),
         "Give a run (the --out folder of crest train), a folder checkpoints/step-NNNNNN, or a folder with config.json "
         "and "
         "model.safetensors.");
  std::string below = join_path(path, "checkpoints");
  if (is_directory(path)) {
    std::string base = path.substr(path.rfind('/') + 1);
    if (is_directory(below) || !list_checkpoints(path).empty()) {
      std::string root = is_directory(below) ? below : path;
      if (auto found = find_checkpoint(root, report)) return from_checkpoint(std::move(*found));
      fail_no_checkpoint(root, path);
    }
    bool named_so = base.rfind("step-", 0) == 0;
    if (named_so || path_exists(join_path(path, "manifest.json"))) {
      Checkpoint checkpoint = Checkpoint::open(path);
      checkpoint.verify();
      return from_checkpoint(std::move(checkpoint));
    }
    if (path_exists(join_path(path, "config.toml")) && !path_exists(join_path(path, "config.json")))
      fail("the run has no checkpoint yet", printable(path), "Wait for the first one.");
  }
  return from_folder(path);
}

std::map<std::string, std::string> model_files(const ModelConfig& config, const Tokenizer* tokenizer) {
  std::map<std::string, std::string> files{{"model.toml", to_toml(config)}};
  if (std::string json = to_huggingface_config(config); !json.empty()) files["config.json"] = json;
  if (tokenizer) files["tokenizer.json"] = tokenizer->to_json();
  return files;
}

}  // namespace crest
