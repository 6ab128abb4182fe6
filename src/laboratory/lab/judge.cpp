#include "lab/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/text.h"
#include "lab/columns.h"
#include "lab/experiment_file.h"

namespace crest::lab {

const char* name(Verdict v) {
  switch (v) {
    case Verdict::upheld: return "upheld";
    case Verdict::refuted: return "refuted";
    case Verdict::cannot_tell: return "cannot tell here";
    case Verdict::not_comparable: return "not_comparable";
  }
  return "";
}

const char* label(Verdict v) {
  if (v == Verdict::not_comparable) return "not comparable";
  return v == Verdict::cannot_tell ? "inconclusive" : name(v);
}

std::string verdict_counts(const VerdictCounts& counts) {
  size_t all = 0;
  std::vector<std::string> parts;
  for (Verdict v : verdicts) {
    all += counts[size_t(v)];
    parts.push_back(fmt::format("{} {}", counts[size_t(v)], label(v)));
  }
  return fmt::format("{} claim{}: {}", all, all == 1 ? "" : "s", join(parts, ", "));
}

std::string whole_text(const std::vector<std::string>& claims, size_t i) {
  auto continues = [&](size_t k) { return claims[k].starts_with("..."); };
  if (!continues(i)) return claims[i];
  size_t first = i;
  while (first > 0 && continues(first)) --first;
  return first == i ? claims[i] : claims[first] + " " + claims[i];
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
      bool timed = unit_of_column(column) == Unit::ms || column == "tokens_per_second" || column == "tflops" ||
                   column.ends_with("_share") || column.ends_with("_time_ratio");
      if (!timed || !v.known()) continue;
      if (row.round_ms.empty())
        v = Value::range(v.x, v.low * (1 - half), v.high * (1 + half));
      else  // this floor already includes the spread within a round
        v = Value::range(v.x, std::min(v.low, v.x * (1 - half)), std::max(v.high, v.x * (1 + half)));
    }
}

namespace {

// "GPT-2 124M on an H100", or the named conditions: "model gpt2-124M, batch 16, cuda".
std::string subject_of(const Conditions& c) {
  if (!c.about.empty()) return c.about;
  std::vector<std::string> parts;
  for (auto& f : c.where) parts.push_back(f.key + " " + f.pattern);
  if (!c.needs.text.empty()) parts.push_back("a device with " + c.needs.text);
  return join(parts, ", ");
}

// The rows of a claim, and the quantities over them.
class Rows {
 public:
  Rows(const Experiment& e, const Device& device, const Table& all, const std::vector<Filter>& where)
      : device_(device) {
    for (auto& row : all.rows)
      if (matches(row, where)) table_.rows.push_back(row);
    scope_.table = &table_;
    scope_.name = [this](const std::string& name) { return value_of(name); };
    for (auto& q : e.quantities) quantities_.emplace_back(q.name, run(q, scope_));
  }
  Rows(const Rows&) = delete;

  bool empty() const { return table_.rows.empty(); }
  // Why no row can run here; "": some do.
  std::string absent() const {
    std::string why;
    for (auto& row : table_.rows) {
      auto status = row.keys.find("status");
      if (status == row.keys.end() || status->second != "absent") return "";
      if (why.empty()) why = row.absent;
    }
    return why;
  }
  const Scope& scope() const { return scope_; }
  const std::vector<std::pair<std::string, Value>>& quantities() const { return quantities_; }

 private:
  Value value_of(const std::string& name) const {
    for (auto& [known, value] : quantities_)
      if (known == name) return value;
    return device_property(device_, name);
  }

  const Device& device_;
  Table table_;
  Scope scope_;
  std::vector<std::pair<std::string, Value>> quantities_;
};

class Judge {
 public:
  Judge(Result& result, const Device& device)
      : r_(result), e_(*result.experiment), device_(device), all_(e_, device, result.table, {}) {}

  void run_all() {
    r_.quantities = all_.quantities();
    for (auto& c : e_.claims) r_.claims.push_back(claim(c));
    for (auto& t : e_.then) r_.then.push_back(then(t));
  }

 private:
  // The values of a key in the rows that can run here; "" if no row has the key, or there are too
  // many values.
  std::string ran(const std::string& key) const {
    std::set<std::string> values;
    for (auto& row : r_.table.rows) {
      auto it = row.keys.find(key), status = row.keys.find("status");
      bool absent = status != row.keys.end() && status->second == "absent";
      if (e_.kind != Kind::plan && row.keys.count("device")) absent = true;  // only planned
      if (it != row.keys.end() && !absent) values.insert(it->second);
    }
    constexpr size_t most = 4;
    if (values.size() > most) return "";
    return join({values.begin(), values.end()}, ", ");
  }

  // "the claim is about GPT-2 124M on an H100; here nano with batch 2 ran on a CPU"
  std::string why_not(const Conditions& c) const {
    std::string model = ran("model"), device = r_.device;
    std::vector<std::string> others;
    for (auto& f : c.where)
      if (f.key != "model" && !ran(f.key).empty()) others.push_back(f.key + " " + ran(f.key));
    std::string here = "this is " + device;
    if (!model.empty() || !others.empty()) {
      std::string with = model.empty() || others.empty() ? "" : " with ";
      here = fmt::format("here {}{}{} {} {}", model, with, join(others, ", "),
                         e_.kind == Kind::plan ? "was planned for" : "ran on", device);
    }
    return fmt::format("the claim is about {}; {}", subject_of(c), here);
  }

  // The measured figures in the part of `needs` that is not met: ": value(cudnn, a=b) = 9.19.0".
  std::string unmet_figures(const Formula& needs) const {
    const Expression* part = &needs.expression;
    auto met = [&](const Expression& e) {
      Value v = evaluate(e, needs.text, all_.scope());
      return v.known() && v.truth == Truth::yes;
    };
    while (part->kind == Expression::Kind::binary && part->token == "and")
      part = &part->inner[met(part->inner[0]) ? 1 : 0];
    Scope scope = all_.scope();
    std::vector<std::string> figures;
    scope.observe = [&](const std::string& what, const Value& v) {
      if (v.known() && what.find('(') != std::string::npos) figures.push_back(what + " = " + describe(v));
    };
    evaluate(*part, needs.text, scope);
    return figures.empty() ? "" : ": " + join(figures, "; ");
  }

  // Why the measurements do not meet the conditions of a claim; "": they do.
  std::string not_comparable(const Conditions& c, const Rows& rows) const {
    std::string about = "the claim is about " + subject_of(c) + "; ";
    if (!c.unavailable.empty()) return about + c.unavailable;
    Value met = c.needs.text.empty() ? Value::yes_no(true) : run(c.needs, all_.scope());
    if (met.truth != Truth::yes && (met.known() || r_.measurements_left == 0))
      return why_not(c) + unmet_figures(c.needs);
    if (c.where.empty() || r_.measurements_left > 0) return "";
    if (rows.empty()) return why_not(c);
    std::string absent = rows.absent();
    return absent.empty() ? "" : about + "here " + absent;
  }

  ClaimResult claim(const Claim& c) const {
    ClaimResult result;
    Rows rows(e_, device_, r_.table, c.conditions.where);
    result.reason = not_comparable(c.conditions, rows);
    if (result.reason.empty())
      judge_rows(c, rows, result);
    else
      result.verdict = Verdict::not_comparable;
    return result;
  }

  void judge_rows(const Claim& c, const Rows& rows, ClaimResult& result) const {
    Scope scope = rows.scope();
    scope.observe = [&](const std::string& what, const Value& v) {
      bool known = std::any_of(result.figures.begin(), result.figures.end(), [&](auto& f) { return f.first == what; });
      if (!known) result.figures.emplace_back(what, v);
    };
    if (const Formula& evidence = c.conditions.evidence; !evidence.text.empty()) {
      Value shown = run(evidence, scope);
      if (!shown.known() || shown.truth != Truth::yes) {
        result.reason = shown.known() ? c.conditions.lacking : why_unknown(shown);
        return;
      }
      result.figures.clear();
    }
    Value v = run(c.check, scope);
    if (v.known() && v.type != Value::Type::truth)
      fail_formula(c.check, {"a claim must be a comparison", "For example ratio(ms, ...) >= 1.5.", 0});
    if (v.known())
      result.verdict = v.truth == Truth::yes ? Verdict::upheld : Verdict::refuted;
    else
      result.reason = why_unknown(v);
  }

  std::string why_unknown(const Value& v) const {
    if (!v.unknown.starts_with(no_row)) return v.unknown;
    std::string left;
    if (r_.measurements_left > 0)
      left = " (" + format_number_of(int64_t(r_.measurements_left), "measurement") + " not measured yet)";
    return v.unknown + " at scale " + r_.scale + left;
  }

  Value then(const Then& t) const {
    Rows rows(e_, device_, r_.table, t.conditions.where);
    std::string why = not_comparable(t.conditions, rows);
    return why.empty() ? run(t.here, rows.scope()) : Value::missing(why);
  }

  Result& r_;
  const Experiment& e_;
  const Device& device_;
  Rows all_;
};

}  // namespace

void judge(Result& result, const Device& device) { Judge(result, device).run_all(); }

}  // namespace crest::lab
