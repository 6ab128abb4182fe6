#include "advise/advise.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <fstream>
#include <memory>

#include "bench/phase_runner.h"
#include "core/error.h"
#include "core/json.h"
#include "core/text.h"

namespace crest {

namespace {

constexpr double least_gain = 0.01;

// Why a change that needs more memory than the device has is rejected; "" if it fits, or if the
// given settings do not fit either.
std::string too_large(const Finding& f, const AdviceCase& c, Planner& planner) {
  if (!f.recipe || planner.fits(*f.recipe) || !planner.fits(c.given)) return "";
  return fmt::format("{}; {} needs {} of {}", f.condition, f.change,
                     format_bytes(double(planner.planned_bytes(*f.recipe))), format_bytes(double(c.limit)));
}

// Why a change for speed is not worth it, by the prediction; "": it is.
std::string too_little(const Finding& f, const PredictedRatio& p) {
  if (!p.ratio || f.for_memory || *p.ratio <= 1 - least_gain) return "";
  double percent = 100 * (1 / *p.ratio - 1);
  std::string gain = percent < -0.05  ? fmt::format("to lower tokens/s by {:.1f}%", -percent)
                     : percent < 0.05 ? "not to change tokens/s"
                                      : fmt::format("to raise tokens/s by {:.1f}% only", percent);
  return fmt::format("{}; {} is predicted {} (from {})", f.condition, f.change, gain,
                     p.basis == "flops" ? "FLOPs" : p.basis);
}

void measure_into(Advice& advice, const AdviceCase& c, const AdviceOptions& o) {
  if (!advice.finding.recipe) {
    advice.not_measured = "Crest cannot make this change by itself";
    return;
  }
  try {
    std::vector<std::unique_ptr<PhaseRunner>> runners;
    std::vector<Contender> contenders;
    double tokens = double(c.recipe.tokens_per_step());
    int64_t bytes = 0;
    const Recipe *without = &c.given, *with = &*advice.finding.recipe;
    for (const Recipe* given : {without, with}) {
      CompiledSession session = compile_phase(resolve(*given, c.device), c.device, BenchPhase::step);
      bytes += session.planned_bytes();
      if (bytes > c.limit) {
        advice.not_measured =
            fmt::format("both need {} of {}", format_bytes(double(bytes)), format_bytes(double(c.limit)));
        return;
      }
      double scale = tokens / double(session.recipe.tokens_per_step());
      runners.push_back(std::make_unique<PhaseRunner>(std::move(session), BenchPhase::step, o.seed));
      contenders.push_back(
          {given == without ? "as given" : advice.finding.change, [&o, runner = runners.back().get(), scale] {
             o.check_interrupt();
             return runner->run() * scale;
           }});
    }
    AbResult r = compare_interleaved(
        contenders,
        {.warmup_rounds = 2, .min_rounds = 12, .max_rounds = 60, .max_seconds = o.max_seconds, .rounds_at_limit = 1});
    const Comparison& m = r.comparisons.at(0);
    advice.measured = {m.ratio, m.ratio_interval, m.verdict, r.noise_floor, r.rounds};
  } catch (const std::bad_alloc&) {
    advice.not_measured = "the system refused the allocation";
  } catch (const Error& e) {
    if (e.code() == Exit::interrupted) throw;
    advice.not_measured = e.problem();
  }
}

Checked check(const Rule& rule, const AdviceCase& c, Planner& planner) {
  try {
    return rule.check(c, planner);
  } catch (const Error& e) {  // other settings exclude the change
    if (e.code() != Exit::usage) throw;
    return {RuleStatus::not_applicable, e.problem(), {}};
  }
}

RuleResult apply(const Rule& rule, const AdviceCase& c, Planner& planner) {
  Checked checked = check(rule, c, planner);
  RuleResult result{&rule, checked.status, checked.text, {}};
  for (auto& f : checked.findings) {
    Advice a{f, {}, {}, {}, {}};
    if (f.time_ratio)
      a.predicted = {f.time_ratio, "formula", ""};
    else if (!f.recipe)
      a.predicted = {{}, "", "Crest does not plan this change"};
    else
      a.predicted = planner.ratio(c.given, *f.recipe, rule.needs);
    if (f.recipe) a.planned_bytes = planner.planned_bytes(*f.recipe);
    std::string why = too_large(f, c, planner);
    if (why.empty()) why = too_little(f, a.predicted);
    if (!why.empty()) {
      result.text += (result.text.empty() ? "" : "; ") + why;
      continue;
    }
    result.advice.push_back(std::move(a));
  }
  if (result.status == RuleStatus::advice && result.advice.empty()) result.status = RuleStatus::holds;
  return result;
}

}  // namespace

const char* name(RuleStatus s) {
  return s == RuleStatus::advice ? "advice" : s == RuleStatus::holds ? "holds" : "not_applicable";
}

size_t AdviceReport::count(RuleStatus status) const {
  return size_t(std::count_if(rules.begin(), rules.end(), [&](auto& r) { return r.status == status; }));
}

AdviceReport advise(const AdviceCase& c, const AdviceOptions& o, const std::function<void(const std::string&)>& say) {
  AdviceReport report;
  Planner planner(c);
  report.planned_bytes = planner.planned_bytes();
  for (auto& rule : rules()) {
    o.check_interrupt();
    report.rules.push_back(apply(rule, c, planner));
  }
  for (auto& r : report.rules)
    for (auto& a : r.advice) {
      if (!o.measure) continue;
      say(fmt::format("measuring {}: {} ...", r.rule->id, a.finding.change));
      measure_into(a, c, o);
    }
  return report;
}

RunWaits waits_of_run(const std::string& folder) {
  constexpr size_t most = 200;
  std::string path = folder + "/log.jsonl";
  std::ifstream in(path);
  if (!in) fail("the run has no log", printable(path), "Give the folder of a run (its --out).");
  std::deque<std::pair<double, double>> rows;
  for (std::string line; std::getline(in, line);) {
    if (line.find("\"wait_ms\"") == std::string::npos) continue;
    nlohmann::json row = parse_json_guarded(line, {.bytes = 1 << 16, .values = 100}, path);
    auto number = [&](const char* key) {
      auto it = row.is_object() ? row.find(key) : row.end();
      return row.is_object() && it != row.end() && it->is_number() ? it->get<double>() : 0.0;
    };
    rows.emplace_back(number("step_ms"), number("wait_ms"));
    if (rows.size() > most) rows.pop_front();
  }
  RunWaits waits;
  for (auto& [step, wait] : rows) ++waits.steps, waits.step_ms += step, waits.wait_ms += wait;
  return waits;
}

}  // namespace crest
