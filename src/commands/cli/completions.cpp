// crest completions: flags and help come from the commands' own options. Only sets of values are
// listed here.
#include "cli/completions.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/options.h"
#include "core/error.h"
#include "core/text.h"
#include "data/chat.h"
#include "data/split_rule.h"
#include "device/data_sheet.h"
#include "model/config.h"
#include "passes/pass.h"
#include "terminal/print_json.h"
#include "train/training_settings.h"

namespace crest {

namespace {

using Values = std::vector<std::string>;

// Values of a flag, or of the first positional argument (by its declared name). Rows for one
// command come before the rows for all.
struct ValueSet {
  const char *command, *option;
  Values values;
};
const std::vector<ValueSet>& value_sets() {
  static const std::vector<ValueSet> table = {
      {"data", "ACTION", {"prepare", "info", "get-gpt2-tokenizer"}},
      {"runs", "ACTION", {"list", "show", "export", "import", "delete"}},
      {"lab", "ACTION", {"list", "show", "run"}},
      {"comm",
       "COLLECTIVE",
       {"all-reduce", "all-gather", "reduce-scatter", "broadcast", "all-to-all", "send-receive", "all"}},
      {"completions", "SHELL", {"bash", "zsh", "fish"}},
      {"bench", "--phase", {"forward", "forward-saved", "backward", "step", "decode", "all"}},
      {"export", "--to", {"llm.c", "nanogpt"}},
      {"export", "--dtype", {"fp32", "bf16"}},
      {"compare", "--by", {"group", "class", "layer"}},
      {"flops", "--recompute", {"none", "selective", "full"}},
      {"flops", "--precision", {"fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8"}},
      {"plan", "--for", {"train", "step", "forward-saved", "eval", "sample"}},
      {"runs", "--kind", {"bench", "profile", "train", "compare", "experiment", "log"}},
      {"comm", "--dtype", {"fp32", "bf16", "fp16", "fp64"}},
      {"", "--phase", {"forward", "forward-saved", "backward", "step", "decode"}},
      {"data", "--format", {"auto", "text", "jsonl"}},
      {"", "--split", {"val", "train"}},
      {"", "--scale", {"tiny", "small", "full"}},
      {"", "--method", {"auto", "timers"}},
      {"", "--by", {"place", "instruction", "kernel", "class", "layer", "phase"}},
      {"", "--sort", {"time", "gap", "flops", "bytes"}},
      {"", "--backend", {"auto", "gloo", "nccl"}},
      {"", "--flops-convention", {"palm", "executed"}},
      {"",
       "--segment",
       {"train", "train.first", "train.next", "train.last", "train.forward", "update", "validation", "prefill",
        "decode"}},
  };
  return table;
}

// Splits a list as people write it: "adamw, lion".
Values listed(const std::string& names) {
  Values values = split(names, ',');
  for (auto& value : values) value.erase(0, value.find_first_not_of(' '));
  return values;
}

Values pass_names() {
  Values names;
  for (auto& pass : pipeline()) names.push_back(pass.name);
  return names;
}

Values device_values(const std::string& command) {
  Values values = {"auto", "cpu", "cuda"};
  if (command == "flops") values.clear();
  if (command == "plan" || command == "program" || command == "flops")
    for (auto& sheet : data_sheets()) values.push_back(sheet.name);
  return values;
}

Values values_of(const std::string& command, const std::string& option) {
  if (option == "--model") {
    Values values = preset_names();
    for (auto& [alias, preset] : preset_aliases()) values.push_back(alias);
    return values;
  }
  for (auto& set : value_sets())
    if (command == set.command && option == set.option) return set.values;
  if (const Setting* row = find_run_setting(option.substr(std::min<size_t>(2, option.size())));
      row && !row->choices.empty())
    return choices_of(*row);
  if (option == "--split-rule") return listed(split_rule_names());
  if (option == "--chat-template") return listed(chat_template_names());
  if (option == "--after") return pass_names();
  if (option == "--device") return device_values(command);
  for (auto& set : value_sets())
    if (!*set.command && option == set.option) return set.values;
  return {};
}

CompletedCommand describe(const Command& command) {
  CompletedCommand out{command.name, command.help, {}, {}};
  CLI::App app{command.help, command.name};
  auto action = command.setup(app);
  for (const CLI::Option* o : app.get_options()) {
    if (!o->get_positional()) {
      if (o->get_group().empty()) continue;  // not for people
      for (auto& name : o->get_lnames()) {
        CompletedFlag flag{"--" + name, o->get_description(), o->get_items_expected_max() > 0,
                           values_of(command.name, "--" + name)};
        out.flags.push_back(std::move(flag));
      }
    } else if (out.actions.empty()) {
      out.actions = values_of(command.name, o->get_name());
    }
  }
  return out;
}

}  // namespace

std::vector<CompletedCommand> completed_commands() {
  std::vector<CompletedCommand> out;
  for (auto& command : commands()) out.push_back(describe(command));
  return out;
}

std::function<int()> setup_completions(CLI::App& app) {
  auto shell = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  app.description(
      "Prints a script that completes crest's commands, flags and values:\n"
      "  bash   crest completions bash > ~/.local/share/bash-completion/completions/crest\n"
      "  zsh    crest completions zsh > DIR/_crest, where DIR is in $fpath\n"
      "  fish   crest completions fish > ~/.config/fish/completions/crest.fish");
  app.add_option("SHELL", *shell, "bash, zsh or fish");
  add_json_option(app, *json);
  return [shell, json] {
    std::string (*make)(const std::vector<CompletedCommand>&) = *shell == "bash"   ? bash_completions
                                                                : *shell == "zsh"  ? zsh_completions
                                                                : *shell == "fish" ? fish_completions
                                                                                   : nullptr;
    if (shell->empty()) fail_usage("no shell given", "crest completions", "Shells: bash, zsh, fish.");
    if (!make)
      fail_usage(fmt::format("unknown shell '{}'", printable(*shell)), "crest completions", "Shells: bash, zsh, fish.");
    std::string text = make(completed_commands());
    if (*json) {
      print_json({{"shell", *shell}, {"script", text}});
      return 0;
    }
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
      fail("could not write to standard output", "crest completions", "Is the disk full?");
    return 0;
  };
}

}  // namespace crest
