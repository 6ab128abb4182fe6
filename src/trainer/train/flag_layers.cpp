#include "train/flag_layers.h"

#include <fmt/format.h>

#include <algorithm>

#include "checkpoint/checkpoint.h"
#include "core/error.h"
#include "core/io.h"
#include "core/shell_word.h"
#include "core/system_error.h"
#include "core/text.h"
#include "core/toml.h"
#include "device/device_options.h"
#include "train/run_files.h"
#include "train/training_settings.h"

namespace crest {

namespace {

constexpr size_t most_config_bytes = 4 << 20;

const Setting* row_of_flag(const std::string& flag) {
  for (auto& table : setting_tables())
    for (auto& row : *table.rows)
      if (flag == row.flag()) return &row;
  return nullptr;
}

bool is_derived_mark(const std::string& argument) {
  return flag_of(argument) == derived_flag && argument.size() > derived_flag.size();
}

// The flag behind an element of the list.
std::string marked_flag(const std::string& mark) {
  std::string flag = "--" + mark.substr(derived_flag.size() + 1);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

std::string scalar_text(const toml::node& node, const std::string& where) {
  if (auto* s = node.as_string()) return s->get();
  if (auto* i = node.as_integer()) return std::to_string(i->get());
  if (auto* f = node.as_floating_point()) return fmt::format("{}", f->get());
  if (auto* b = node.as_boolean()) return b->get() ? "true" : "false";
  fail_usage("the value must be a string, a number, true, false, or a list of these", where);
}

bool on_command_line_only(std::string_view flag) {
  return flag == "--config" || flag == "--help" || flag == "--help-all";
}

void check_known(const std::string& flag, std::string_view key, const std::vector<std::string>& known,
                 const std::string& path) {
  if (on_command_line_only(flag))
    fail_usage(fmt::format("'{}' works on the command line only", printable(key)), path, "Remove the line.");
  if (known.empty() || std::find(known.begin(), known.end(), flag) != known.end()) return;
  std::vector<std::string> keys;
  for (auto& k : known) {
    if (on_command_line_only(k)) continue;
    keys.push_back(k.substr(2));
    std::replace(keys.back().begin(), keys.back().end(), '-', '_');
  }
  fail_usage(fmt::format("unknown key '{}'", printable(key)), path, did_you_mean(key, keys));
}

std::string config_path(const std::string& run) {
  std::string path = join_path(run, "config.toml");
  const char* advice = "Give --resume the folder of the run (its --out).";
  if (kind_of(run) != PathKind::folder) fail("no such run", printable(run), advice);
  if (kind_of(join_path(run, "manifest.json")) != PathKind::nothing)
    fail("is a checkpoint, not a run", printable(run),
         fmt::format("Give its run: --resume {}. It continues from the newest valid checkpoint; to train on from this "
                     "one in another run, use --init.",
                     shell_path(parent_path(parent_path(run)))));
  bool there = kind_of(path) != PathKind::nothing;
  if (!there && is_begun(run) && path_exists(path + ".tmp")) fail_not_begun(run);
  if (!there && !list_checkpoints(join_path(run, "checkpoints")).empty())
    fail("the run has lost its config.toml", printable(run), how_to_restore_config(run));
  if (!there) fail("not a run folder: it has no config.toml", printable(run), advice);
  return path;
}

}  // namespace

std::string how_to_restore_config(const std::string& run) {
  auto saved = list_checkpoints(join_path(run, "checkpoints"));
  if (saved.empty()) return "Restore the file from a copy.";
  return fmt::format("Restore it from the last checkpoint: cp {} {}",
                     shell_path(join_path(run, "checkpoints/" + saved[0].name + "/config.toml")),
                     shell_path(join_path(run, "config.toml")));
}

std::string flag_of(const std::string& argument) { return argument.substr(0, argument.find('=')); }

std::optional<std::string> value_in(const FlagLayer& layer, const std::string& flag) {
  std::optional<std::string> value;
  for (auto& a : layer)
    if (flag_of(a) == flag) value = a.substr(flag.size());
  const Setting* row = row_of_flag(flag);
  bool number = row && (row->type == SettingType::whole || row->type == SettingType::number);
  if (!number || !value || value->empty()) return value;
  try {
    return "=" + text_of(parse_setting(*row, value->substr(1)));
  } catch (const Error&) {  // a list of numbers, or the setting's reader reports the error
    return value;
  }
}

std::vector<std::string> values_in(const FlagLayer& layer, const std::string& flag) {
  std::vector<std::string> values;
  for (auto& a : layer)
    if (flag_of(a) == flag && a.size() > flag.size()) values.push_back(a.substr(flag.size() + 1));
  return values;
}

GivenSettings settings_in(const FlagLayer& layer) {
  GivenSettings given;
  for (auto& a : layer)
    if (size_t equals = a.find('='); equals != std::string::npos)
      given[a.substr(2, equals - 2)].push_back(a.substr(equals + 1));
  return given;
}

FlagLayer without(const FlagLayer& lower, const FlagLayer& upper) {
  std::vector<std::string> changed, gone;
  for (auto& a : upper) {
    std::string flag = flag_of(a);
    if (flag == derived_flag) continue;
    gone.push_back(flag);
    if (flag == "--mesh") gone.emplace_back("--ranks");
    if (flag == "--ranks" || flag == "--data-parallel") gone.emplace_back("--mesh");
    if (flag == "--steps") gone.emplace_back("--epochs");
    // 0 passes: the steps count.
    if (flag == "--epochs" && value_in(upper, flag) != "=0")
      gone.emplace_back("--steps"), changed.emplace_back("--steps");
    if (value_in(lower, flag) != value_in(upper, flag)) changed.push_back(flag);
  }
  auto has = [](const std::vector<std::string>& list, const std::string& x) {
    return std::find(list.begin(), list.end(), x) != list.end();
  };
  for (bool more = true; more;) {
    more = false;
    for (auto& a : lower) {
      const Setting* row = is_derived_mark(a) ? row_of_flag(marked_flag(a)) : nullptr;
      if (!row || has(gone, row->flag())) continue;
      for (auto& source : follows(row->name))
        if (has(changed, "--" + source) && !has(gone, row->flag()))
          gone.push_back(row->flag()), changed.push_back(row->flag()), more = true;
    }
  }
  FlagLayer left;
  for (auto& a : lower)
    if (!has(gone, is_derived_mark(a) ? marked_flag(a) : flag_of(a))) left.push_back(a);
  return left;
}

FlagLayer combined(const std::vector<FlagLayer>& layers) {
  FlagLayer all;
  for (auto& layer : layers) {
    all = without(all, layer);
    all.insert(all.end(), layer.begin(), layer.end());
  }
  return all;
}

FlagLayer read_config_file(const std::string& path, const std::vector<std::string>& known) {
  FlagLayer layer;
  toml::table table = parse_toml(read_file(path, most_config_bytes), path);
  for (auto&& [key, node] : table) {
    std::string flag = "--" + std::string(key.str());
    std::replace(flag.begin(), flag.end(), '_', '-');
    std::string where = fmt::format("{}, key {}", path, printable(key.str()));
    check_known(flag, key.str(), known, path);
    if (auto* array = node.as_array()) {
      for (auto& element : *array) layer.push_back(flag + "=" + scalar_text(element, where));
    } else {
      layer.push_back(flag + "=" + scalar_text(node, where));
    }
  }
  return layer;
}

FlagLayer read_run_config(const std::string& run, const std::vector<FlagLayer>& above,
                          const std::vector<std::string>& known, const std::function<void(const std::string&)>& note) {
  const std::string path = config_path(run);
  try {
    parse_toml(read_file(path, most_config_bytes), path);
  } catch (const Error& e) {
    fail(e.problem(), e.where(), e.advice() + " " + how_to_restore_config(run));
  }
  FlagLayer own = read_config_file(path, known);
  std::erase_if(own, [&](const std::string& a) {
    if (flag_of(a) == "--resume") return true;  // this run does not continue it
    if (a.ends_with('=')) return true;          // no value: like leaving it out
    bool dropped = LibraryOptions::is_flag(flag_of(a));
    bool given = std::any_of(above.begin(), above.end(), [&](auto& l) { return value_in(l, flag_of(a)); });
    if (dropped && !given && note)
      note(fmt::format("crest: note: the run used {}; it is ignored now. Give it again if you trust that file.",
                       printable(a)));
    return dropped;
  });
  return own;
}

}  // namespace crest
