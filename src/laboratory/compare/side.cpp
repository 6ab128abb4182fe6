#include "compare/side.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "core/text.h"
#include "profile/class_label.h"
#include "stats/samples.h"
#include "store/step_times.h"

namespace crest {

namespace {

// 0: unknown. An imported log has only batch and sequence length, or neither.
double tokens_of(const Json& recipe) {
  double tokens = number(recipe, "batch") * number(recipe, "seq");
  for (const char* key : {"grad_accumulation", "ranks", "data_parallel"}) tokens *= number(recipe, key, 1);
  return tokens;
}

std::vector<double> steps_by_rate(const RunRecord& r, double tokens) {
  std::vector<double> ms;
  for (auto& row : after_warmup(r.log))
    if (tokens > 0 && row.tokens_per_second > 0) ms.push_back(1e3 * tokens / row.tokens_per_second);
  return ms;
}

std::vector<double> step_samples(const ComparedSide& s, const RunRecord& r) {
  if (auto times = step_times(r); !times.empty()) return times;
  if (s.profiled && !s.profile.step_ms.empty()) return s.profile.step_ms;
  if (auto logged = steps_by_rate(r, tokens_of(s.recipe)); !logged.empty()) return logged;
  if (double median = number(r.result, "step_ms_median"); median > 0) return {median};
  return {};
}

// Copies and memsets outside instructions, and kernels of a trace without instructions.
std::vector<ProfileInstr> rows_of(const Profile& p) {
  std::vector<ProfileInstr> rows = p.instrs;
  for (auto& k : p.kernels) {
    if (k.instr >= 0) continue;
    ProfileInstr row;
    row.op = "copy", row.kernel = k.name, row.op_class = "movement", row.phase = "copies", row.stream = "copy";
    row.calls = int(k.count);
    row.ms = k.ms;
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<std::string> strings_at(const Json& json, const std::string& key) {
  std::vector<std::string> list;
  if (const Json* m = member(json, key); m && m->is_array())
    for (auto& word : *m)
      if (word.is_string()) list.push_back(word.get<std::string>());
  return list;
}

std::vector<ProfileInstr> rows_of_program(const Json& document) {
  std::vector<ProfileInstr> rows;
  const Json* instrs = member(document, "instrs");
  if (!instrs || !instrs->is_array()) return rows;
  for (auto& json : *instrs) {
    ProfileInstr r;
    r.program = string_at(json, "program"), r.index = int(number(json, "index"));
    r.op = string_at(json, "op"), r.kernel = string_at(json, "kernel"), r.phase = string_at(json, "phase");
    r.stream = string_at(json, "lane"), r.op_class = read_op_class(string_at(json, "op_class")),
    r.type = string_at(json, "type");
    r.arithmetic = string_at(json, "arithmetic"), r.parts = strings_at(json, "parts"),
    r.scopes = strings_at(json, "scopes");
    r.layer = int(number(json, "layer", -1)), r.calls = int(number(json, "calls", 1));
    r.flops = number(json, "flops"), r.bytes = number(json, "bytes");
    rows.push_back(std::move(r));
  }
  return rows;
}

// Tokens per step, from steps with time and rate in the log. Logs round both.
double logged_tokens(const RunRecord& r) {
  std::vector<double> tokens;
  for (auto& row : r.log)
    if (row.tokens_per_second > 0 && row.step_ms > 0) tokens.push_back(row.tokens_per_second * row.step_ms / 1e3);
  return tokens.empty() ? 0 : std::round(Samples(tokens).median());
}

void fill_memory(ComparedSide& s, const RunRecord& r) {
  ComparedRun& run = s.run;
  if (s.profiled) {
    run.planned_bytes = s.profile.memory.planned_bytes;
    run.measured_peak_bytes = s.profile.memory.measured_peak_bytes;
    run.device_peak_bytes = s.profile.memory.device_peak_bytes;
  }
  const Json* memory = member(r.result, "memory");
  if (!memory) return;
  auto take = [&](int64_t& field, const char* key) {
    if (!field) field = int64_t(number(*memory, key));
  };
  take(run.planned_bytes, "planned_bytes");
  take(run.measured_peak_bytes, "measured_peak_bytes");
  take(run.device_peak_bytes, "device_peak_bytes");
}

void fill_run(ComparedSide& s, const RunRecord& r, const std::string& title) {
  ComparedRun& run = s.run;
  run.title = title;
  run.uid = r.uid, run.name = r.name, run.kind = r.kind;
  run.phase = s.profiled ? s.profile.phase : r.phase;
  run.device = string_at(s.device, "name");
  run.profiled = s.profiled;
  run.predicted = s.profiled && s.profile.method == "predicted";
  run.out_of_memory = r.status == "out_of_memory" || string_at(r.result, "error") == "out_of_memory";
  run.samples = int64_t(s.step_ms.size());
  if (!s.step_ms.empty()) {
    Samples samples(s.step_ms);
    run.step_ms = samples.median();
    run.step_interval = samples.median_interval();
  }
  run.tokens = s.profiled && s.profile.tokens > 0 ? s.profile.tokens : int64_t(tokens_of(s.recipe));
  bool imported = r.kind == "log";  // the logged steps override the given batch
  if (double tokens = logged_tokens(r); tokens > 0 && (imported || run.tokens == 0)) run.tokens = int64_t(tokens);
  double rate = logged_rate(r) > 0 ? logged_rate(r) : number(r.result, "tokens_per_second");
  run.tokens_per_second = run.tokens > 0 && run.step_ms > 0 ? 1e3 * double(run.tokens) / run.step_ms : rate;
  run.recipe_known = s.recipe.is_object() && !s.recipe.empty() && r.kind != "log";
  run.has_instructions = s.profile.method != "torch.profiler";
  if (s.profiled) {
    run.launches = s.profile.launches;
    run.busy_ms = s.profile.busy_ms, run.idle_ms = s.profile.idle_ms;
  }
  fill_memory(s, r);
}

const Json& first_known(const Json& x, const Json& y) { return x.is_object() && !x.empty() ? x : y; }

}  // namespace

const Json* member(const Json& json, const std::string& key) {
  if (!json.is_object()) return nullptr;
  auto it = json.find(key);
  return it == json.end() || it->is_null() ? nullptr : &*it;
}

double number(const Json& json, const std::string& key, double otherwise) {
  const Json* m = member(json, key);
  return m && m->is_number() ? m->get<double>() : otherwise;
}

std::string string_at(const Json& json, const std::string& key) {
  const Json* m = member(json, key);
  return m && m->is_string() ? m->get<std::string>() : "";
}

double ComparedSide::rows_ms() const {
  double sum = 0;
  for (auto& r : rows) sum += r.ms;
  return sum;
}

double ComparedSide::overlap_ms() const {
  if (profile.intervals.empty()) return profile.busy_ms > 0 ? std::max(0.0, rows_ms() - profile.busy_ms) : 0;
  double sum = 0;
  for (auto& i : profile.intervals) sum += i.ms;
  return std::max(0.0, sum - profile.busy_ms);
}

ComparedSide open_side(const RunRecord& record, const std::string& title) {
  ComparedSide s;
  s.record = &record;
  auto document = record.documents.find("profile");
  if (document != record.documents.end()) {
    s.profile = profile_from_json(document->second, title);
    s.rows = rows_of(s.profile);
    s.profiled = !s.rows.empty();
  } else if (auto program = record.documents.find("program"); program != record.documents.end()) {
    s.rows = rows_of_program(program->second);
  }
  s.recipe = first_known(record.recipe, s.profile.recipe);
  s.device = first_known(record.device, s.profile.device);
  s.environment = first_known(record.environment, s.profile.environment);
  s.step_ms = step_samples(s, record);
  s.with_profiler = s.profiled && s.profile.step_ms == s.profile.profiled_ms;
  if (s.step_ms.empty() && s.profiled) {
    s.with_profiler = true;
    s.step_ms = s.profile.profiled_ms;
    if (s.step_ms.empty()) s.step_ms = {s.profile.span_ms > 0 ? s.profile.span_ms : s.rows_ms()};
  }
  fill_run(s, record, title);
  return s;
}

bool is_quadratic(const std::string& type, const ComparedSide& side) {
  auto d = dimensions(type);
  int64_t seq = int64_t(number(side.recipe, "seq"));
  return seq > 1 && d.size() >= 4 && d[d.size() - 1] == seq && d[d.size() - 2] == seq;
}

bool same_device(const ComparedSide& a, const ComparedSide& b) {
  for (const char* key : {"kind", "name", "threads"}) {
    const Json *x = member(a.device, key), *y = member(b.device, key);
    if (!x || !y) return false;
    if (*x != *y) return false;
  }
  return true;
}

}  // namespace crest
