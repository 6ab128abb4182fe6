#include "train/run_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cfloat>
#include <climits>
#include <cmath>
#include <filesystem>
#include <limits>

#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_root.h"
#include "checkpoint/weights_io.h"
#include "core/error.h"
#include "core/io.h"
#include "core/json.h"
#include "core/json_number.h"
#include "core/shell_word.h"
#include "core/system_error.h"
#include "core/text.h"
#include "model/config_files.h"
#include "passes/fp8.h"

namespace crest {

static constexpr const char* choices_file = "kernel_choices.json";

static nlohmann::json json_of(const RunState& state) {
  nlohmann::json json = {
      {"step", state.step},           {"total_steps", state.total_steps},   {"seed", state.seed},
      {"threads", state.threads},     {"train_tokens", state.train_tokens}, {"data_hash", state.data_hash},
      {"last_good", state.last_good}, {"bad_steps", state.bad_steps}};
  if (!state.base.empty()) json["base"] = state.base, json["base_hash"] = state.base_hash;
  if (!state.data_weights.empty()) json["data_weights"] = state.data_weights;
  if (state.skipped_samples) json["skipped_samples"] = state.skipped_samples;
  const BestLoss& v = state.validation;
  if (v.step >= 0) json["validation"] = {{"step", v.step}, {"waited", v.waited}};
  if (v.best_step >= 0)
    json["validation"].update({{"best_step", v.best_step}, {"best", v.best}, {"reference", v.reference}});
  return json;
}

std::string to_text(const RunState& state) { return json_of(state).dump(); }

// The fp8 scales' history by tensor; an empty object without scales. Floats are written to read
// back bit for bit.
static nlohmann::json fp8_amax_of(Engine& engine) {
  nlohmann::json j = nlohmann::json::object();
  int update = engine.session().find("update");
  if (update < 0 || !engine.rank(0).has(update, fp8_amax)) return j;
  std::vector<std::string> slots = fp8_slots(engine.session().programs[size_t(update)].program);
  std::vector<float> amax = engine.rank(0).tensor(update, fp8_amax).floats();
  const size_t steps = amax.size() / slots.size();
  for (size_t s = 0; s < slots.size(); ++s) {
    if (steps == 1) j[slots[s]] = amax[s];
    for (size_t h = 0; steps > 1 && h < steps; ++h) j[slots[s]].push_back(amax[h * slots.size() + s]);
  }
  return j;
}

CheckpointContents contents_to_save(Engine& engine, const RunState& state, const std::string& config_toml,
                                    const ModelText& text, bool copied) {
  Scalars s = engine.rank(0).scalars();
  const Recipe& r = engine.session().recipe;
  CheckpointContents contents;
  contents.step = state.step;
  nlohmann::json j = json_of(state);
  j.update({{"seq", r.seq_length()},
            {"samples", state.step * r.grad_accumulation * r.data_ranks() * r.batch},
            {"adam_step", s.adam_step},
            {"loss_scale", s.loss_scale},
            {"good_steps", s.good_steps},
            {"skipped", s.skipped}});
  if (nlohmann::json amax = fp8_amax_of(engine); !amax.empty()) j["fp8_amax"] = amax;
  contents.state = j.dump();
  contents.files = model_files(r.model, text);
  contents.files["config.toml"] = config_toml;
  if (!engine.choices().used().empty()) contents.files[choices_file] = to_json(engine.choices().used());
  TensorsToSave tensors = tensors_to_save(engine.rank(0), copied);
  contents.weights = std::move(tensors.weights);
  contents.optimizer = std::move(tensors.optimizer);
  contents.memory = std::move(tensors.copy);
  contents.finite_weights = tensors.finite;
  return contents;
}

namespace {

// state.json of a checkpoint. Missing keys and impossible numbers are errors.
struct StateFile {
  explicit StateFile(const Checkpoint& c) : StateFile(c.state(), printable(c.path() + "/state.json")) {}
  StateFile(nlohmann::json parsed, std::string file) : where(std::move(file)), json(std::move(parsed)) {}
  StateFile(const std::string& text, std::string file)
      : where(std::move(file)), json(parse_json_guarded(text, {}, where)) {}

  [[noreturn]] void refuse(const char* key, const std::string& what) const {
    fail(fmt::format("key '{}' {}", key, what), where,
         "Restore the checkpoint from a copy, or move its folder away to continue from an older one.");
  }
  double real(const char* key) const {
    double n = json.contains(key) && json[key].is_number() ? json[key].get<double>() : NAN;
    if (!std::isfinite(n)) refuse(key, "is missing or not a number");
    return n;
  }
  float number(const char* key, double low) const {
    double n = json.contains(key) && json[key].is_number() ? json[key].get<double>() : NAN;
    if (!(std::abs(n) <= FLT_MAX)) refuse(key, "is missing or not a number");
    if (n < low) refuse(key, fmt::format("is {}, and the least is {}", n, low));
    return float(n);
  }
  // A number or a list of numbers.
  std::vector<float> numbers(const char* key, double low) const {
    if (!json.contains(key) || !json[key].is_array()) return {number(key, low)};
    if (json[key].empty()) refuse(key, "is an empty list");
    std::vector<float> list;
    for (auto& n : json[key]) list.push_back(StateFile({{key, n}}, where).number(key, low));
    return list;
  }
  template <class T = int64_t>
  T whole(const char* key, T low, T high) const {
    auto n = json.contains(key) ? whole_number<T>(json[key]) : std::nullopt;
    if (!n) refuse(key, "is missing or not a whole number");
    if (*n < low || *n > high) refuse(key, fmt::format("is {}, not from {} to {}", *n, low, high));
    return *n;
  }
  std::string where;
  nlohmann::json json;
};

RunState run_state(const StateFile& get) {
  constexpr auto any = std::numeric_limits<uint64_t>::max();
  RunState state;
  state.step = get.whole<int64_t>("step", 0, most_checkpoint_steps);
  state.total_steps = get.whole<int64_t>("total_steps", 0, most_checkpoint_steps + 1);
  state.seed = get.whole<uint64_t>("seed", 0, any);
  // Older checkpoints lack these two.
  state.last_good = get.json.contains("last_good") ? get.whole<int64_t>("last_good", 0, state.step) : state.step;
  if (get.json.contains("bad_steps"))
    state.bad_steps = get.whole<int64_t>("bad_steps", 0, state.step - state.last_good);
  state.threads = get.whole<int>("threads", 0, INT_MAX);
  state.train_tokens = get.whole<uint64_t>("train_tokens", 0, any);
  if (get.json.contains("data_hash") && get.json["data_hash"].is_string()) state.data_hash = get.json["data_hash"];
  for (auto [key, to] :
       {std::pair{"base", &state.base}, {"base_hash", &state.base_hash}, {"data_weights", &state.data_weights}})
    if (get.json.contains(key) && get.json[key].is_string()) *to = get.json[key];
  if (get.json.contains("skipped_samples")) state.skipped_samples = get.whole<uint64_t>("skipped_samples", 0, any / 2);
  if (get.json.contains("validation")) {
    const StateFile of(get.json["validation"], get.where + ", validation");
    BestLoss& v = state.validation;
    v.step = of.whole<int64_t>("step", 0, state.step);
    v.waited = of.whole<int64_t>("waited", 0, most_checkpoint_steps);
    if (of.json.contains("best_step")) {
      v.best_step = of.whole<int64_t>("best_step", 0, v.step);
      v.best = of.real("best"), v.reference = of.real("reference");
    }
  }
  return state;
}

// Every step either changed the weights or was skipped.
void read_scalars(const StateFile& get, int64_t step, Scalars& s) {
  s.adam_step = get.whole<int64_t>("adam_step", 0, step);
  s.skipped = get.whole<int32_t>("skipped", 0, INT32_MAX);
  if (s.adam_step + s.skipped != step)
    get.refuse("adam_step",
               fmt::format("is {}: with {} skipped steps this is not step {}", s.adam_step, s.skipped, step));
  s.good_steps = get.whole<int32_t>("good_steps", 0, int32_t(std::min<int64_t>(s.adam_step, INT32_MAX)));
  s.loss_scale = get.number("loss_scale", 1);
}

// Sample numbers follow from the step, so an exact continuation needs the same number of samples
// per step.
void check_samples(const Engine& engine, const StateFile& get, int64_t step, const Checkpoint& checkpoint,
                   const std::string& run) {
  const Recipe& r = engine.session().recipe;
  const int64_t now = r.grad_accumulation * r.data_ranks() * r.batch;
  const int64_t seq = get.whole<int64_t>("seq", 1, INT64_MAX), samples = get.whole<int64_t>("samples", 0, INT64_MAX);
  if (step ? samples % step || !samples : samples)
    get.refuse("samples", fmt::format("is {}, which {} cannot have", samples, format_number_of(step, "step")));
  std::string settings = run.empty() ? "" : fmt::format(" (flags, or {}/config.toml)", printable(run));
  if (seq != r.seq_length())
    fail_usage(fmt::format("the checkpoint has sequences of {} tokens, this recipe has {}", seq, r.seq_length()),
               printable(checkpoint.path()),
               fmt::format("Set seq to {}{}, so that the order of the data is continued exactly.", seq, settings));
  if (step && samples / step != now)
    fail_usage(fmt::format("the checkpoint has {} samples per step, this recipe has {}", samples / step, now),
               printable(checkpoint.path()),
               fmt::format("Keep batch x grad-accumulation x ranks{}, so that the order of the data is continued "
                           "exactly.",
                           settings));
}

// The run's settings must describe the trained model. Only dropout may change.
void check_model(const ModelConfig& now, const Checkpoint& checkpoint, const std::string& run) {
  const std::string* text = checkpoint.file("model.toml");
  if (!text) return;
  auto lines = [&](ModelConfig model) {
    model.dropout = 0, model.name.clear();
    return split(to_toml(model), '\n');
  };
  auto was = lines(parse_model_toml(*text, join_path(checkpoint.path(), "model.toml"))), is = lines(now);
  std::vector<std::string> differ;
  for (auto& line : is)
    if (std::find(was.begin(), was.end(), line) == was.end()) differ.push_back(line);
  for (auto& line : was)  // a table was removed
    if (differ.empty() && std::find(is.begin(), is.end(), line) == is.end()) differ.push_back("no " + line);
  if (differ.empty()) return;
  fail(
      fmt::format("the run's settings give another model than the trained one: {}", printable(join(differ, ", "), 300)),
      printable(run.empty() ? checkpoint.path() : run),
      fmt::format("Restore the run's model.toml, and config.toml where it names another one: {}/model.toml is that of "
                  "the checkpoint.",
                  printable(checkpoint.path())));
}

}  // namespace

Checkpoint newest_checkpoint(const std::string& root, const Report& warn) {
  auto checkpoint = find_checkpoint(root, warn);
  if (!checkpoint && !list_checkpoints(root).empty())
    fail("every checkpoint of the run is damaged or has weights that are not finite", printable(root),
         "The reasons are listed above. Check disk and memory. Restore the folder from a copy, or start again without "
         "--resume (add --overwrite to replace the run).");
  if (!checkpoint)
    fail("no checkpoint to continue from", printable(root),
         "Start again without --resume (add --overwrite to replace the run).");
  return std::move(*checkpoint);
}

Choices::Table kernel_choices(const Checkpoint& checkpoint, const Report& warn) {
  const std::string* text = checkpoint.file(choices_file);
  if (!text) return {};
  try {
    return parse_choices(*text, join_path(checkpoint.path(), choices_file));
  } catch (const Error& e) {
    warn(fmt::format("kernels are chosen again: {}", e.what()));
    return {};
  }
}

RunState parse_run_state(const std::string& text, const std::string& where) { return run_state({text, where}); }

// Converts a slot's history to `steps` steps (passes/fp8.h). Row 0 is the maximum of all steps. The
// oldest step has no row. If the history gets longer, the maximum stands for it. This is correct
// while the step is in the history.
static std::vector<float> rows_for(std::vector<float> rows, size_t steps) {
  const size_t saved = rows.size();
  if (saved == 0 || saved == steps) return rows;
  if (steps < saved) rows[0] = *std::max_element(rows.begin() + 1, rows.begin() + 1 + ptrdiff_t(steps));
  rows.resize(steps);
  if (steps > saved) rows[saved] = rows[0];
  return rows;
}

// Entries missing in the checkpoint (a run without fp8) are 0: the first step scales by its own
// values.
static void restore_fp8_amax(Engine& engine, const StateFile& get) {
  int update = engine.session().find("update");
  if (update < 0 || !engine.rank(0).has(update, fp8_amax)) return;
  std::vector<std::string> slots = fp8_slots(engine.session().programs[size_t(update)].program);
  TensorRef table = engine.rank(0).tensor(update, fp8_amax);
  std::vector<float> amax(table.floats().size());
  const size_t steps = amax.size() / slots.size();
  if (get.json.contains("fp8_amax")) {
    StateFile history(get.json["fp8_amax"], get.where + ", fp8_amax");
    for (size_t s = 0; s < slots.size(); ++s) {
      std::vector<float> saved = history.numbers(slots[s].c_str(), 0);
      saved = rows_for(std::move(saved), steps);
      for (size_t h = 0; h < saved.size(); ++h) amax[h * slots.size() + s] = saved[h];
    }
  }
  table.set_floats(amax.data(), int64_t(amax.size()));
}

RunState restore(Engine& engine, const Checkpoint& checkpoint, const std::string& run, const std::string& base) {
  StateFile get(checkpoint);
  if (auto step = get.whole<int64_t>("step", 0, most_checkpoint_steps); step != checkpoint.step())
    get.refuse("step", fmt::format("is {}, but the checkpoint is of step {}", step, checkpoint.step()));
  RunState state = run_state(get);
  check_model(engine.session().recipe.model, checkpoint, run);
  check_samples(engine, get, state.step, checkpoint, run);
  Scalars s = engine.rank(0).scalars();
  read_scalars(get, state.step, s);
  engine.load([&] {
    if (engine.session().recipe.model.lora.rank) {
      LoadedModel model = open_model(Checkpoint::open(checkpoint.path()));
      if (!base.empty()) model.base_path = state.base = base;
      load_weights(engine.rank(0), model);
    } else {
      load_weights(engine.rank(0), checkpoint);
    }
    load_optimizer(engine.rank(0), checkpoint);
    engine.rank(0).set_scalars(s);
    restore_fp8_amax(engine, get);
  });
  return state;
}

static void bind_to_base(RunState& state, const LoadedModel& model) {
  const bool adapter = model.config.lora.rank > 0;
  state.base = std::filesystem::absolute(adapter ? model.base_path : model.weights_path).string();
  state.base_hash = model.base_hash;
  if (state.base_hash.empty()) state.base_hash = adapter ? weights_hash(open_base(model)) : weights_hash(model);
}

void load_initial_weights(Engine& engine, const LoadedModel& model, RunState& state) {
  if (engine.session().recipe.model.lora.rank) bind_to_base(state, model);
  engine.load([&] {
    load_weights(engine.rank(0), model);
    if (std::string tensor = not_finite_weight(engine.rank(0)); !tensor.empty())
      fail(fmt::format("weight {} has NaN or infinity", printable(tensor)), printable(model.weights_path),
           "Give --init weights that are finite, such as an earlier checkpoint.");
  });
}

// A damaged checkpoint does not count as finite. An unreadable one is an error: its state is
// unknown.
static bool says_finite(const std::string& folder) {
  try {
    return Checkpoint::open(folder).finite_weights();
  } catch (const SystemError& e) {
    if (!e.missing()) throw;
    return false;
  } catch (const Error&) {
    return false;
  }
}

int64_t newest_finite(const std::string& root) {
  for (auto& folder : list_checkpoints(root))
    if (says_finite(join_path(root, folder.name))) return folder.step;
  return -1;
}

void keep_newest(const std::string& root, int keep) {
  auto folders = list_checkpoints(root);
  if (keep <= 0 || folders.size() <= size_t(keep)) return;
  CheckpointRoot open(root);
  if (open.linked()) return;
  int64_t finite = newest_finite(root);
  const std::string best = labeled_checkpoint(root, best_label);
  int kept = 0;
  for (auto& folder : folders)
    if (++kept > keep && folder.name != best && folder.step != finite) open.discard(folder.name);
}

void label_best(const std::string& root, int64_t step) {
  CheckpointRoot open(root);
  if (const std::string path = join_path(root, best_label);
      std::filesystem::symlink_status(path).type() == std::filesystem::file_type::directory)
    fail("is a folder, not a link", printable(path), "Move it away.");
  const std::string name = checkpoint_name(std::max<int64_t>(step, 0));
  if (step >= 0 && open.folder().has(name)) return label_checkpoint(open.folder(), best_label, name);
  if (!labeled_checkpoint(root, best_label).empty()) open.folder().remove(best_label);
}

int64_t newest_until(const std::string& root, int64_t step) {
  for (auto& folder : list_checkpoints(root))
    if (folder.step <= step) return folder.step;
  return -1;
}

int reject_newer(const std::string& root, int64_t step) {
  auto folders = list_checkpoints(root);
  if (folders.empty() || folders[0].step <= step) return 0;
  CheckpointRoot open(root);
  const std::string best = labeled_checkpoint(root, best_label), latest = labeled_checkpoint(root, latest_label);
  int count = 0;
  for (auto& found : folders) {
    if (found.step <= step) break;
    if (found.name == best) open.folder().remove(best_label);
    std::string aside = ".rejected-" + found.name;
    if (open.folder().has(aside)) open.discard(aside);
    open.folder().rename(found.name, aside);
    ++count;
  }
  if (!latest.empty() && !open.folder().has(latest)) {
    if (auto left = list_checkpoints(root); !left.empty())
      label_checkpoint(open.folder(), latest_label, left[0].name);
    else
      open.folder().remove(latest_label);
  }
  open.folder().sync();
  return count;
}

std::string keep_good_checkpoints(const std::string& root, int64_t last_good, const std::string& run) try {
  auto saved = list_checkpoints(root);
  if (saved.empty()) return "no checkpoint was saved before that";
  for (auto& folder : saved) {
    if (folder.step >= last_good || !says_finite(join_path(root, folder.name))) continue;
    reject_newer(root, folder.step);
    return fmt::format("the last good checkpoint is {} (crest train --resume {})",
                       printable(join_path(root, folder.name)), shell_path(run));
  }
  return "no checkpoint is good, because all have weights of the steps before the failure, so start again (--overwrite "
         "replaces the run)";
} catch (const Error& e) {
  return fmt::format("which checkpoint is good is unknown ({})", e.what());
}

}  // namespace crest
