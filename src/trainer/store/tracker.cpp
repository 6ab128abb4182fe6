#include "store/tracker.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>

#include "core/embedded.h"
#include "core/error.h"
#include "core/io.h"
#include "core/temporary_folder.h"
#include "core/text.h"
#include "host/external.h"
#include "host/stop_signal.h"

namespace crest {

const std::vector<EmbeddedFile>& embedded_trackers();

namespace {

constexpr const char* command = "crest runs export";
constexpr int no_package = 3;  // store/to_wandb.py

std::string variable(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value && *value ? value : otherwise;
}

Json optional_text(const std::string& text) { return text.empty() ? Json() : Json(text); }

Json head_of(const RunRecord& r) {
  Json config = r.recipe.is_object() ? r.recipe : Json::object();
  config["crest"] = {{"status", r.status}, {"started", r.started},        {"finished", r.finished},
                     {"phase", r.phase},   {"folder", r.folder},          {"error", r.error},
                     {"device", r.device}, {"environment", r.environment}};
  const bool ended_well = r.status == "done" || r.status == "running";
  return {{"id", r.uid},
          {"name", r.name},
          {"notes", optional_text(r.command)},
          {"job_type", r.kind},
          {"group", optional_text(r.grid)},
          {"config", config},
          {"summary", r.result.is_object() ? r.result : Json::object()},
          {"exit_code", ended_well ? 0 : 1}};
}

Json values_of(const LogRow& row) {
  Json values = Json::object();
  for (auto& column : log_columns)
    if (const double value = row.*column.field; std::isfinite(value)) values[column.name] = value;
  if (row.skipped) values["skipped"] = 1;
  return values;
}

// Trackers refuse a step below the last one: rows of a foreign log may come in any order.
void write_run(const RunRecord& r, File& out) {
  auto line = [&](const Json& json) { out.write(dump_json(json) + "\n"); };
  line({{"run", head_of(r)}});
  std::vector<const LogRow*> rows;
  for (auto& row : r.log) rows.push_back(&row);
  std::stable_sort(rows.begin(), rows.end(), [](auto* a, auto* b) { return a->step < b->step; });
  for (auto* row : rows) line({{"step", row->step}, {"row", values_of(*row)}});
  if (!rows.empty()) return;
  for (size_t i = 0; i < r.samples.size(); ++i) {
    const SampleRow& sample = r.samples[i];
    line({{"step", i}, {"row", {{sample.contender.empty() ? "ms" : "ms/" + sample.contender, sample.ms}}}});
  }
}

std::string usable_folder(const std::string& given) {
  create_directories(given);
  if (::access(given.c_str(), W_OK | X_OK) != 0)
    fail("the folder is not writable", printable(given), "Choose another one: -o DIR.");
  return std::filesystem::absolute(given).lexically_normal().string();
}

CommandOutput run_python(const std::string& python, const std::vector<std::string>& arguments) {
  ExternalOptions limits;
  limits.timeout_seconds = std::numeric_limits<double>::infinity();  // of millions of steps
  limits.canceled = [] { return StopSignal::requested(); };
  std::vector<std::string> all = {"env", python, "-c", std::string(embedded_trackers().at(0).text)};
  all.insert(all.end(), arguments.begin(), arguments.end());
  // It must not send anything, nor add the state of this machine to a run of another one.
  return run_program("/usr/bin/env", all,
                     {{"WANDB_MODE", "offline"},
                      {"WANDB_SILENT", "true"},
                      {"WANDB_CONSOLE", "off"},
                      {"WANDB_DISABLE_CODE", "true"},
                      {"WANDB_DISABLE_GIT", "true"},
                      {"WANDB_X_DISABLE_META", "true"},
                      {"WANDB_X_DISABLE_STATS", "true"}},
                     limits);
}

// The rules of wandb, which otherwise ends with a trace.
void check_project(const std::string& project) {
  const auto characters = std::count_if(project.begin(), project.end(), [](char c) { return (c & 0xC0) != 0x80; });
  if (characters > 128 || project.find_first_of("/\\#?%:") != std::string::npos)
    fail_usage(fmt::format("wandb has no project '{}'", printable(project)), "--project",
               "A name (--project, else WANDB_PROJECT) has at most 128 characters, and none of / \\ # ? % :");
}

std::string last_messages(const CommandOutput& output) {
  const std::string lines = last_lines(output.err, 8);
  return lines.empty() ? "" : "Its last messages:" + lines;
}

void check_end(const CommandOutput& output, const std::string& python, size_t done, size_t all) {
  if (output.canceled)
    throw Error(Exit::interrupted, "interrupted", command, fmt::format("{} of {} runs were written.", done, all));
  if (output.exit_code == 126 || output.exit_code == 127)
    fail(
        fmt::format("cannot start {}", printable(python)), command,
        "The package of the tracker needs Python. Install it (apt-get install python3), or name it with CREST_PYTHON.");
  if (output.exit_code == no_package)
    fail(fmt::format("{} has no package wandb", printable(python)), command,
         fmt::format("Install it: {} -m pip install wandb. For the Python of a virtual environment, activate it, or "
                     "name it with CREST_PYTHON.",
                     printable(python)));
  if (output.exit_code != 0)
    fail(fmt::format("wandb failed after {} of {} runs (exit code {})", done, all, output.exit_code), command,
         last_messages(output));
}

}  // namespace

void check_tracker(const std::string& name) {
  static const std::vector<std::string> known = {"wandb"};
  if (std::find(known.begin(), known.end(), name) == known.end())
    fail_usage(fmt::format("unknown tracker '{}'", printable(name)), "--to",
               fmt::format("{} Trackers: {}.", did_you_mean(name, known), join(known, ", ")));
}

TrackerExport export_to_tracker(const Store& store, const std::vector<int64_t>& ids, const TrackerOptions& options) {
  check_tracker(options.tracker);
  const std::string project = options.project.empty() ? variable("WANDB_PROJECT", "crest") : options.project;
  check_project(project);
  const std::string folder = usable_folder(options.folder), python = variable("CREST_PYTHON", "python3");
  TemporaryFolder temporary;
  const std::string rows = temporary / "runs.jsonl";
  File out = File::create_new(rows);
  for (int64_t id : ids) write_run(store.load(id), out);
  out.close();
  const CommandOutput output = run_python(python, {rows, folder, project});
  TrackerExport exported;
  exported.tracker = options.tracker;
  for (auto& line : split(output.out, '\n')) {
    const Json run = Json::parse(line, nullptr, false);
    if (!run.is_object() || !run.contains("uid")) continue;
    exported.version = text_at(run, "version");
    exported.runs.push_back({text_at(run, "uid"), text_at(run, "name"), text_at(run, "folder"), run.value("rows", 0)});
  }
  check_end(output, python, exported.runs.size(), ids.size());
  if (exported.runs.size() != ids.size())
    fail(fmt::format("wandb wrote {} of {} runs", exported.runs.size(), ids.size()), command, last_messages(output));
  return exported;
}

Json to_json(const TrackerExport& exported) {
  Json runs = Json::array();
  for (auto& r : exported.runs)
    runs.push_back({{"uid", r.uid}, {"name", r.name}, {"folder", r.folder}, {"rows", r.rows}});
  return {{"tracker", exported.tracker}, {"version", exported.version}, {"runs", runs}};
}

}  // namespace crest
