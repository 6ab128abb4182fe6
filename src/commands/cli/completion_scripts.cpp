// The scripts of crest completions, one function per shell.
#include <fmt/format.h>

#include "cli/completions.h"
#include "core/text.h"

namespace crest {

namespace {

std::string replaced(std::string text, const std::vector<std::pair<char, const char*>>& table) {
  std::string out;
  for (char c : text) {
    const char* to = nullptr;
    for (auto& [from, with] : table)
      if (c == from) to = with;
    if (to)
      out += to;
    else
      out += c;
  }
  return out;
}

// For use inside single quotes.
std::string quoted(const std::string& text) { return "'" + replaced(text, {{'\'', "'\\''"}, {'\n', " "}}) + "'"; }

std::string names_of(const std::vector<CompletedCommand>& commands) {
  std::vector<std::string> names;
  for (auto& c : commands) names.push_back(c.name);
  return join(names, " ");
}

std::string flags_of(const CompletedCommand& command) {
  std::vector<std::string> names;
  for (auto& f : command.flags) names.push_back(f.name);
  return join(names, " ");
}

}  // namespace

std::string bash_completions(const std::vector<CompletedCommand>& commands) {
  std::string cases;
  for (auto& c : commands) {
    cases += fmt::format("    {})\n      flags={}\n      actions={}\n      case $previous in\n", c.name,
                         quoted(flags_of(c)), quoted(join(c.actions, " ")));
    std::vector<std::string> files;
    for (auto& f : c.flags) {
      if (!f.values.empty())
        cases += fmt::format("        {}) values={} ;;\n", f.name, quoted(join(f.values, " ")));
      else if (f.takes_value)
        files.push_back(f.name);
    }
    if (!files.empty()) cases += fmt::format("        {}) return ;;\n", join(files, "|"));
    cases += "      esac ;;\n";
  }
  // Bash passes "--flag=value" as three words, unless = was removed from COMP_WORDBREAKS.
  return fmt::format(R"bash(# Completes crest in bash. Made by: crest completions bash
_crest() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} before=
  local flags= actions= values= offered=
  COMPREPLY=()
  if [[ $COMP_CWORD -eq 1 ]]; then
    COMPREPLY=($(compgen -W {} -- "$word"))
    return
  fi
  if [[ $word == = ]]; then
    word=
  elif [[ $previous == = && $COMP_CWORD -ge 3 ]]; then
    previous=${{COMP_WORDS[COMP_CWORD-2]}}
  elif [[ $word == --*=* ]]; then
    previous=${{word%%=*}} before=$previous= word=${{word#*=}}
  fi
  case ${{COMP_WORDS[1]}} in
{}    *) return ;;
  esac
  if [[ -n $values ]]; then
    offered=$values
  elif [[ $word == -* ]]; then
    offered=$flags
  elif [[ $COMP_CWORD -eq 2 ]]; then
    offered=$actions
  fi
  COMPREPLY=($(compgen -P "$before" -W "$offered" -- "$word"))
}}
complete -o default -F _crest crest
)bash",
                     quoted(names_of(commands) + " --help --version"), cases);
}

std::string zsh_completions(const std::vector<CompletedCommand>& commands) {
  // Brackets and colons have a meaning inside _arguments descriptions.
  auto text = [](const std::string& help) {
    return replaced(help, {{'[', "\\["}, {']', "\\]"}, {':', "\\:"}, {'\'', "'\\''"}, {'\n', " "}});
  };
  std::string list, cases;
  for (auto& c : commands) {
    list += fmt::format("    '{}:{}'\n", c.name, text(c.help));
    cases += fmt::format("    {})\n      _arguments -S \\\n", c.name);
    for (auto& f : c.flags) {
      std::string value;
      if (!f.values.empty())
        value = fmt::format(":value:({})", join(f.values, " "));
      else if (f.takes_value)
        value = ":value:_files";
      cases += fmt::format("        '*{}{}[{}]{}' \\\n", f.name, f.takes_value ? "=" : "", text(f.help), value);
    }
    if (!c.actions.empty()) cases += fmt::format("        '1:action:({})' \\\n", join(c.actions, " "));
    cases += "        '*:file:_files' ;;\n";
  }
  return fmt::format(R"zsh(#compdef crest
# Completes crest in zsh. Made by: crest completions zsh
_crest() {{
  local -a commands
  commands=(
{}  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  local command=$words[2]
  shift words
  (( CURRENT-- ))
  case $command in
{}  esac
}}
if [[ $funcstack[1] == _crest ]]; then
  _crest "$@"
elif (( $+functions[compdef] )); then
  compdef _crest crest
fi
)zsh",
                     list, cases);
}

std::string fish_completions(const std::vector<CompletedCommand>& commands) {
  auto text = [](const std::string& help) {
    return "'" + replaced(help, {{'\\', "\\\\"}, {'\'', "\\'"}, {'\n', " "}}) + "'";
  };
  std::string out = "# Completes crest in fish. Made by: crest completions fish\n";
  for (auto& c : commands)
    out += fmt::format("complete -c crest -f -n __fish_use_subcommand -a {} -d {}\n", c.name, text(c.help));
  for (auto& c : commands) {
    std::string here = fmt::format("complete -c crest -n '__fish_seen_subcommand_from {}'", c.name);
    if (!c.actions.empty()) out += fmt::format("{} -a {}\n", here, text(join(c.actions, " ")));
    for (auto& f : c.flags) {
      std::string value = f.takes_value ? " -r" : "";
      if (!f.values.empty()) value += " -a " + text(join(f.values, " "));
      out += fmt::format("{} -l {}{} -d {}\n", here, f.name.substr(2), value, text(f.help));
    }
  }
  return out;
}

}  // namespace crest
