#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>

#include "cli/command.h"
#include "cli/options.h"
#include "cli/version.h"
#include "core/error.h"
#include "core/text.h"
#include "plan/device.h"

using namespace crest;

static void print_help() {
  fmt::print(
      "Usage: crest COMMAND [OPTIONS]\n\nTrains GPT-style transformers and explains every millisecond and "
      "byte.\n\nCommands:\n");
  for (auto& c : commands()) fmt::print("  {:<11} {}\n", c.name, c.help);
  fmt::print("\ncrest COMMAND --help lists the options; crest --version prints versions of everything opened.\n");
}

// Bare `crest`: the device found and what to try first.
static void print_welcome() {
  Device d = find_device("auto", 0);
  fmt::print(
      "Crest {} trains GPT-style transformers.\n\nDevice: {} {}, {} free\n\nTry first:\n"
      "  crest train input.txt            train a small GPT on a text file, then sample from it\n"
      "  crest plan --model gpt2-124M     parameters, memory and FLOPs before anything runs\n"
      "  crest bench --model nano         measure a training step on this machine\n\ncrest --help lists all "
      "commands.\n",
      CREST_VERSION, d.kind, d.name, format_bytes(double(d.memory)));
}

// Messages quote names of files and what they hold: no escape sequence of theirs reaches the terminal.
static void print_error(std::string_view text) {
  std::string safe;
  for (auto& line : split(text, '\n')) safe += (safe.empty() ? "" : "\n") + printable(line, line.size());
  // Not fmt::print, which throws when standard error is closed or on a full disk: the exit code must arrive.
  std::fputs(fmt::format("crest: error: {}\n", safe).c_str(), stderr);
}

static int run(int argc, char** argv) {
  if (argc < 2) {
    print_welcome();
    return 0;
  }
  std::string word = argv[1];
  if (word == "--help" || word == "-h" || word == "help") {
    print_help();
    return 0;
  }
  if (word == "--version" || word == "version") {
    print_versions();
    return 0;
  }
  std::vector<std::string> names;
  for (auto& c : commands()) names.push_back(c.name);
  for (auto& c : commands()) {
    if (word != c.name) continue;
    CLI::App app{c.help, fmt::format("crest {}", c.name)};
    app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    auto action = c.setup(app);
    try {
      parse_command_line(app, argc - 2, argv + 2);
    } catch (const CLI::CallForHelp&) {
      fmt::print("{}", app.help());
      return 0;
    } catch (const CLI::ParseError& e) {
      fail_usage(e.what(), std::string("crest ") + c.name, fmt::format("See crest {} --help.", c.name));
    }
    return action();
  }
  fail_usage(fmt::format("unknown command '{}'", printable(word)), "crest",
             did_you_mean(word, names) + " See crest --help.");
}

// OpenMP's idle threads spin for milliseconds by default. On a machine that others use too, a spinning thread keeps the
// one it waits for from running: steps then take many times longer. libgomp reads its settings before main, so the
// program starts itself once more with a short spin.
static void spin_briefly(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") || std::getenv("GOMP_SPINCOUNT")) return;
  setenv("GOMP_SPINCOUNT", "4000", 1);  // some 0.1 ms
  execv("/proc/self/exe", argv);        // when that fails, things work, only slower
}

int main(int argc, char** argv) {
  spin_briefly(argv);
  try {
    return run(argc, argv);
  } catch (const Error& e) {
    print_error(e.what());
    return int(e.code());
  } catch (const std::bad_alloc&) {
    fmt::print(stderr,
               "crest: error: out of memory\n  Use a smaller --batch or model; crest plan shows what is needed.\n");
    return int(Exit::does_not_fit);
  } catch (const std::exception& e) {
    print_error(e.what());
    return int(Exit::failed);
  }
}
