#include "cli/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <optional>

#include "comm/rank_options.h"
#include "core/error.h"
#include "core/io.h"
#include "core/shell_word.h"
#include "core/system_error.h"
#include "core/text.h"
#include "core/to_stderr.h"
#include "core/toml.h"
#include "train/run_files.h"
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

const std::vector<SettingTable>& setting_tables() {
  static const Recipe recipe;
  static const TrainOptions training;
  static const RankOptions ranks;
  static const DeviceOptions device;
  static const std::vector<SettingTable> all = {{&recipe_settings(), &recipe},
                                                {&training_settings(), &training},
                                                {&rank_settings(), &ranks},
                                                {&restart_settings(), &ranks},
                                                {&device_settings(), &device}};
  return all;
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

std::string scalar_text(const toml::node& node, const std::string& where) {
  if (auto* s = node.as_string()) return s->get();
  if (auto* i = node.as_integer()) return std::to_string(i->get());
  if (auto* f = node.as_floating_point()) return fmt::format("{}", f->get());
  if (auto* b = node.as_boolean()) return b->get() ? "true" : "false";
  fail_usage("the value must be a string, a number, true, false, or a list of these", where);
}

std::string config_of_run(const std::string& run) {
  std::string path = join_path(run, "config.toml");
  const char* advice = "Give --resume the folder that was --out of the run.";
  if (kind_of(run) != PathKind::folder) fail("no such run", printable(run), advice);
  if (kind_of(join_path(run, "manifest.json")) != PathKind::nothing)
    fail("is a checkpoint, not a run", printable(run),
         fmt::format("Give its run: --resume {}. It continues from the newest valid checkpoint; to train on from this "
                     "one in another run, use --init.",
                     shell_path(parent_path(parent_path(run)))));
  bool there = kind_of(path) != PathKind::nothing;
  if (!there && is_begun(run) && path_exists(path + ".tmp")) fail_not_begun(run);
  if (!there) fail("not a run folder: it has no config.toml", printable(run), advice);
  return path;
}

bool on_command_line_only(std::string_view flag) {
  return flag == "--config" || flag == "--help" || flag == "--help-all";
}

// The keys of a TOML file as command-line arguments.
std::vector<std::string> config_arguments(const CLI::App& app, const std::string& path) {
  std::vector<std::string> args, names = long_names(app);
  toml::table table = parse_toml(read_file(path, 4 << 20), path);
  for (auto&& [key, node] : table) {
    std::string flag = "--" + std::string(key.str());
    std::replace(flag.begin(), flag.end(), '_', '-');
    std::string where = fmt::format("{}, key {}", path, printable(key.str()));
    if (on_command_line_only(flag))
      fail_usage(fmt::format("'{}' works on the command line only", printable(key.str())), path, "Remove the line.");
    if (std::find(names.begin(), names.end(), flag) == names.end()) {
      std::vector<std::string> keys;
      for (auto& n : names) {
        if (on_command_line_only(n)) continue;
        keys.push_back(n.substr(2));
        std::replace(keys.back().begin(), keys.back().end(), '-', '_');
      }
      fail_usage(fmt::format("unknown key '{}'", printable(key.str())), path, did_you_mean(key.str(), keys));
    }
    if (auto* array = node.as_array()) {
      for (auto& element : *array) args.push_back(flag + "=" + scalar_text(element, where));
    } else {
      args.push_back(flag + "=" + scalar_text(node, where));
    }
  }
  return args;
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
  GivenSettings given;
  for (auto& argument : config_arguments(app, path)) {
    size_t equals = argument.find('=');
    given[argument.substr(2, equals - 2)].push_back(argument.substr(equals + 1));
  }
  return given;
}

// An empty path is a variable of a script that was not set: it must not stand for a default.
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

namespace {

std::string flag_of(const std::string& argument) { return argument.substr(0, argument.find('=')); }

// Arguments of one source, as `--flag=value`: a file, or the flags of the command line.
using Layer = std::vector<std::string>;

// The same for flags that have their values in the next argument.
Layer joined(const CLI::App& app, const std::vector<std::string>& args) {
  Layer layer;
  for (size_t i = 0; i < args.size(); ++i) {
    if (!args[i].starts_with("--")) continue;
    const CLI::Option* option = app.get_option_no_throw(flag_of(args[i]));
    bool next = option && option->get_items_expected_max() > 0 && args[i].find('=') == std::string::npos;
    layer.push_back(next && i + 1 < args.size() ? args[i] + "=" + args[i + 1] : args[i]);
    i += next;
  }
  return layer;
}

const Setting* row_of(const std::string& flag) {
  for (auto& table : setting_tables())
    for (auto& row : *table.rows)
      if (flag == row.flag()) return &row;
  return nullptr;
}

// The last value of a flag as "=value", in the form in which equal values are equal ("": a flag
// without one); null: it is not there.
std::optional<std::string> value_in(const Layer& layer, const std::string& flag) {
  std::optional<std::string> value;
  for (auto& a : layer)
    if (flag_of(a) == flag) value = a.substr(flag.size());
  const Setting* row = row_of(flag);
  bool number = row && (row->type == SettingType::whole || row->type == SettingType::number);
  if (!number || !value || value->empty()) return value;
  try {
    return "=" + text_of(parse_setting(*row, value->substr(1)));
  } catch (const Error&) {  // a list of numbers, or an error of whoever reads it
    return value;
  }
}

// `lower` without what `upper` overrides. Of a file that Crest wrote, defaults that were computed
// (--derived) go, too, where `upper` changes what they were computed from: they are computed again.
Layer without(const Layer& lower, const Layer& upper) {
  std::vector<std::string> changed, gone;
  for (auto& a : upper) {
    std::string flag = flag_of(a);
    if (flag == derived_flag) continue;
    gone.push_back(flag);
    if (value_in(lower, flag) != value_in(upper, flag)) changed.push_back(flag);
  }
  auto has = [](const std::vector<std::string>& list, const std::string& x) {
    return std::find(list.begin(), list.end(), x) != list.end();
  };
  auto named = [](const std::string& mark) {
    std::string flag = "--" + mark.substr(derived_flag.size() + 1);
    std::replace(flag.begin(), flag.end(), '_', '-');
    return flag;
  };
  for (bool more = true; more;) {
    more = false;
    for (auto& a : lower) {
      if (flag_of(a) != derived_flag || a.size() == derived_flag.size()) continue;
      const Setting* row = row_of(named(a));
      if (!row || has(gone, row->flag())) continue;
      for (auto& source : follows(row->name))
        if (has(changed, "--" + source) && !has(gone, row->flag()))
          gone.push_back(row->flag()), changed.push_back(row->flag()), more = true;
    }
  }
  Layer left;
  for (auto& a : lower) {
    bool mark = flag_of(a) == derived_flag && a.size() > derived_flag.size();
    if (!has(gone, mark ? named(a) : flag_of(a))) left.push_back(a);
  }
  return left;
}

}  // namespace

void parse_command_line(CLI::App& app, int argc, const char* const* argv) {
  std::vector<std::string> args(argv, argv + argc);
  const Layer flags = joined(app, args);
  // From what counts least to what counts most: the run's own file, --config, flags.
  std::vector<Layer> layers;
  for (auto& a : flags)
    if (flag_of(a) == "--config" && a.find('=') != std::string::npos)
      layers.push_back(config_arguments(app, a.substr(a.find('=') + 1)));
  const CLI::Option* resume = app.get_option_no_throw("--resume");
  std::optional<std::string> run;
  if (resume && resume->get_items_expected_max() > 0) {
    for (auto& layer : layers)
      if (auto named = value_in(layer, "--resume")) run = named->substr(1);
    if (auto named = value_in(flags, "--resume"); named && !named->empty()) run = named->substr(1);
  }
  layers.push_back(flags);
  if (run) {
    Layer own = config_arguments(app, config_of_run(*run));
    std::erase_if(own, [&](const std::string& a) {
      if (flag_of(a) == "--resume") return true;  // it is not what this run continues
      if (a.ends_with('=')) return true;          // as good as left out
      // Whoever made the folder must not choose what this process loads.
      bool dropped = LibraryOptions::is_flag(flag_of(a));
      bool given = std::any_of(layers.begin(), layers.end(), [&](auto& l) { return value_in(l, flag_of(a)); });
      if (dropped && !given)
        to_stderr("crest: note: the run used {}; it is ignored now. Give it again if you trust that file.\n",
                  printable(a));
      return dropped;
    });
    layers.insert(layers.begin(), std::move(own));
  }
  Layer from_file;
  for (size_t i = 0; i + 1 < layers.size(); ++i) {
    from_file = without(from_file, layers[i]);
    from_file.insert(from_file.end(), layers[i].begin(), layers[i].end());
  }
  from_file = without(from_file, flags);
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
    if (extra.starts_with("-") && extra != "-")
      fail_usage(fmt::format("unknown flag '{}'", printable(flag_of(extra))), app.get_name(),
                 did_you_mean(flag_of(extra), long_names(app)) + fmt::format(" See {} --help.", app.get_name()));
    fail_usage(fmt::format("unexpected argument '{}'", printable(extra)), app.get_name(),
               fmt::format("See {} --help.", app.get_name()));
  }
}

}  // namespace crest
