#include "compare/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "compare/parts.h"
#include "compare/scaling.h"
#include "compare/sentences.h"
#include "compare/side.h"
#include "compare/waterfall.h"
#include "core/error.h"
#include "core/shell_word.h"
#include "core/text.h"
#include "plan/recipe_settings.h"
#include "stats/ab.h"
#include "stats/noise.h"
#include "stats/samples.h"
#include "store/step_times.h"

namespace crest {

namespace {

constexpr double residual_limit = 0.05;

std::string described(const ComparedSide& s) {
  std::string name = s.run.name.empty() ? s.run.uid : s.run.name;
  std::string kind = s.run.kind.empty() ? "run" : s.run.kind;
  return fmt::format("{} ({} {})", s.run.title, kind, name.empty() ? "unnamed" : printable(name));
}

// The phase of a run. A training run is a series of steps.
std::string phase_of(const ComparedSide& s) { return s.run.phase.empty() ? "step" : s.run.phase; }

// The command for measuring this recipe.
std::string profile_command(const ComparedSide& s, const std::string& phase) {
  std::string command = "crest profile";
  for (auto& flag : recipe_flags(s.recipe)) {
    size_t equals = flag.find('=');
    command += " " + printable(flag.substr(0, equals));
    if (equals != std::string::npos) command += " " + printed_word(flag.substr(equals + 1));
  }
  if (phase != "step") command += " --phase " + phase;
  return command;
}

void check_comparable(const ComparedSide& a, const ComparedSide& b) {
  for (auto* s : {&a, &b}) {
    bool anything = !s->step_ms.empty() || s->run.planned_bytes > 0 || !s->record->log.empty();
    if (anything) continue;
    std::string status = s->record->status.empty() ? "nothing" : "status " + s->record->status;
    std::string why = s->record->error.empty() ? "" : ": " + printable(s->record->error);
    fail(fmt::format("{} has no times, no memory and no log ({}{})", described(*s), status, why), "compare",
         "Compare runs that have finished: crest runs list.");
  }
  if (phase_of(a) == phase_of(b)) return;
  bool a_is_step = phase_of(a) == "step";
  fail(fmt::format("{} measures phase {}, {} phase {}: different work", described(a), phase_of(a), described(b),
                   phase_of(b)),
       "compare",
       fmt::format("Measure both in the same phase, for example {}: {}", a_is_step ? "A" : "B",
                   a_is_step ? profile_command(a, phase_of(b)) : profile_command(b, phase_of(a))));
}

// The noise floor measured with this run, or known when it ran.
double measured_floor(const ComparedSide& s) {
  double floor = number(s.record->result, "noise_floor", -1);
  if (const Json* known = member(s.record->result, "known_noise_floor"); known && floor < 0)
    floor = number(*known, "relative", -1);
  return floor;
}

// Both are predicted from the same measurements.
bool same_calibration(const ComparedSide& a, const ComparedSide& b) {
  const Json *of_a = member(a.record->result, "calibration"), *of_b = member(b.record->result, "calibration");
  return a.run.predicted && b.run.predicted && of_a && of_b && *of_a == *of_b;
}

// The predicted time of instructions found in only one of two steps, by kernel, types and size.
double differing_ms(const ComparedSide& a, const ComparedSide& b) {
  std::map<std::string, std::array<double, 2>> ms;
  for (int side : {0, 1})
    for (auto& r : (side ? b : a).rows)
      ms[fmt::format("{} {} {} {} {} {}", r.kernel, r.arithmetic, r.type, join(r.parts, "+"),
                     r.flops / std::max(1, r.calls), r.bytes / std::max(1, r.calls))][size_t(side)] += r.ms;
  double sum = 0;
  for (auto& [key, of] : ms) sum += std::abs(of[0] - of[1]);
  return sum;
}

// Each of two predictions may be off by its range. With one calibration, both are equally wrong
// about the work they share, so only the differing work counts.
double floor_between(const ComparedSide& a, const ComparedSide& b) {
  double of_a = measured_floor(a), of_b = measured_floor(b);
  if (!a.run.predicted || !b.run.predicted || of_a < 0 || of_b < 0) return std::max(of_a, of_b);
  double apart = (1 + of_a) * (1 + of_b) - 1, smaller = std::min(a.run.step_ms, b.run.step_ms);
  if (!same_calibration(a, b) || !(smaller > 0)) return apart;
  return std::min(apart, std::max(of_a, of_b) * differing_ms(a, b) / smaller);
}

// Samples of the step's time, or of the time per token.
std::vector<double> times_of(const ComparedSide& s, bool per_token) {
  std::vector<double> list = s.step_ms;
  if (per_token)
    for (double& ms : list) ms /= double(s.run.tokens);
  return list;
}

bool same_work(const GroupSide& a, const GroupSide& b) {
  return a.uses == b.uses && a.calls == b.calls && a.layers == b.layers && a.flops == b.flops && a.bytes == b.bytes;
}

double median_of(std::vector<double> values) { return Samples(std::move(values)).median(); }

// The spread of ln(time of B / time of A) around its median, over groups with equal work on the
// same device. A common factor (another clock) is not scatter. Twice the standard deviation,
// estimated from the median absolute deviation.
double scatter_of_equal_groups(const RunComparison& c) {
  constexpr size_t fewest = 5;
  constexpr double deviation_of_median = 1.4826;
  std::vector<double> logs;
  double least_a = 1e-3 * c.a.step_ms, least_b = 1e-3 * c.b.step_ms;
  for (auto& cause : c.causes)
    if (cause.a.ms > least_a && cause.b.ms > least_b && same_work(cause.a, cause.b))
      logs.push_back(std::log(cause.b.ms / cause.a.ms));
  if (logs.size() < fewest) return 0;
  double middle = median_of(logs);
  for (double& x : logs) x = std::abs(x - middle);
  return std::expm1(2 * deviation_of_median * median_of(logs));
}

// Significant: above a thousandth of the step, and above the scatter of equal groups.
void mark_significant(RunComparison& c, bool same_device) {
  double scale_a = c.per_token ? 1 / double(c.a.tokens) : 1, scale_b = c.per_token ? 1 / double(c.b.tokens) : 1;
  double least = 1e-3 * std::max(scale_a * c.a.step_ms, scale_b * c.b.step_ms);
  if (same_device && c.a.profiled && c.b.profiled) c.row_noise = scatter_of_equal_groups(c);
  double relative = std::max({c.noise.floor, 0.02, c.row_noise}), squares = 0;
  for (auto& cause : c.causes) {
    double size = std::abs(c.per_token ? cause.ms_per_token : cause.ms);
    double larger = std::max(scale_a * cause.a.ms, scale_b * cause.b.ms);
    cause.significant = size > least && size > relative * larger;
    squares += c.row_noise * larger * c.row_noise * larger;
  }
  c.explained_noise = std::sqrt(squares);
}

// The values of a log by step. A repeated step (after --resume) counts as last run.
std::map<int64_t, double> by_step(const std::vector<LogRow>& log, double LogRow::*field) {
  std::map<int64_t, double> values;
  for (auto& row : log)
    if (std::isfinite(row.*field)) values[row.step] = row.*field;
  return values;
}

// Whether both have interleaved rounds, but too few for a verdict (stats/ab.h).
bool too_few_rounds(const RunRecord& a, const RunRecord& b) {
  auto few = [](const RunRecord& r) {
    return !r.samples.empty() && !r.samples[0].contender.empty() && r.samples.size() < size_t(fewest_rounds);
  };
  return few(a) && few(b);
}

// Without a measured floor, only the runs' own samples can show a difference.
void doubt_without_floor(RunComparison& c) {
  if (c.noise.verdict == Verdict::cannot_tell || c.noise.floor_source != "assumed") return;
  c.scattered = std::log1p(c.row_noise) > std::abs(std::log(c.noise.ratio));
  bool splits = c.a.profiled && c.b.profiled, predicted = c.a.predicted || c.b.predicted;
  c.same_runs = !splits && !predicted && nothing_changed(c);
  if (c.scattered || c.same_runs) c.noise.verdict = Verdict::cannot_tell;
}

std::vector<LossRow> common(const std::vector<LogRow>& a, const std::vector<LogRow>& b, double LogRow::*field) {
  auto of_a = by_step(a, field), of_b = by_step(b, field);
  std::vector<LossRow> rows;
  for (auto& [step, loss] : of_a)
    if (auto it = of_b.find(step); it != of_b.end()) rows.push_back({step, loss, it->second});
  return rows;
}

void compare_training(RunComparison& c, const RunRecord& a, const RunRecord& b) {
  if (a.log.empty() || b.log.empty()) return;
  c.training.loss = common(a.log, b.log, &LogRow::loss);
  c.training.val_loss = common(a.log, b.log, &LogRow::val_loss);
  c.training.tokens_per_second_a = logged_rate(a);
  c.training.tokens_per_second_b = logged_rate(b);
}

void note_missing(RunComparison& c, const ComparedSide& a, const ComparedSide& b) {
  auto lacks_profile = [](const ComparedSide& s) { return !s.profiled && !s.run.out_of_memory; };
  auto command = [](const ComparedSide& s) {
    return s.recipe.is_object() ? profile_command(s, phase_of(s)) : std::string("crest profile RECIPE");
  };
  const bool neither = lacks_profile(a) && lacks_profile(b);
  if (neither)
    c.notes.push_back(fmt::format("{} and {} have no profiles, so their times are not split. To get them: {}{}",
                                  a.run.title, b.run.title, command(a),
                                  command(a) == command(b) ? "" : "; and: " + command(b)));
  for (auto* s : {&a, &b}) {
    const std::string& title = s->run.title;
    if (s->run.predicted)
      c.notes.push_back(
          fmt::format("The times of {} are predicted, not measured; its noise floor is half their range.", title));
    if (lacks_profile(*s) && !neither)
      c.notes.push_back(fmt::format("{} has no profile, so its time is not split. To get one: {}", title, command(*s)));
    if (s->with_profiler && !s->run.predicted)
      c.notes.push_back(
          fmt::format("{} was measured only with the profiler on, which may have slowed it down.", title));
    if (!s->run.recipe_known)
      c.notes.push_back(fmt::format("The recipe of {} is missing or incomplete, so the changes are unknown.", title));
    if (s->record->status == "running" || s->record->status == "interrupted" || s->record->status == "lost")
      c.notes.push_back(fmt::format("{} did not finish (status {}).", title, s->record->status));
  }
}

void note_uncertain(RunComparison& c, const ComparedSide& a, const ComparedSide& b) {
  if (a.record->uid == b.record->uid && !a.record->uid.empty())
    c.notes.push_back(c.a.title + " and " + c.b.title + " are the same run.");
  const NoiseCheck& n = c.noise;
  if (n.floor_source == "assumed" && !c.too_few_rounds)
    c.notes.push_back("The noise floor is assumed: crest bench --noise measures that of this recipe on this machine.");
  if (auto others = other_than_ranks(c, a); ranks_of(a.recipe) != ranks_of(b.recipe) && !others.empty())
    c.notes.push_back(fmt::format("More than the ranks differ ({}), so Crest does not judge how well they scale.",
                                  join(others, ", ")));
  if (a.run.predicted && b.run.predicted)
    c.notes.push_back(
        fmt::format("Both are predictions with a range{}: only a difference above {:.1f}% is claimed.",
                    same_calibration(a, b) ? ", and the range applies only to work the two steps do not share" : "",
                    100 * n.floor));
  else if (c.too_few_rounds)
    c.notes.push_back(
        fmt::format("A verdict needs {} interleaved rounds, and there {} {}: give a longer --max-seconds.",
                    fewest_rounds, a.step_ms.size() == 1 ? "is" : "are", a.step_ms.size()));
  else if (n.floor_source == "too few samples")
    c.notes.push_back(
        fmt::format("{} and {} step samples are too few for a test: only a difference above {:.0f}% is claimed.",
                    a.step_ms.size(), b.step_ms.size(), 100 * n.floor));
  if (!c.apart.empty())
    c.notes.push_back(
        "The runs were measured one after the other, and the machine may have slowed one of them: crest compare --a "
        "'FLAGS' --b 'FLAGS' measures both again, interleaved.");
  if (!c.causes.empty() && !conclusive(c))
    c.notes.push_back(
        "The step times do not differ beyond noise, so no cause is claimed for the whole step; single groups may "
        "still differ.");
  if (!c.attribution.missing.empty())
    c.notes.push_back(fmt::format("The contribution of each change was {}measured: {}.",
                                  c.attribution.method == AttributionMethod::work ? "not " : "only partly ",
                                  c.attribution.missing));
  if (c.row_noise > 0.02)
    c.notes.push_back(
        fmt::format("Groups with equal instructions differ by up to {:.0f}% between the two runs; a smaller "
                    "difference is not treated as a cause.{}",
                    100 * c.row_noise,
                    c.scattered ? " The machine changed between them: crest compare --a 'FLAGS' --b 'FLAGS' "
                                  "measures both again, interleaved."
                                : ""));
  if (c.residual_share > residual_limit)
    c.notes.push_back(
        fmt::format("Warning: {:.1f}% of a step is not explained by the profiled intervals (limit {:.0f}%): "
                    "the profiler slowed the step down, or missed work.",
                    100 * c.residual_share, 100 * residual_limit));
  if (c.join == "classes" || c.join == "classes and phases")
    if (!a.rows.empty() && !b.rows.empty())
      c.notes.push_back(
          fmt::format("Rows are matched by operation {}.", c.join == "classes" ? "class" : "class and phase"));
}

}  // namespace

double rounds_floor(const RunRecord& r) {
  auto document = r.documents.find("comparison");
  return document != r.documents.end() ? number(document->second, "noise_floor", -1)
                                       : number(r.result, "noise_floor", -1);
}

bool same_rounds(const RunRecord& a, const RunRecord& b) {
  auto x = a.documents.find("comparison"), y = b.documents.find("comparison");
  bool measured_a = x != a.documents.end(), measured_b = y != b.documents.end();
  if (measured_a || measured_b) return measured_a && measured_b && x->second.is_object() && x->second == y->second;
  return !a.command.empty() && a.command == b.command && rounds_floor(a) >= 0 && rounds_floor(a) == rounds_floor(b);
}

static double token_difference(const RunComparison& c) {
  return c.b.step_ms / double(c.b.tokens) - c.a.step_ms / double(c.a.tokens);
}

double RunComparison::explained_difference() const { return per_token ? token_difference(*this) : step_difference(); }

RunComparison compare_runs(const RunRecord& record_a, const RunRecord& record_b, const CompareOptions& options) {
  ComparedSide a = open_side(record_a, options.title_a), b = open_side(record_b, options.title_b);
  check_comparable(a, b);
  RunComparison c;
  c.a = a.run, c.b = b.run;
  c.differences = find_differences(a, b);
  double floor = options.noise_floor;
  if (floor < 0) floor = floor_between(a, b);
  bool tokens = a.run.tokens > 0 && b.run.tokens > 0;
  c.per_token = tokens && (options.per_token || a.run.tokens != b.run.tokens);
  bool paired = options.paired || same_rounds(record_a, record_b);
  c.noise = check_noise(times_of(a, c.per_token), times_of(b, c.per_token), floor, paired);
  if (c.too_few_rounds = too_few_rounds(record_a, record_b); c.too_few_rounds) c.noise.verdict = Verdict::cannot_tell;
  if (!paired && !a.run.predicted && !b.run.predicted && c.noise.verdict != Verdict::cannot_tell)
    if (c.apart = apart_doubt(record_a, record_b); !c.apart.empty()) c.noise.verdict = Verdict::cannot_tell;
  if (a.run.predicted && b.run.predicted && floor >= 0) {  // a prediction is not one sample among many
    c.noise.floor = floor, c.noise.floor_source = "range of the predictions";
    c.noise.verdict = verdict_of(c.noise.ratio, c.noise.ratio_interval, floor);
  }
  if (!a.rows.empty() && !b.rows.empty()) join_steps(c, a, b, options.by);
  if (c.waterfall.empty() && !a.step_ms.empty() && !b.step_ms.empty() && c.step_difference() != 0)
    c.waterfall = {{Factor::unsplit, c.step_difference(), tokens ? token_difference(c) : 0, "not profiled"}};
  mark_significant(c, same_device(a, b));
  doubt_without_floor(c);
  explain_by_settings(c);
  explain_by_measured_changes(c, record_a, record_b);
  compare_memory(c, a, b);
  compare_training(c, record_a, record_b);
  c.scaling = find_scaling(c, a, b);
  write_sentences(c);
  note_missing(c, a, b);
  if (options.per_token && !c.per_token)
    for (auto* s : {&a, &b})
      if (s->run.tokens == 0)
        c.notes.push_back(
            fmt::format("The tokens per step of {} are unknown, so times are per step. For a training log: crest runs "
                        "import FILE --batch N --seq N.",
                        s->run.title));
  note_uncertain(c, a, b);
  return c;
}

}  // namespace crest
