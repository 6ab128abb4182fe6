// Finds the model that a path names: a run, a checkpoint, or a Hugging Face folder.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "checkpoint/weights_io.h"
#include "core/error.h"
#include "core/io.h"
#include "core/json.h"
#include "core/text.h"
#include "data/dataset.h"
#include "data/tokenizer.h"
#include "model/config_files.h"

namespace crest {

namespace {

// The tokenizer.json of Llama 3 has 9 MB.
constexpr uint64_t max_tokenizer_bytes = uint64_t(64) << 20;

void read_tokenizer(LoadedModel& model, const std::string& text, const std::string& where) {
  model.tokenizer_path = where;
  try {
    model.tokenizer = std::make_shared<const Tokenizer>(Tokenizer::parse(text, where));
  } catch (const Error& e) {
    model.tokenizer_problem = fmt::format("{}: {}", printable(e.where().empty() ? where : e.where()), e.problem());
  }
}

// transformers has the template in a file of its own, or in its configuration of the tokenizer
// (there also as a list of several, which are left out). read: the text of a file; null: no file.
template <class Read>
std::string find_chat_template(const std::string& folder, Read read) {
  if (auto text = read("chat_template.jinja")) return *text;
  auto config = read("tokenizer_config.json");
  if (!config) return "";
  auto json = parse_json_guarded(*config, {.bytes = 16 << 20}, join_path(folder, "tokenizer_config.json"));
  auto found = json.is_object() ? json.find("chat_template") : json.end();
  return json.is_object() && found != json.end() && found->is_string() ? found->template get<std::string>() : "";
}

LoadedModel from_folder(const std::string& path) {
  std::string folder = is_directory(path) ? path : parent_path(path);
  LoadedModel model;
  auto config = read_model_file(folder);
  if (!config) fail("no such file or folder", printable(path));
  model.config = *config;
  auto read = [&](const char* name) -> std::optional<std::string> {
    std::string file = join_path(folder, name);
    if (!path_exists(file)) return std::nullopt;
    return read_file(file, max_tokenizer_bytes);
  };
  if (auto text = read("tokenizer.json")) read_tokenizer(model, *text, join_path(folder, "tokenizer.json"));
  model.chat_template = find_chat_template(folder, read);
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

LoadedModel open_model(Checkpoint checkpoint) {
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
  model.chat_template = find_chat_template(where, [&](const char* name) -> std::optional<std::string> {
    const std::string* text = checkpoint.file(name);
    return text ? std::optional(*text) : std::nullopt;
  });
  model.step = checkpoint.step();
  model.checkpoint = std::move(checkpoint);
  return model;
}

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
      if (auto found = find_checkpoint(root, report)) return open_model(std::move(*found));
      fail_no_checkpoint(root, path);
    }
    bool named_so = base.rfind("step-", 0) == 0;
    if (named_so || path_exists(join_path(path, "manifest.json"))) {
      Checkpoint checkpoint = Checkpoint::open(path);
      checkpoint.verify();
      return open_model(std::move(checkpoint));
    }
    if (path_exists(join_path(path, "config.toml")) && !path_exists(join_path(path, "config.json")))
      fail("the run has no checkpoint yet", printable(path), "Wait for the first one.");
  }
  if (!is_directory(path)) {
    char start[16];
    size_t n = File::open_read(path).read_some_at(start, sizeof start, 0);
    refuse_pickle(path, {start, n});
  }
  return from_folder(path);
}

void require_same_tokenizer(const Dataset& data, const LoadedModel& model) {
  if (!data.tokenizer() || !model.tokenizer) return;
  std::string difference = data.tokenizer()->difference(*model.tokenizer, "the data", "the model");
  if (!difference.empty())
    fail("the data was not prepared with the model's tokenizer: " + difference, printable(data.info().folder),
         fmt::format("Prepare it again: crest data prepare TEXT --tokenizer {} --out DIR.",
                     printable(model.tokenizer_path)));
}

std::map<std::string, std::string> model_files(const ModelConfig& config, const ModelText& text) {
  using Json = nlohmann::ordered_json;
  const Tokenizer* t = text.tokenizer;
  TextEnds ends;
  // A text without a beginning begins where another one ends, as in GPT-2.
  if (t) ends = {t->begin_of_text() ? t->begin_of_text() : t->end_of_text(), t->end_of_text()};
  std::map<std::string, std::string> files{{"model.toml", to_toml(config)}};
  if (std::string json = to_huggingface_config(config, ends); !json.empty()) {
    files["config.json"] = json;
    if (ends.end)
      files["generation_config.json"] = Json{{"bos_token_id", *ends.begin}, {"eos_token_id", *ends.end}}.dump(2) + "\n";
  }
  if (!t) return files;
  files["tokenizer.json"] = t->to_json();
  // Without the class, transformers would take that of the model's type, which has GPT-2's split
  // rule. Without the names of the inputs, it would give GPT-2 token types, which are embedded.
  Json names = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                {"model_max_length", config.context},
                {"model_input_names", {"input_ids", "attention_mask"}},
                {"clean_up_tokenization_spaces", false}};
  // Chat templates put this one into the text, so it is not the token that ends one.
  if (auto begin = t->begin_of_text()) names["bos_token"] = t->decode_token(*begin);
  if (ends.end) names["eos_token"] = t->decode_token(*ends.end);
  if (!text.chat_template.empty()) names["chat_template"] = text.chat_template;
  files["tokenizer_config.json"] = names.dump(2) + "\n";
  return files;
}

}  // namespace crest
