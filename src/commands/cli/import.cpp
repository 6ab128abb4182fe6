// crest import: turns a checkpoint of another program into a folder for Crest and transformers.
#include "interop/import.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/conversion_progress.h"
#include "cli/options.h"
#include "core/error.h"
#include "core/shell_word.h"
#include "core/text.h"
#include "host/stop_signal.h"
#include "model/parameters.h"
#include "terminal/print_json.h"
#include "terminal/table.h"

namespace crest {

namespace {

struct ImportFlags {
  ImportOptions import;
  bool json = false;
};

void print_import(const ImportResult& r) {
  const ModelConfig& c = r.config;
  Table table({{"what", Align::left}, {"value", Align::left}});
  table.row({"format", fmt::format("{}, {}", r.format, name(r.stored))});
  table.row({"parameters", format_count(double(parameter_count(c)))});
  table.row({"layers", std::to_string(c.layers)});
  table.row({"width, heads", fmt::format("{}, {} of {}", c.width, c.heads, c.head_dim)});
  table.row({"context", std::to_string(c.context)});
  table.row({"vocabulary", fmt::format("{}, head {}", c.vocab, c.tied ? "tied" : "untied")});
  table.row({"biases", c.bias ? "yes" : "no"});
  table.row({"written", fmt::format("model.safetensors (f32, {}), model.toml{}{}", format_bytes(double(r.bytes)),
                                    r.transformers ? ", config.json" : "", r.tokenizer ? ", tokenizer.json" : "")});
  fmt::print("{}", table.text(use_color(STDOUT_FILENO)));
  for (auto& note : r.notes) fmt::print("\n{}", printable(note, 1000));
  std::string folder = shell_path(r.folder);
  fmt::print("\n{}Next: crest eval --run {} --data DIR, or crest train --init {} --data DIR\n",
             r.notes.empty() ? "" : "\n", folder, folder);
}

int run_import(ImportFlags& o) {
  if (o.import.path.empty()) fail_usage("no checkpoint given", "crest import", "Give a file: crest import PATH.");
  if (o.import.out.empty()) fail_usage("no output folder given", "--out", "Give a folder: --out DIR.");
  if (o.import.heads < 0 || o.import.heads > 4096)
    fail_usage(fmt::format("{} heads", o.import.heads), "--heads", "It must be from 1 to 4096.");
  StopSignal signal;
  o.import.progress = conversion_progress("crest import", "importing");
  ImportResult r = import_model(o.import);
  if (o.json)
    print_json(to_json(r));
  else
    print_import(r);
  return 0;
}

}  // namespace

std::function<int()> setup_import(CLI::App& app) {
  auto o = std::make_shared<ImportFlags>();
  app.add_option("PATH", o->import.path,
                 "GPT-2 checkpoint of llm.c (.bin), or a nanoGPT checkpoint converted to safetensors");
  app.add_option("--out", o->import.out, "folder to write (must not exist)")->type_name("DIR");
  app.add_option("--tokenizer", o->import.tokenizer, "tokenizer file to copy into the folder")->type_name("FILE");
  app.add_option("--heads", o->import.heads, "attention heads (nanoGPT's n_head), if the file does not state them");
  add_json_option(app, o->json);
  add_config_option(app);
  return [o] { return run_import(*o); };
}

}  // namespace crest
