// Finds the model at a path: a run, a checkpoint, or a Hugging Face folder.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "checkpoint/adapter.h"
#include "checkpoint/weights_io.h"
#include "core/error.h"
#include "core/io.h"
#include "core/json.h"
#include "core/shell_word.h"
#include "core/text.h"
#include "data/dataset.h"
#include "data/tokenizer.h"
#include "model/config_files.h"
#include "model/weights_map.h"

namespace crest {

namespace {

constexpr uint64_t max_text_file_bytes = uint64_t(16) << 20;

// read: returns the tokenizer of the file.
template <class Read>
void read_tokenizer(LoadedModel& model, const std::string& where, Read read) {
  model.tokenizer_path = where;
  try {
    model.tokenizer = std::make_shared<const Tokenizer>(read());
  } catch (const Error& e) {
    model.tokenizer_problem = fmt::format("{}: {}", printable(e.where().empty() ? where : e.where()), e.problem());
  }
}

using Json = nlohmann::ordered_json;

// Of several templates, transformers uses "default".
std::string template_of(const Json& tokenizer_config) {
  const Json found = tokenizer_config.value("chat_template", Json());
  if (found.is_string()) return found;
  if (!found.is_array()) return "";
  for (auto& item : found)
    if (item.is_object() && item.value("name", Json()) == "default" && item.value("template", Json()).is_string())
      return item["template"];
  return "";
}

// Tokens under a key: a number or a list.
std::vector<uint32_t> tokens_at(const Json& config, const char* key) {
  std::vector<uint32_t> tokens;
  const Json found = config.value(key, Json());
  for (auto& id : found.is_array() ? found : Json::array({found}))
    if (id.is_number_unsigned() && id.get<uint64_t>() <= UINT32_MAX) tokens.push_back(id);
  return tokens;
}

// Commands that need none of them must work without them, so a damaged file is only a problem to
// report. read: the text of a file; null: no file.
template <class Read>
void read_text_settings(LoadedModel& model, const std::string& folder, Read read) {
  auto object = [&](const char* name) -> Json {
    auto text = read(name);
    if (!text) return Json::object();
    std::string where = join_path(folder, name);
    Json json = parse_ordered_json_guarded(*text, {.bytes = 16 << 20, .keys = 10'000}, where);
    if (!json.is_object()) fail("is not a JSON object", printable(where));
    return json;
  };
  auto attempt = [&](auto&& step) {
    try {
      step();
    } catch (const Error& e) {
      if (model.text_problem.empty()) model.text_problem = e.what();
    }
  };
  TextSettings& t = model.text;
  attempt([&] {
    Json json = object("tokenizer_config.json");
    if (!json.empty()) t.tokenizer_config = json.dump();
    t.chat_template = template_of(json);
  });
  attempt([&] {
    if (auto text = read("chat_template.jinja")) t.chat_template = *text;
  });
  attempt([&] {
    Json json = object("generation_config.json");
    if (!json.empty()) t.generation_config = json.dump();
    // As from_pretrained of transformers has it: config.json counts only where the other is absent.
    if (json.empty()) json = object("config.json");
    t.ends = tokens_at(json, "eos_token_id");
    if (auto begin = tokens_at(json, "bos_token_id"); !begin.empty()) t.begin = begin[0];
  });
}

constexpr const char* what_to_give =
    "Give a run (the --out folder of crest train), a folder checkpoints/step-NNNNNN, or a folder with config.json and "
    "model.safetensors.";

// Names that other programs download by, with their repositories on the Hugging Face Hub.
std::string repository_of(const std::string& name) {
  static const std::map<std::string, const char*> known = {
      {"gpt2", "openai-community/gpt2"},
      {"gpt2-medium", "openai-community/gpt2-medium"},
      {"gpt2-large", "openai-community/gpt2-large"},
      {"gpt2-xl", "openai-community/gpt2-xl"},
      {"gpt2-124M", "openai-community/gpt2"},
      {"gpt2-355M", "openai-community/gpt2-medium"},
      {"gpt2-774M", "openai-community/gpt2-large"},
      {"gpt2-1558M", "openai-community/gpt2-xl"},
      {"distilgpt2", "distilbert/distilgpt2"},
  };
  if (auto it = known.find(name); it != known.end()) return it->second;
  const size_t slash = name.find('/');
  auto plain = [](std::string_view part) {
    return !part.empty() && part[0] != '.' && part[0] != '-' &&
           part.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") ==
               std::string_view::npos;
  };
  // OWNER/NAME, and no path of Crest's own from another folder.
  const bool repository = slash != std::string::npos && !name.starts_with("runs/") &&
                          plain(std::string_view(name).substr(0, slash)) &&
                          plain(std::string_view(name).substr(slash + 1)) && !path_exists(name.substr(0, slash));
  return repository ? name : "";
}

[[noreturn]] void fail_no_model(const std::string& given) {
  const std::string repository = repository_of(given);
  if (repository.empty()) fail("no such run or model", printable(given), what_to_give);
  const std::string folder = repository.substr(repository.find('/') + 1);
  fail("no such run or model", printable(given),
       fmt::format("{} Crest downloads nothing. If {} of the Hugging Face Hub is meant (pip install "
                   "huggingface_hub): hf download {} --local-dir {}. Then give {}.",
                   what_to_give, repository, repository, folder, folder));
}

bool is_weights_file(const std::string& path) {
  return path.ends_with(".safetensors") || path.ends_with(".safetensors.index.json");
}

[[noreturn]] void fail_quantized(const std::string& how, const std::string& where) {
  fail(fmt::format("the weights are quantized ({}), which Crest does not read", how), printable(where),
       "Give the model that they were made from, in fp32, bf16 or fp16. Some methods can be undone in transformers: "
       "from_pretrained(FOLDER).dequantize().save_pretrained(OTHER).");
}

// config: of transformers. "": the weights are as its layers hold them.
std::string quantization_of(const Json& config) {
  if (!config.is_object()) return "";
  for (const char* key : {"quantization_config", "compression_config", "quantization"}) {
    const Json found = config.value(key, Json());
    if (!found.is_object() || found.empty()) continue;
    const Json method = found.value("quant_method", Json()), bits = found.value("bits", Json());
    std::string how = fmt::format("{}: {}", key, method.is_string() ? printable(method.get<std::string>(), 60) : "");
    if (!method.is_string()) how = key;
    for (int n : {4, 8})
      if (found.value(fmt::format("load_in_{}bit", n), Json()) == true) return how + fmt::format(", {} bits", n);
    return bits.is_number_unsigned() ? how + fmt::format(", {} bits", bits.dump()) : how;
  }
  return "";
}

// Tensors stored by methods of quantization in place of a matrix, or with it.
bool is_of_quantization(std::string_view tensor) {
  for (const char* end : {".qweight", ".qzeros", ".scales", ".absmax", ".SCB", ".weight_scale", ".weight_scale_inv",
                          ".weight_packed", "_blocks", ".weight_format"})
    if (tensor.ends_with(end)) return true;
  return tensor.find(".quant_state.") != std::string_view::npos;
}

void look_at_weights(const LoadedModel& model, const std::function<void(const std::string&)>& report) {
  const WeightsFolder weights = WeightsFolder::open(model.weights_path);
  std::vector<std::string> wrapped;
  for (auto& item : weights.tensors()) {
    const std::string& name = item.spec.name;
    if (is_of_quantization(name)) fail_quantized("it holds " + printable(name), model.weights_path);
    if (without_wrappers(name) != name) wrapped.push_back(name);
  }
  if (!wrapped.empty() && report)
    report(fmt::format("{}: wrappers of PyTorch's modules in the names of {} are left out: {} is read as {}",
                       printable(model.weights_path), format_number_of(int64_t(wrapped.size()), "tensor"),
                       printable(wrapped[0]), printable(without_wrappers(wrapped[0]))));
}

LoadedModel from_folder(const std::string& path, const std::function<void(const std::string&)>& report) {
  std::string folder = is_directory(path) ? path : parent_path(path);
  LoadedModel model;
  auto config = read_model_file(folder);
  if (!config) fail("no such file or folder", printable(path));
  model.config = *config;
  auto read = [&](const char* name) -> std::optional<std::string> {
    std::string file = join_path(folder, name);
    if (!path_exists(file)) return std::nullopt;
    return read_file(file, max_text_file_bytes);
  };
  if (auto file = Tokenizer::find(folder))
    read_tokenizer(model, file->string(), [&] { return Tokenizer::load(*file); });
  read_text_settings(model, folder, read);
  model.weights_path = is_weights_file(path) ? path : folder;
  if (auto text = read("config.json")) {
    std::string where = join_path(folder, "config.json");
    std::string how = quantization_of(parse_ordered_json_guarded(*text, {.bytes = 16 << 20, .keys = 10'000}, where));
    if (!how.empty()) fail_quantized(how, where);
  }
  look_at_weights(model, report);
  return model;
}

std::vector<std::string> listed_names(const std::string& root) {
  std::vector<std::string> names;
  for (auto& folder : list_checkpoints(root)) names.push_back(folder.name);
  return names;
}

// A run in progress may remove a listed checkpoint before it is read, so another look finds newer
// ones. Checkpoints skipped by the last look are reported.
std::optional<Checkpoint> find_while_saved(const std::string& root,
                                           const std::function<void(const std::string&)>& report) {
  constexpr int most_looks = 100;
  for (int look = 1;; ++look) {
    const std::vector<std::string> before = listed_names(root);
    std::vector<std::string> skipped;
    auto found = find_checkpoint(root, [&](const std::string& text) { skipped.push_back(text); });
    if (!found && look < most_looks && listed_names(root) != before) continue;
    if (report)
      for (auto& text : skipped) report(text);
    return found;
  }
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

// The base of a run with --lora (train/run_state.cpp writes the keys).
static void find_base(LoadedModel& model, const Checkpoint& checkpoint) {
  const std::string where = join_path(checkpoint.path(), "state.json");
  const nlohmann::json state = parse_json_guarded(checkpoint.state(), {}, where);
  for (auto [key, to] : {std::pair{"base", &model.base_path}, {"base_hash", &model.base_hash}}) {
    if (!state.contains(key) || !state[key].is_string())
      fail(fmt::format("key '{}' is missing", key), printable(where), "Restore the checkpoint from a copy.");
    *to = state[key];
  }
}

LoadedModel open_model(Checkpoint checkpoint) {
  LoadedModel model;
  std::string where = checkpoint.path();
  if (const std::string* text = checkpoint.file("model.toml"))
    model.config = parse_model_toml(*text, join_path(where, "model.toml"));
  else if (const std::string* json = checkpoint.file("config.json"))
    model.config = parse_huggingface_config(*json, join_path(where, "config.json"));
  else
    fail("the checkpoint has neither model.toml nor config.json, so its model is unknown", printable(where));
  if (const std::string* text = checkpoint.file("tokenizer.json")) {
    const std::string file = join_path(where, "tokenizer.json");
    TokenizerCompanions files;
    files.folder = where, files.all_tokens = true;
    for (auto [name, to] : {std::pair{"tokenizer_config.json", &files.tokenizer_config},
                            {"generation_config.json", &files.generation_config}})
      if (const std::string* companion = checkpoint.file(name)) *to = *companion;
    read_tokenizer(model, file, [&] { return Tokenizer::parse(*text, file, files); });
  }
  model.weights_path = where;
  if (model.config.lora.rank) find_base(model, checkpoint);
  read_text_settings(model, where, [&](const char* name) -> std::optional<std::string> {
    const std::string* text = checkpoint.file(name);
    return text ? std::optional(*text) : std::nullopt;
  });
  model.step = checkpoint.step();
  model.checkpoint = std::move(checkpoint);
  return model;
}

static LoadedModel open_at(const std::string& given, const std::function<void(const std::string&)>& report,
                           const std::string& base) {
  std::string path = without_slashes(given);
  if (path.empty() || !path_exists(path)) fail_no_model(given);
  if (is_peft_folder(path)) return open_peft(path, base, report);
  std::string below = join_path(path, "checkpoints");
  if (is_directory(path)) {
    std::string base = path.substr(path.rfind('/') + 1);
    if (is_directory(below) || !list_checkpoints(path).empty()) {
      std::string root = is_directory(below) ? below : path;
      if (auto found = find_while_saved(root, report)) return open_model(std::move(*found));
      fail_no_checkpoint(root, path);
    }
    bool named_so = base.starts_with("step-");
    if (named_so || path_exists(join_path(path, "manifest.json"))) {
      Checkpoint checkpoint = Checkpoint::open(path);
      checkpoint.verify();
      return open_model(std::move(checkpoint));
    }
    if (path_exists(join_path(path, "config.toml")) && !path_exists(join_path(path, "config.json")))
      fail("the run has no checkpoint yet", printable(path), "Wait for the first one.");
  }
  if (!is_directory(path)) {
    // A text names a checkpoint where the file system has no links, and in older runs.
    if (auto name = labeled_checkpoint(parent_path(path), path.substr(path.rfind('/') + 1)); !name.empty())
      return open_at(join_path(parent_path(path), name), report, base);
    char start[16];
    size_t n = File::open_read(path).read_some_at(start, sizeof start, 0);
    refuse_pickle(path, {start, n});
    if (!is_weights_file(path))
      fail("is not a model: its name does not end in .safetensors", printable(given), what_to_give);
  }
  return from_folder(path, report);
}

LoadedModel open_model(const std::string& path, const std::function<void(const std::string&)>& report,
                       const std::string& base) {
  LoadedModel model = open_at(path, report, base);
  if (base.empty()) return model;
  if (model.config.lora.rank == 0)
    fail_usage(fmt::format("{} is not an adapter, so it has no base", printable(path)), "--base", "Leave it out.");
  model.base_path = base;
  return model;
}

void require_same_tokenizer(const Dataset& data, const LoadedModel& model) {
  if (!data.tokenizer() || !model.tokenizer) return;
  std::string difference = data.tokenizer()->difference(*model.tokenizer, "the data", "the model");
  if (!difference.empty())
    fail("the data was not prepared with the model's tokenizer: " + difference, printable(data.info().folder),
         fmt::format("Prepare it again: crest data prepare TEXT --tokenizer {} --out DIR.",
                     shell_path(model.tokenizer_path)));
}

void require_embeddings(uint64_t tokens, const ModelConfig& model, const std::string& where) {
  if (tokens <= uint64_t(model.vocab)) return;
  fail(fmt::format("the tokenizer has {} tokens, but the model has {}", tokens, model.vocab), printable(where),
       fmt::format("Give the tokenizer that the model was trained with, or make room for its tokens in transformers: "
                   "model.resize_token_embeddings({}).",
                   tokens));
}

static Json object_of(const std::string& text) { return text.empty() ? Json::object() : Json::parse(text); }

TextEnds text_ends(const ModelConfig& config, const ModelText& text) {
  TextEnds ends;
  const Tokenizer* t = text.tokenizer;
  if (!t) return ends;
  auto known = [&](uint32_t id) { return int64_t(id) < std::max<int64_t>(config.vocab, t->vocab_size()); };
  auto add = [&](uint32_t id) {
    if (known(id) && std::find(ends.end.begin(), ends.end.end(), id) == ends.end.end()) ends.end.push_back(id);
  };
  ends.begin = t->begin_of_text();
  if (!ends.begin && text.before.begin && known(*text.before.begin)) ends.begin = text.before.begin;
  // A text without a beginning begins where another one ends, as in GPT-2.
  if (!ends.begin) ends.begin = t->end_of_text();
  if (t->end_of_text()) add(*t->end_of_text());
  for (uint32_t id : text.before.ends) add(id);
  if (text.turn_end) add(*text.turn_end);
  return ends;
}

TextEnds text_ends(const LoadedModel& model) {
  TextEnds ends = text_ends(model.config, {model.tokenizer.get(), "", model.text});
  if (!model.text.ends.empty()) ends.end = model.text.ends;
  return ends;
}

std::map<std::string, std::string> model_files(const ModelConfig& config, const ModelText& text) {
  const Tokenizer* t = text.tokenizer;
  const TextEnds ends = text_ends(config, text);
  std::map<std::string, std::string> files{{"model.toml", to_toml(config)}};
  // Without config.json, transformers refuses a folder of adapters instead of loading a new model.
  const bool adapters = config.lora.rank > 0;
  if (std::string json = adapters ? "" : to_huggingface_config(config, ends); !json.empty())
    files["config.json"] = json;
  if (!ends.end.empty()) {
    Json generation = object_of(text.before.generation_config);
    if (ends.begin) generation["bos_token_id"] = *ends.begin;
    generation["eos_token_id"] = eos_token_id(ends);
    files["generation_config.json"] = generation.dump(2) + "\n";
  }
  if (!t) return files;
  files["tokenizer.json"] = t->to_json();
  Json names = object_of(text.before.tokenizer_config);
  // They name unwritten files.
  for (const char* key : {"auto_map", "name_or_path", "special_tokens_map_file", "tokenizer_file"}) names.erase(key);
  // Without the class, transformers would take the class of the model's type, with GPT-2's split
  // rule. Without the names of the inputs, it would give GPT-2 token types, which are embedded.
  names["tokenizer_class"] = "PreTrainedTokenizerFast";
  names["model_max_length"] = config.context;
  names["model_input_names"] = {"input_ids", "attention_mask"};
  names["clean_up_tokenization_spaces"] = false;
  // Chat templates use these tokens by name: Crest's templates the tokenizer's, others the model's.
  // A token for the end of a text does not begin a conversation.
  const bool ours = !text.chat_template.empty();
  auto name_token = [&](const char* key, std::optional<uint32_t> id) {
    if (id && (ours || names.value(key, Json()).is_null())) names[key] = t->decode_token(*id);
  };
  name_token("bos_token", t->begin_of_text());
  name_token("eos_token", t->end_of_text());
  const std::string& jinja = ours ? text.chat_template : text.before.chat_template;
  if (!jinja.empty() && jinja != template_of(names)) names["chat_template"] = jinja;
  files["tokenizer_config.json"] = names.dump(2) + "\n";
  return files;
}

}  // namespace crest
