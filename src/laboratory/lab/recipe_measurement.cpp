#include "lab/recipe_measurement.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "backend/backend.h"
#include "bench/bench_options.h"
#include "core/error.h"
#include "core/text.h"
#include "device/find.h"
#include "device/kernels.h"
#include "host/memory.h"
#include "lab/detail.h"
#include "lab/judge.h"
#include "model/config_files.h"
#include "model/parameters.h"
#include "plan/defaults.h"
#include "plan/recipe_settings.h"
#include "plan/search.h"
#include "profile/profile_rows.h"
#include "store/new_record.h"

namespace crest {

namespace {

// Keys of a model file: sizes, and how layers compute.
const std::set<std::string> size_keys = {
    "layers",        "heads",          "kv_heads", "width",    "head_dim",   "ff",
    "context",       "bias",           "tied",     "norm",     "norm_eps",   "norm_weight",
    "norm_position", "embedding_norm", "qk_norm",  "position", "activation", "zero_projections",
    "logit_cap"};
const std::set<std::string> word_keys = {"norm", "norm_position", "qk_norm", "position", "activation"};

void out_of_memory(lab::Row& row, const std::string& why) {
  row.keys["status"] = "out_of_memory";
  row.absent = "does not fit in memory" + (why.empty() ? "" : ": " + why);
}

}  // namespace

std::string RecipeMeasurement::keys() const {
  std::vector<std::string> names = {size_keys.begin(), size_keys.end()};
  for (auto& row : recipe_settings())
    if (!size_keys.count(row.key())) names.push_back(row.key());
  return join(names, ", ") + ", tile, phase, memory_limit, allocator, " + LabMeasurement::keys();
}

bool RecipeMeasurement::set(const std::string& key, const std::string& value) {
  if (key == "phase") {
    if (value == "all") fail_usage("write phase = [\"forward\", \"backward\", \"step\"]");
    phase_ = parse_phase(value);
  } else if (key == "memory_limit") {
    limit_ = parse_bytes(value, key);
  } else if (key == "tile") {
    set_tile(value);
  } else if (key == "allocator") {
    allocator_ = lab::parse_allocator_settings(value);
  } else if (size_keys.count(key)) {
    sizes_.emplace_back(key, value);
  } else if (!LabMeasurement::set(key, value)) {
    return set_setting(key, value);
  }
  return true;
}

bool RecipeMeasurement::set_setting(const std::string& key, const std::string& value) {
  for (auto& row : recipe_settings())
    if (row.key() == key && !size_keys.count(key)) {
      parse_setting(row, value);
      if (row.type == SettingType::list)
        options_.given[row.name].push_back(value);
      else
        options_.given[row.name] = {value};
      return true;
    }
  return false;
}

// Pins the flash attention kernels of one tile size, if the device has them.
void RecipeMeasurement::set_tile(const std::string& value) {
  std::vector<std::string> tiles;
  for (auto& k : kernels_of(device_.kind)) {
    std::string kernel = k.name;
    size_t at = kernel.find(".flash.tile");
    if (at != std::string::npos && std::string(k.op) == "attention") tiles.push_back(kernel.substr(at + 11));
  }
  if (tiles.empty()) {
    absent_ =
        fmt::format("flash attention has only one tile size on {}", device_.kind == "cpu" ? "the CPU" : device_.kind);
    return;
  }
  if (std::find(tiles.begin(), tiles.end(), value) == tiles.end())
    fail_usage(fmt::format("'{}' is not a tile size of flash attention", printable(value)), "",
               "Tiles: " + join(tiles, ", ") + ".");
  for (const char* op : {"attention", "attention_grad"})
    options_.given["kernel"].push_back(fmt::format("{}=*.flash.tile{}", op, value));
}

void RecipeMeasurement::finish() {
  Recipe recipe = options_.finish(default_model(device_));
  if (!sizes_.empty()) resize(recipe);
  validate(recipe);
  try {
    recipe_ = phase_recipe(resolve(with_default_precision(recipe, device_), device_), phase_, options_);
  } catch (const Error& error) {  // a valid recipe, but this device cannot run it
    if (error.code() != Exit::usage) throw;
    absent_ = error.problem();
  }
}

// Changes sizes of the model, as a user's model file does.
void RecipeMeasurement::resize(Recipe& recipe) const {
  std::string base = options_.has("model") ? options_.given.at("model").back() : default_model(device_);
  std::string name = base, text = fmt::format("preset = \"{}\"\n", base);
  for (auto& [key, value] : sizes_) {
    text += word_keys.count(key) ? fmt::format("{} = \"{}\"\n", key, value) : fmt::format("{} = {}\n", key, value);
    name += fmt::format(" {} {}", key, value);
  }
  ModelConfig model = parse_model_toml(text, "model sizes");
  model.name = name, model.vocab = recipe.model.vocab, model.dropout = recipe.model.dropout;
  recipe.model = model;
}

std::string RecipeMeasurement::key() const {
  if (!absent_.empty()) return "";
  return run_key(recipe_, device_, name(phase_), warmup_ == 3 ? "" : fmt::format("warmup {}", warmup_));
}

BenchTask RecipeMeasurement::task() const {
  BenchTask task;
  task.recipe = recipe_, task.device = device_, task.limit = limit_, task.phase = phase_;
  task.key = key(), task.label = spec_.label;
  return task;
}

void RecipeMeasurement::plan_columns(const CompiledSession& s, lab::Row& row) const {
  int64_t live = 0, instructions = 0;
  auto set = [&](const char* column, double x) { row.columns[column] = lab::Value::number(x); };
  for (auto& p : s.programs) live = std::max(live, p.memory.live_peak);
  for (int call : phase_calls(s, phase_)) instructions += int64_t(s.programs[size_t(call)].program.code.size());
  set("parameters", double(parameter_count(s.recipe.model)));
  set("tokens", double(phase_tokens(s.recipe, phase_)));
  set("model_flops", palm_flops(s.recipe, phase_));
  set("executed_flops", phase_flops(s, phase_, FlopsConvention::executed));
  set("instructions", double(instructions));
  set("planned_bytes", double(s.planned_bytes()));
  set("persistent_bytes", double(s.persistent_bytes));
  set("host_bytes", double(s.host_bytes));
  set("transient_bytes", double(s.transient_bytes));
  set("live_bytes", double(live));
  set("kept_bytes", double(s.kept_bytes()));
  CategoryBytes bytes = s.by_category();
  for (auto category : {Category::weights, Category::gradients, Category::optimizer_state, Category::activations,
                        Category::temporary, Category::workspace})
    set((std::string(name(category)) + "_bytes").c_str(), double(bytes[size_t(category)]));
  if (e_.uses_column("largest_batch"))
    set("largest_batch", double(largest_batch(s, phase_use(phase_), limit_ / s.recipe.all_ranks())));
  const MemoryPlan& memory = s.largest().memory;
  if (e_.uses_column("caching_bytes"))
    set("caching_bytes", double(lab::replay_allocations(memory, allocator_).reserved_bytes));
  if (e_.uses_column("caching_least_bytes")) set("caching_least_bytes", double(lab::least_memory(memory, allocator_)));
}

void RecipeMeasurement::run_recorded(LabContext& context, CompiledSession session, const std::string& grid,
                                     lab::Row& row, Profile& detail) const {
  BenchMeasure& bench = context.bench;
  RunRecord record = bench.begin(lab::name(e_.kind), task(), grid);
  row.run = record.uid;
  try {
    bench.add_documents(record, session, phase_);
    run(context, std::move(session), record, row, detail);
  } catch (const Error& error) {
    bool large = error.code() == Exit::does_not_fit;
    const char* status = large ? "out_of_memory" : error.code() == Exit::interrupted ? "interrupted" : "failed";
    bench.finish(record, status, nullptr, error.what());
    if (!large) throw;
    out_of_memory(row, error.problem());
  } catch (const std::bad_alloc&) {
    bench.finish(record, "out_of_memory", nullptr, "the system refused the allocation");
    out_of_memory(row, "the system refused the allocation");
  }
}

void RecipeMeasurement::measure(LabContext& context, const std::string& grid, lab::Row& row) const {
  reset_peak_resident();
  CompiledSession session;
  try {
    session = compile_phase(recipe_, device_, phase_, {.verify = false});
  } catch (const Error& error) {  // no kernel supports it
    if (error.code() != Exit::failed) throw;
    row.keys["status"] = "absent", row.absent = error.problem();
    return;
  }
  plan_columns(session, row);
  Profile detail;
  describe_session(detail, session, phase_calls(session, phase_));
  lab::Table values = lab::value_rows(session);
  double planned = row.columns["planned_bytes"].x;
  const int64_t limit = limit_ / session.recipe.all_ranks();  // of a rank
  if (planned > double(limit))
    out_of_memory(row, fmt::format("{} planned, {} available", format_bytes(planned), format_bytes(double(limit))));
  else if (runs())
    run_recorded(context, std::move(session), grid, row, detail);
  lab::Table table = lab::detail_rows(detail);
  table.rows.insert(table.rows.end(), values.rows.begin(), values.rows.end());
  if (!row.absent.empty())  // a missing time is not zero
    for (auto& r : table.rows)
      for (const char* time : {"ms", "kernel_ms"}) r.columns.erase(time);
  lab::add_columns(e_, table, row);
}

void RecipeMeasurement::plan_for(const std::string& device) {
  device_ = find_device(device, 0);
  limit_ = device_.memory;
}

bool PlanMeasurement::set(const std::string& key, const std::string& value) {
  if (key != "device") return RecipeMeasurement::set(key, value);
  plan_for(value);
  return true;
}

}  // namespace crest
