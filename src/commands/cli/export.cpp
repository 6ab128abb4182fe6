// crest export: writes a model as another program loads it.
#include "interop/export.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/conversion_progress.h"
#include "cli/options.h"
#include "core/error.h"
#include "core/text.h"
#include "core/to_stderr.h"
#include "host/stop_signal.h"
#include "model/parameters.h"
#include "terminal/print_json.h"

namespace crest {

namespace {

struct ExportFlags {
  ExportOptions out;
  std::vector<std::string> models;
  std::string base;
  bool json = false;
};

void print_export(const ExportResult& r) {
  fmt::print("{}: {} ({}, {} parameters, {})\n", printable(r.folder), join(r.files, ", "), r.stored,
             format_count(double(r.parameters)), format_bytes(double(r.bytes)));
  for (auto& note : r.notes) fmt::print("{}\n", printable(note, 1000));
  for (size_t i = 0; i < r.next.size(); ++i)
    fmt::print("{}{}\n", i == 0 ? "\nNext, " : "      ", printable(r.next[i], 2000));
}

int run_export(ExportFlags& o) {
  if (o.models.size() != 1)
    fail_usage(o.models.empty() ? "no model given" : fmt::format("{} models given", o.models.size()), "crest export",
               "Give one run, checkpoint, or folder: crest export RUN.");
  o.out.out = export_path(o.out, o.models[0]);
  StopSignal signal;
  o.out.progress = conversion_progress("crest export", "exporting");
  LoadedModel model = open_model(
      o.models[0], [](const std::string& m) { to_stderr("crest: warning: {}\n", m); }, o.base);
  ExportResult r = export_model(model, o.out);
  if (o.json)
    print_json(to_json(r));
  else
    print_export(r);
  return 0;
}

}  // namespace

std::function<int()> setup_export(CLI::App& app) {
  auto o = std::make_shared<ExportFlags>();
  app.add_option("RUN,--run", o->models, "run, checkpoint, or folder with config.json and safetensors")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--to", o->out.to,
                 "format: gguf (llama.cpp, Ollama), llm.c, nanogpt; for a run with adapters also peft, or merged "
                 "(one model for transformers)");
  add_base_option(app, o->base);
  app.add_option("--out", o->out.out, "folder to write; with --to gguf, the file (must not exist; default: RUN.gguf)")
      ->type_name("PATH");
  app.add_option("--dtype", o->out.dtype,
                 "type of the weights. gguf: f32 (default), f16, bf16, q8_0. llm.c and merged: fp32 (default), bf16. "
                 "Others: fp32");
  app.add_flag("--other-gelu", o->out.other_gelu,
               "export even if the other program has a different form of GELU (logits differ slightly)");
  add_json_option(app, o->json);
  add_config_option(app);
  return [o] { return run_export(*o); };
}

}  // namespace crest
