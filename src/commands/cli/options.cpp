#include "cli/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <optional>

#include "cli/foreign_flags.h"
#include "core/error.h"
#include "core/text.h"
#include "core/to_stderr.h"
#include "train/flag_layers.h"
#include "train/training_settings.h"

namespace crest {

namespace {

std::string default_of(const Setting& row, const void* object) {
  if (*row.default_value) return row.default_value;
  std::string text = text_of(row.get(row, object));
  return row.type == SettingType::truth || row.type == SettingType::list ? "" : text;
}

std::string setting_help(const Setting& row, const void* object) {
  std::vector<std::string> notes;
  std::string values = join(choices_of(row), ", ");
  if (row.also_number) values += fmt::format(", or a number of {}", row.unit);
  if (!values.empty() && row.type != SettingType::list) notes.push_back(values);
  std::string default_value = default_of(row, object);
  if (!default_value.empty()) notes.push_back("default: " + default_value);
  return std::string(row.help) + (notes.empty() ? "" : fmt::format(" ({})", join(notes, "; ")));
}

const char* value_name(const Setting& row) {
  return row.type == SettingType::whole ? "N" : row.type == SettingType::number ? "X" : "VALUE";
}

}  // namespace

void add_device_options(CLI::App& app, DeviceOptions& o) {
  for (auto& row : device_settings()) {
    auto set = [&row, &o](const std::string& text) { row.set(row, &o, parse_setting(row, text)); };
    app.add_option_function<std::string>(row.flag(), set, setting_help(row, &o))
        ->group(row.group)
        ->type_name(value_name(row));
  }
  add_library_options(app, o.libraries);
}

void add_library_options(CLI::App& app, LibraryOptions& o) {
  app.add_option("--libraries", o.folders, "DIR[:DIR]: folders to search first for CUDA libraries (see crest devices)")
      ->type_name("DIRS")
      ->group("Device");
  app.add_option("--cublaslt", o.cublaslt, "use this cuBLASLt only: libcublasLt.so.N or its folder")
      ->type_name("PATH")
      ->group("Device");
  app.add_option("--cudnn", o.cudnn, "use this cuDNN only: libcudnn.so.N or its folder")
      ->type_name("PATH")
      ->group("Device");
}

void add_settings(CLI::App& app, const std::vector<Setting>& table, GivenSettings& given) {
  const void* defaults = nullptr;
  for (auto& t : setting_tables())
    if (t.rows == &table) defaults = t.defaults;
  for (auto& row : table) {
    std::string help = setting_help(row, defaults);
    std::vector<std::string>& texts = given[row.name];
    CLI::Option* option = nullptr;
    if (row.type == SettingType::truth)
      option = app.add_flag_function(
          row.flag(), [&texts](int64_t count) { texts.push_back(count > 0 ? "true" : "false"); }, help);
    else
      option = app.add_option(row.flag(), texts, help)->allow_extra_args(false)->type_name(value_name(row));
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)->group(row.group);
  }
}

void add_recipe_options(CLI::App& app, RecipeOptions& o) { add_settings(app, recipe_settings(), o.given); }

void add_json_option(CLI::App& app, bool& json) {
  app.add_flag("--json", json, "print one JSON document on standard output");
}

void add_base_option(CLI::App& app, std::string& base) {
  app.add_option("--base", base, "for an adapter: folder of its base model (default: the folder named in the adapter)")
      ->type_name("DIR");
}

void add_config_option(CLI::App& app) {
  app.add_option("--config", "TOML file with any of these flags as keys (flags override it)")
      ->type_name("FILE")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
}

namespace {

std::vector<std::string> long_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* o : app.get_options())
    for (auto& n : o->get_lnames()) names.push_back("--" + n);
  return names;
}

}  // namespace

// CLI11 reads "010" as eight, "" as 0 and "nan" as a number, and it saturates. So numbers are
// checked and put into plain form first.
static std::string plain_number(const CLI::Option& option, const std::string& flag, const std::string& text) {
  std::string type = option.get_type_name().substr(0, option.get_type_name().find(':'));
  bool real = type == "FLOAT", whole = type == "INT" || type == "UINT";
  if ((!real && !whole) || option.get_items_expected_max() > 1 || option.get_delimiter()) return text;
  Setting row = {.name = flag.c_str() + 2, .group = "", .help = ""};
  row.type = real ? SettingType::number : SettingType::whole;
  if (type == "UINT") row.min = 0;
  return text_of(parse_setting(row, text));
}

GivenSettings read_config(const CLI::App& app, const std::string& path) {
  return settings_in(read_config_file(path, long_names(app)));
}

// An empty path is an unset variable of a script: it must not stand for a default.
static void refuse_empty_paths(const CLI::App& app) {
  static const std::vector<std::string> paths = {"DIR", "FILE", "PATH", "RUN", tokenizer_type};
  for (const CLI::Option* option : app.get_options()) {
    const std::string type = option->get_type_name();
    if (option->get_lnames().empty() || std::find(paths.begin(), paths.end(), type) == paths.end()) continue;
    for (auto& value : option->results())
      if (value.empty())
        fail_usage("the value is empty", option->get_name(), fmt::format("Give a {}, or leave the flag out.", type));
  }
}

// The flags of a command line as a layer.
static FlagLayer joined(const CLI::App& app, const std::vector<std::string>& args) {
  FlagLayer layer;
  for (size_t i = 0; i < args.size(); ++i) {
    if (!args[i].starts_with("--")) continue;
    const CLI::Option* option = app.get_option_no_throw(flag_of(args[i]));
    bool next = option && option->get_items_expected_max() > 0 && args[i].find('=') == std::string::npos;
    layer.push_back(next && i + 1 < args.size() ? args[i] + "=" + args[i + 1] : args[i]);
    i += next;
  }
  return layer;
}

void parse_command_line(CLI::App& app, int argc, const char* const* argv) {
  std::vector<std::string> args(argv, argv + argc);
  const FlagLayer flags = joined(app, args);
  const std::vector<std::string> known = long_names(app);
  // From the least to the most important: the run's own file, --config, flags.
  std::vector<FlagLayer> layers;
  for (auto& a : flags)
    if (flag_of(a) == "--config" && a.find('=') != std::string::npos)
      layers.push_back(read_config_file(a.substr(a.find('=') + 1), known));
  const CLI::Option* resume = app.get_option_no_throw("--resume");
  std::optional<std::string> run;
  if (resume && resume->get_items_expected_max() > 0) {
    for (auto& layer : layers)
      if (auto named = value_in(layer, "--resume")) run = named->substr(1);
    if (auto named = value_in(flags, "--resume"); named && !named->empty()) run = named->substr(1);
  }
  layers.push_back(flags);
  if (run)
    layers.insert(layers.begin(), read_run_config(*run, layers, known, [](auto& line) { to_stderr("{}\n", line); }));
  layers.pop_back();
  FlagLayer from_file = without(combined(layers), flags);
  args.insert(args.begin(), from_file.begin(), from_file.end());
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i].size() <= 2 || !args[i].starts_with("--")) continue;
    const CLI::Option* option = app.get_option_no_throw(flag_of(args[i]));
    size_t equals = args[i].find('=');
    bool takes_value = option && option->get_items_expected_max() > 0;
    if (equals != std::string::npos && option && !takes_value) {  // --deterministic=yes
      Setting row = {.name = "", .group = "", .help = ""};
      row.type = SettingType::truth;
      args[i] = flag_of(args[i]) + "=" + text_of(parse_setting(row, args[i].substr(equals + 1), flag_of(args[i])));
      continue;
    }
    if (equals != std::string::npos && takes_value) {
      args[i] = flag_of(args[i]) + "=" + plain_number(*option, flag_of(args[i]), args[i].substr(equals + 1));
      // CLI11 would use the next argument as the value of "--flag=".
      if (args[i].back() == '=' && args[i].find('=') == args[i].size() - 1) {
        args[i].pop_back();
        args.insert(args.begin() + std::ptrdiff_t(i) + 1, "");
        ++i;
      }
    } else if (equals == std::string::npos && takes_value && i + 1 < args.size()) {
      args[i + 1] = plain_number(*option, args[i], args[i + 1]);
      ++i;
    }
  }
  std::reverse(args.begin(), args.end());
  app.allow_extras();
  app.parse(args);
  refuse_empty_paths(app);
  for (auto& extra : app.remaining()) {
    if (extra.starts_with("-") && extra != "-") {
      const std::string flag = flag_of(extra), foreign = name_here(flag, long_names(app));
      fail_usage(fmt::format("unknown flag '{}'", printable(flag)), app.get_name(),
                 (foreign.empty() ? did_you_mean(flag, long_names(app)) : foreign) +
                     fmt::format(" See {} --help.", app.get_name()));
    }
    fail_usage(fmt::format("unexpected argument '{}'", printable(extra)), app.get_name(),
               fmt::format("See {} --help.", app.get_name()));
  }
}

}  // namespace crest
