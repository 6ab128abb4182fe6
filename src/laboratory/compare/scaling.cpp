#include "compare/scaling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "compare/waterfall.h"
#include "profile/overlap.h"
#include "train/training_settings.h"

namespace crest {

namespace {

// One side's step as a sum of parts.
struct Parts {
  double step = 0, idle = 0, host = 0, exposed = 0, hidden = 0;
  std::map<std::string, double> phases;  // without communication rows
  std::vector<double> waiting;           // by rank
  double rest = 0;                       // of the step
};

// Parts of rank 0: the profile has its instructions. Without times of ranks, exposed time includes
// waiting.
Parts parts_of(const ComparedSide& s) {
  const Profile& p = s.profile;
  Parts parts;
  parts.step = s.run.step_ms, parts.idle = p.idle_ms;
  double rows = 0;
  for (auto& r : s.rows)
    if (!communicates(r)) parts.phases[r.phase == "recompute" ? "backward" : r.phase] += r.ms, rows += r.ms;
  if (!p.ranks.empty()) {
    const ProfileRank& r = p.ranks[0];
    parts.exposed = r.exposed_ms, parts.hidden = r.hidden_ms, parts.waiting = r.waiting_ms;
    parts.idle = r.idle_ms, parts.host = r.host_ms;
  } else {
    for (auto& c : communication_times(p)) parts.exposed += c.exposed_ms, parts.hidden += c.hidden_ms;
  }
  double waiting = 0;
  for (double ms : parts.waiting) waiting += ms;
  parts.rest = parts.step - rows - parts.exposed - waiting - parts.host - parts.idle;
  return parts;
}

}  // namespace

int64_t ranks_of(const Json& recipe) {
  return int64_t(number(recipe, "ranks", 1) * number(recipe, "data_parallel", 1));
}

std::vector<std::string> other_than_ranks(const RunComparison& c, const ComparedSide& a) {
  static const std::set<std::string> of_ranks = {"ranks", "data_parallel", "reduce", "bucket",           "comm_dtype",
                                                 "shard", "gather",        "batch",  "grad_accumulation"};
  std::vector<std::string> others;
  bool cpu = string_at(a.device, "kind") == "cpu";
  for (auto& d : c.differences) {
    // Ranks on CPUs share its threads, so its name changes with them. A second host may have the
    // same hardware.
    bool machine = d.section == "device" && d.key != "threads" && d.key != "host_id" && (d.key != "name" || !cpu);
    if (machine && (others.empty() || others.back() != d.section)) others.push_back(d.section);
    if (d.section != "recipe" || d.key == "data_hash" || of_ranks.count(d.key)) continue;
    const Setting* setting = find_run_setting(d.key);  // values alone do not affect time
    if (!setting || !setting->effects.empty()) others.push_back(d.key);
  }
  return others;
}

std::optional<Scaling> find_scaling(const RunComparison& c, const ComparedSide& a, const ComparedSide& b) {
  int64_t ranks_a = ranks_of(a.recipe), ranks_b = ranks_of(b.recipe);
  if (ranks_a == ranks_b || !a.profiled || !b.profiled || a.run.tokens <= 0 || b.run.tokens <= 0) return std::nullopt;
  if (!(a.run.step_ms > 0) || !(b.run.step_ms > 0) || !other_than_ranks(c, a).empty()) return std::nullopt;
  const ComparedSide &few = ranks_a < ranks_b ? a : b, &more = ranks_a < ranks_b ? b : a;
  Scaling s;
  s.few = few.run.title, s.more = more.run.title;
  s.few_ranks = std::min(ranks_a, ranks_b), s.more_ranks = std::max(ranks_a, ranks_b);
  double work = (double(more.run.tokens) / double(s.more_ranks)) / (double(few.run.tokens) / double(s.few_ranks));
  s.same_work = std::abs(work - 1) < 1e-9;
  Parts x = parts_of(few), y = parts_of(more);
  s.step_ms = y.step, s.ideal_ms = work * x.step;
  // The ratio of times per token of all ranks, converted to one rank.
  double more_ranks = double(s.more_ranks) / double(s.few_ranks);
  const Interval& of = c.noise.ratio_interval;
  Interval loss = &more == &b ? Interval{of.low, of.high} : Interval{1 / of.high, 1 / of.low};
  loss = {loss.low * more_ranks, loss.high * more_ranks};
  s.noise_floor = c.noise.floor_source == "assumed" ? std::max(c.noise.floor, c.row_noise) : c.noise.floor;
  s.beyond_noise = verdict_of(s.step_ms / s.ideal_ms, loss, s.noise_floor) != Verdict::cannot_tell;
  auto add = [&](const std::string& label, double ms, const std::string& detail) {
    if (ms != 0) s.rows.push_back({label, ms, detail});
  };
  add("exposed communication", y.exposed - work * x.exposed,
      fmt::format("exposed transfers; {} are hidden", format_ms(y.hidden)));
  for (size_t r = 0; r < y.waiting.size(); ++r)
    add(fmt::format("waiting for rank {}", r), y.waiting[r] - (r < x.waiting.size() ? work * x.waiting[r] : 0),
        "it arrives last at collectives");
  for (const char* phase : {"forward", "backward", "update"}) {
    double of_few = work * x.phases[phase], of_more = y.phases[phase];
    add(fmt::format("kernels, {}", phase), of_more - of_few, format_ms_pair(of_few, of_more));
  }
  add("launches and gaps", y.idle - work * x.idle, format_ms_pair(work * x.idle, y.idle));
  add("host, outside the work", y.host - work * x.host, "samples, and agreement between ranks");
  add("unexplained", y.rest - work * x.rest, format_ms_pair(work * x.rest, y.rest));
  return s;
}

}  // namespace crest
