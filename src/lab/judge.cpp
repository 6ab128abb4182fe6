#include "lab/judge.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/text.h"
#include "lab/columns.h"
#include "lab/experiment_file.h"

namespace crest::lab {

const char* name(Verdict v) {
  return v == Verdict::upheld ? "upheld" : v == Verdict::refuted ? "refuted" : "cannot tell here";
}

const char* label(Verdict v) { return v == Verdict::cannot_tell ? "inconclusive" : name(v); }

std::string verdict_counts(const std::array<size_t, 3>& counts) {
  size_t all = counts[0] + counts[1] + counts[2];
  return fmt::format("{} claim{}: {} {}, {} {}, {} {}", all, all == 1 ? "" : "s", counts[0], label(Verdict::upheld),
                     counts[1], label(Verdict::refuted), counts[2], label(Verdict::cannot_tell));
}

Value device_property(const Device& d, const std::string& name) {
  if (name == "cpu") return Value::yes_no(d.kind == "cpu");
  if (name == "cuda") return Value::yes_no(d.kind == "cuda");
  if (name == "native_bf16") return Value::yes_no(d.native_bf16);
  if (name == "cudnn") return Value::yes_no(d.cudnn);
  if (name == "sm") return Value::number(d.sm);
  if (name == "threads") return Value::number(d.threads);
  if (name == "multiprocessors") return Value::number(d.multiprocessors);
  if (name == "shared_memory") return Value::number(double(d.shared_per_block));
  if (name == "memory") return Value::number(double(d.kind == "cuda" ? d.total_memory : d.memory));
  fail_internal("not a device property: " + name);
}

static Value run(const Formula& f, const Scope& scope) {
  try {
    return evaluate(f.expression, f.text, scope);
  } catch (const ExpressionError& e) {
    fail_formula(f, e);
  }
}

void add_columns(const Experiment& e, const Table& detail, Row& row) {
  Scope scope;
  scope.table = &detail;
  scope.name = [&](const std::string& name) { return column_of(row, name); };
  for (auto& f : e.columns) row.columns[f.name] = run(f, scope);
}

void widen_times(Table& table, double floor) {
  // Half on each side: (1 + h) / (1 - h) = 1 + floor.
  double half = floor / (2 + floor);
  for (auto& row : table.rows)
    for (auto& [column, v] : row.columns) {
      const ColumnInfo* info = find_column(column);
      bool timed = info ? info->unit == ColumnInfo::Unit::ms || column == "tokens_per_second" || column == "tflops"
                        : column.ends_with("_ms");
      if (!timed || !v.known()) continue;
      if (row.round_ms.empty())
        v = Value::range(v.x, v.low * (1 - half), v.high * (1 + half));
      else  // the floor comes from such rows, so it includes the spread within a round
        v = Value::range(v.x, std::min(v.low, v.x * (1 - half)), std::max(v.high, v.x * (1 + half)));
    }
}

namespace {

class Judge {
 public:
  Judge(Result& result, const Device& device) : r_(result), e_(*result.experiment), device_(device) {
    scope_.table = &r_.table;
    scope_.name = [this](const std::string& name) { return value_of(name); };
  }

  void run_all() {
    for (auto& q : e_.quantities) r_.quantities.emplace_back(q.name, run(q, scope_));
    for (auto& c : e_.claims) r_.claims.push_back(claim(c));
    for (auto& t : e_.then) r_.then.push_back(run(t.here, scope_));
  }

 private:
  Value value_of(const std::string& name) const {
    for (auto& [known, value] : r_.quantities)
      if (known == name) return value;
    return device_property(device_, name);
  }

  ClaimResult claim(const Claim& c) const {
    ClaimResult result;
    if (!c.needs.text.empty() && run(c.needs, scope_).truth != Truth::yes) {
      result.reason = fmt::format("requires {}; this device is {}", c.needs.text, device_.name);
      return result;
    }
    Scope scope = scope_;
    scope.observe = [&](const std::string& what, const Value& v) {
      bool known = std::any_of(result.figures.begin(), result.figures.end(), [&](auto& f) { return f.first == what; });
      if (!known) result.figures.emplace_back(what, v);
    };
    Value v = run(c.check, scope);
    if (v.known() && v.type != Value::Type::truth)
      fail_formula(c.check, {"a claim must be a comparison", "For example ratio(ms, ...) >= 1.5.", 0});
    if (!v.known()) {
      result.reason = v.unknown;
      if (result.reason == no_row) result.reason += " at scale " + r_.scale;
      if (r_.cells_left > 0) result.reason += fmt::format(" ({} cells not measured yet)", r_.cells_left);
    } else {
      result.verdict = v.truth == Truth::yes ? Verdict::upheld : Verdict::refuted;
    }
    return result;
  }

  Result& r_;
  const Experiment& e_;
  const Device& device_;
  Scope scope_;
};

}  // namespace

void judge(Result& result, const Device& device) { Judge(result, device).run_all(); }

}  // namespace crest::lab
