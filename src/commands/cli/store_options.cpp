#include "cli/store_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>

#include "checkpoint/checkpoint.h"
#include "core/error.h"
#include "core/io.h"
#include "core/text.h"
#include "core/to_stderr.h"

namespace crest {

void add_store_option(CLI::App& app, StoreFile& o) {
  app.add_option("--store", o.file, "run database (default: CREST_STORE, else crest.db in the working folder)")
      ->type_name("FILE")
      ->group("Run database");
  app.add_option("--store-wait", o.wait, "seconds to wait while another process holds the run database")
      ->check(CLI::Range(0.0, 86400.0))
      ->group("Run database");
}

void add_record_options(CLI::App& app, RecordOptions& o) {
  add_store_option(app, o);
  app.add_option("--name", o.name, "name of the record")->type_name("NAME")->group("Run database");
  app.add_flag("--no-store", o.off, "record nothing")->group("Run database");
}

std::string newest_run(const StoreFile& store) {
  std::string file = store.path();
  std::error_code unknown;
  if (!store.file.empty() || std::filesystem::exists(file, unknown))
    for (const RunRecord& r : store.open_to_read().list({.kind = "train"})) {
      std::string root = join_path(r.folder, "checkpoints");
      if (r.folder.empty() || !std::filesystem::is_directory(root, unknown) || list_checkpoints(root).empty()) continue;
      to_stderr("run      {}, the newest run in {}\n", printable(r.folder), printable(file));
      return r.folder;
    }
  fail_usage(
      fmt::format("no model given, and {} has no training run with a checkpoint", printable(file)), "--run",
      "Give a run, a checkpoint, or a folder with config.json and safetensors. Or train first: crest train TEXT.");
}

}  // namespace crest
