// The time lost by more ranks, and how each rank spent its step.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "compare/sentences.h"
#include "core/error.h"
#include "report/phrases.h"
#include "report/report_parts.h"
#include "report/report_profile.h"

namespace crest {

namespace {

// Settings for the number of ranks and for sharing work among them. On a CPU also its threads,
// which are part of the device's name.
const std::set<std::string> settings_of_ranks = {"ranks",      "data_parallel", "reduce", "bucket",
                                                 "comm_dtype", "shard",         "gather", "threads"};

int64_t ranks_of(const ReportMeasurement& c) {
  int64_t ranks = 1;
  for (const char* key : {"ranks", "data_parallel"})
    if (std::string text = c.setting(key); is_number(text)) ranks *= std::stoll(text);
  return ranks;
}

double threads_of_a_rank(const ReportMeasurement& c) {
  std::string all = c.setting("threads");
  return is_number(all) ? std::stod(all) / double(ranks_of(c)) : 0;
}

// The measurement with the fewest ranks, fewer than c's, and no other difference from c.
const ReportMeasurement* base_of(const ReportGroup& g, const ReportMeasurement& c) {
  const ReportMeasurement* base = nullptr;
  for (auto& other : g.measurements) {
    if (!other.measured() || ranks_of(other) >= ranks_of(c)) continue;
    bool same = std::all_of(g.varying.begin(), g.varying.end(), [&](auto& name) {
      return settings_of_ranks.count(name) || other.setting(name) == c.setting(name);
    });
    if (same && (!base || ranks_of(other) < ranks_of(*base))) base = &other;
  }
  return base;
}

struct ScaledMeasurement {
  const ReportGroup* group;
  const ReportMeasurement *few, *more;
};

std::vector<ScaledMeasurement> scaled_measurements(const ReportData& data) {
  std::vector<ScaledMeasurement> list;
  for (auto& g : data.groups)
    for (auto& c : g.measurements)
      if (c.measured())
        if (const ReportMeasurement* base = base_of(g, c)) list.push_back({&g, base, &c});
  return list;
}

void add_efficiencies(Page& page, const std::vector<ScaledMeasurement>& measurements) {
  PageTable t;
  t.columns = {{"recipe", Align::left}, {"ranks"},           {"step, ms"}, {"against", Align::left}, {"step, ms"},
               {"efficiency"},          {"memory of a rank"}};
  for (auto& c : measurements) {
    double efficiency =
        (c.more->tokens_per_second / double(ranks_of(*c.more))) / (c.few->tokens_per_second / double(ranks_of(*c.few)));
    t.rows.push_back({c.more->label, std::to_string(ranks_of(*c.more)), fmt::format("{:.3f}", c.more->median),
                      c.few->label, fmt::format("{:.3f}", c.few->median), say_percent(efficiency, 1),
                      say_bytes(c.more->planned_bytes)});
  }
  t.note = "Efficiency: tokens per second of a rank, divided by those of a rank of the other recipe.";
  if (std::any_of(measurements.begin(), measurements.end(),
                  [](auto& c) { return threads_of_a_rank(*c.few) > threads_of_a_rank(*c.more); }))
    t.note += " Ranks on CPUs share their threads, so fewer ranks have more threads each.";
  page.blocks.push_back(t);
}

void add_losses(Page& page, const ScaledMeasurement& c) {
  if (!c.few->profiled || !c.more->profiled) return;
  RunComparison compared;
  CompareOptions options;
  options.title_a = c.few->short_label, options.title_b = c.more->short_label;
  try {
    compared = compare_runs(*c.few->profiled, *c.more->profiled, options);
  } catch (const Error&) {
    return;  // another page gives the reason
  }
  if (!compared.scaling) return;
  const Scaling& s = *compared.scaling;
  page.blocks.push_back(Heading{3, fmt::format("What {} ranks lose: {}", s.more_ranks, c.more->label)});
  if (was_busy(*c.few->profiled) || was_busy(*c.more->profiled))
    return page.blocks.push_back(Paragraph{
        Text("No comparison, since the machine was busy: other processes may have slowed only one of them.")});
  page.blocks.push_back(Paragraph{Text(scaling_sentence(s))});
  PageTable t;
  t.columns = {{"", Align::left}, {"ms"}, {"", Align::left}};
  t.rows.push_back({"ideal step", fmt::format("{:.3f}", s.ideal_ms), c.few->label});
  for (auto& r : s.rows)
    if (std::abs(r.ms) >= 5e-4 * s.step_ms) t.rows.push_back({r.label, fmt::format("{:+.3f}", r.ms), r.detail});
  t.rows.push_back({"step", fmt::format("{:.3f}", s.step_ms), c.more->label});
  page.blocks.push_back(t);
}

void add_ranks(Page& page, const ProfiledMeasurement& c) {
  if (c.profile->ranks.empty()) return;
  page.blocks.push_back(Heading{3, "Each rank of " + c.title});
  PageTable t;
  t.columns = {{"rank"},
               {"step, ms"},
               {"computing"},
               {"hidden communication"},
               {"exposed"},
               {"waiting"},
               {"waiting for", Align::left},
               {"host"},
               {"idle"},
               {"sum of step"}};
  for (auto& r : c.profile->ranks) {
    std::string whom;
    for (size_t q = 0; q < r.waiting_ms.size(); ++q)
      if (r.waiting_ms[q] > 1e-3 * r.step_ms)
        whom += fmt::format("{}rank {}: {:.3f}", whom.empty() ? "" : ", ", q, r.waiting_ms[q]);
    auto ms = [](double x) { return fmt::format("{:.3f}", x); };
    t.rows.push_back({std::to_string(r.rank), ms(r.step_ms), ms(r.compute_ms), ms(r.hidden_ms), ms(r.exposed_ms),
                      ms(r.waiting_sum_ms()), whom, ms(r.host_ms), ms(r.idle_ms),
                      say_percent(r.explained_fraction(), 1)});
  }
  t.note = "A rank waits in a collective until the last rank has arrived; exposed is the transfer after that.";
  page.blocks.push_back(t);
}

}  // namespace

void add_scaling(Page& page, const ReportData& data) {
  std::vector<ScaledMeasurement> measurements = scaled_measurements(data);
  std::vector<ProfiledMeasurement> profiles = profiled_measurements(data);
  bool ranks = std::any_of(profiles.begin(), profiles.end(), [](auto& p) { return !p.profile->ranks.empty(); });
  if (measurements.empty() && !ranks) return;
  page.blocks.push_back(Heading{2, "Scaling over ranks"});
  if (!measurements.empty()) add_efficiencies(page, measurements);
  for (auto& c : measurements) add_losses(page, c);
  for (auto& p : profiles) add_ranks(page, p);
}

}  // namespace crest
