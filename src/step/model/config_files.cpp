#include "model/config_files.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "core/git_lfs.h"
#include "core/text.h"

namespace crest {

static std::string read_text(const std::filesystem::path& path) {
  std::error_code ec;
  if (!std::filesystem::is_regular_file(path, ec))
    fail("is not a regular file", printable(path.string()), "Give a TOML file or a Hugging Face config.json.");
  auto size = std::filesystem::file_size(path, ec);
  if (ec) fail("cannot be read: " + ec.message(), printable(path.string()), "Check the path and its permissions.");
  if (size > max_model_file_bytes)
    fail(fmt::format("is too large for a model description: {}", format_bytes(double(size))), printable(path.string()),
         "Give a TOML file or a Hugging Face config.json (--init loads weights).");
  std::ifstream in(path, std::ios::binary);
  std::string text(size, '\0');
  in.read(text.data(), std::streamsize(size));
  if (!in) fail("cannot be read", printable(path.string()), "Check the path and its permissions.");
  refuse_lfs_pointer(text, path.string());
  if (text.starts_with("\xef\xbb\xbf")) text.erase(0, 3);  // a byte order mark
  return text;
}

std::optional<ModelConfig> read_model_file(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ec;
  fs::path file = path;
  if (path.empty() || !fs::exists(file, ec)) return std::nullopt;
  if (fs::is_directory(file, ec)) {
    file = fs::path(path) / "model.toml";
    if (!fs::exists(file, ec)) file = fs::path(path) / "config.json";
    if (!fs::exists(file, ec) && fs::exists(fs::path(path) / "adapter_config.json", ec))
      fail("is an adapter (LoRA or the like), not a model", printable(path),
           "Give the folder of its base model, and --lora RANK. Options that take an adapter are --init and --run.");
    if (!fs::exists(file, ec))
      fail("the folder has neither model.toml nor config.json", printable(path),
           "Give the folder of a Hugging Face model or a Crest checkpoint, or a TOML file.");
  }
  std::string text = read_text(file), where = printable(file.string());
  // A TOML document cannot start with a brace.
  size_t first = text.find_first_not_of(" \t\r\n");
  bool json = first != std::string::npos && text[first] == '{';
  if (!json) {
    if (file.extension() == ".json")
      fail_usage("is not a JSON object", where, "Give a Hugging Face config.json (it starts with '{') or a TOML file.");
    ModelConfig c = parse_model_toml(text, where);
    if (c.name == ModelConfig().name) c.name = printable(file.stem().string(), 100);
    return c;
  }
  ModelConfig c = parse_huggingface_config(text, where);
  // config.json has no name: use the folder's.
  fs::path folder = fs::absolute(file, ec).lexically_normal().parent_path();
  if (!ec && !folder.filename().empty()) c.name = printable(folder.filename().string(), 100);
  return c;
}

ModelConfig load_model_config(const std::string& name_or_path) {
  if (const ModelConfig* preset = find_preset(name_or_path)) return *preset;
  if (auto c = read_model_file(name_or_path)) return *c;
  std::string hint = did_you_mean(name_or_path, preset_names());
  fail_usage("'" + printable(name_or_path) + "' is neither a preset nor a file", "--model",
             (hint.empty() ? "" : hint + " ") + "Presets: " + join(preset_names(), ", ") +
                 " (also gpt2, gpt2-medium, gpt2-large, gpt2-xl). Or give a TOML file, or a folder with a Hugging Face "
                 "config.json.");
}

}  // namespace crest
