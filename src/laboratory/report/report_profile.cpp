// Where the time of profiled steps goes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "charts/figure.h"
#include "compare/join.h"
#include "core/text.h"
#include "profile/class_label.h"
#include "report/phrases.h"
#include "report/report_colors.h"
#include "report/report_parts.h"
#include "report/report_profile.h"

namespace crest {

std::string label_of(const ProfileInstr& instr) {
  std::vector<std::string> roles;
  for (auto& s : instr.scopes)
    if (std::string role = role_of(s); !role.empty() && std::find(roles.begin(), roles.end(), role) == roles.end())
      roles.push_back(role);
  std::string op = instr.op == "fused" && !instr.parts.empty() ? join(instr.parts, "+") : instr.op;
  if (roles.empty() || roles.size() > 3) return op;
  return join(roles, "+") + " " + op;
}

std::vector<InstrGroup> instr_groups(const Profile& profile) {
  std::map<std::tuple<std::string, std::string, std::string>, InstrGroup> groups;
  for (auto& i : profile.instrs) {
    std::string label = label_of(i);
    InstrGroup& g = groups[{label, i.phase, i.kernel}];
    g.label = label, g.phase = i.phase, g.op_class = i.op_class, g.kernel = i.kernel, g.arithmetic = i.arithmetic;
    g.calls += i.calls;
    g.ms += i.ms, g.floor_ms += i.floor_ms, g.flops += i.flops, g.bytes += i.bytes;
  }
  std::vector<InstrGroup> list;
  for (auto& [key, g] : groups) list.push_back(g);
  std::stable_sort(list.begin(), list.end(), [](auto& a, auto& b) { return a.ms > b.ms; });
  return list;
}

namespace {

double sum_ms(const std::vector<ProfileShare>& shares, const std::string& key) {
  for (auto& s : shares)
    if (s.key == key) return s.ms;
  return 0;
}

// Rows: profiles; parts: the `keys` of `shares`.
void add_shares(Page& page, const std::vector<ProfiledMeasurement>& profiles, const std::string& title,
                const std::string& said, const std::vector<std::string>& keys, int (*color)(const std::string&),
                bool with_idle, std::vector<ProfileShare> (*shares)(const Profile&)) {
  StackChart chart;
  chart.axis = "milliseconds";
  for (auto& key : keys) chart.parts.push_back({class_label(key), color(key)});
  if (with_idle) chart.parts.push_back({"idle", gray});
  PageTable numbers;
  numbers.columns = {{"recipe", Align::left}, {"part", Align::left}, {"ms"}, {"share"}};
  for (auto& p : profiles) {
    auto sums = shares(*p.profile);
    if (with_idle) {
      ProfileShare idle;
      idle.key = "idle", idle.ms = p.profile->idle_ms;
      sums.push_back(idle);
    }
    StackRow row{p.row_label, say_ms(p.profile->span_ms), {}, "", {}};
    double all = 0;
    for (auto& s : sums) all += s.ms;
    for (auto& s : sums) s.key = class_label(s.key);
    for (auto& part : chart.parts) {
      double ms = sum_ms(sums, part.name);
      row.values.push_back(ms);
      row.tips.push_back(fmt::format("{}: {} ({})", part.name, say_ms(ms), say_percent(ms / all)));
      if (ms > 0) numbers.rows.push_back({p.title, part.name, fmt::format("{:.3f}", ms), say_percent(ms / all, 1)});
    }
    row.text = say_ms(all);
    chart.rows.push_back(row);
  }
  Figure f;
  f.title = title;
  f.caption.add(said);
  chart.label = title + ": " + said;
  f.draw = [chart](double width) { return draw_stack(chart, width); };
  f.numbers = numbers;
  page.blocks.push_back(f);
}

Text sentence(const ProfiledMeasurement& p) {
  const Profile& x = *p.profile;
  auto phases = by_phase(x);
  auto classes = by_class(x);
  double all = 0, floor = 0;
  for (auto& i : x.instrs) all += i.ms, floor += std::min(i.ms, i.floor_ms);
  Text t;
  double step = x.step_median_ms();
  t.strong(say_ms(std::isfinite(step) ? step : x.span_ms)).add(" per " + say_phase(x.phase));
  if (double with = x.profiled_median_ms(); std::isfinite(with) && std::isfinite(step))
    t.add(fmt::format(" ({} with the profiler on)", say_ms(with)));
  t.add(". ");
  // The machine was unsteady, or the profiler slows the step down.
  if (double both = x.profiled_median_ms() / step; std::isfinite(both) && std::abs(std::log(both)) > 0.1)
    t.add("These two differ a lot, so trust the shares below more than the milliseconds. ");
  if (!classes.empty() && all > 0) {
    t.add("The largest share of the time goes to ")
        .strong(class_label(classes[0].key))
        .add(" (" + say_percent(classes[0].ms / all) + ")");
    if (classes.size() > 1)
      t.add(fmt::format(", then {} ({})", class_label(classes[1].key), say_percent(classes[1].ms / all)));
    t.add(". ");
  }
  double forward = sum_ms(phases, "forward"), backward = sum_ms(phases, "backward");
  if (forward > 0 && backward > 0)
    t.add(fmt::format("Backward takes {} times as long as forward. ",
                      say_times(backward / forward).substr(0, say_times(backward / forward).size() - 1)));
  if (x.idle_ms > 5e-4 * x.span_ms)
    t.add(fmt::format("The device is idle for {} of the step. ", say_percent(x.idle_ms / x.span_ms)));
  if (floor > 0 && all > 0)
    t.add(fmt::format("At the limits of the device, the instructions would take {}: {} of their time.", say_ms(floor),
                      say_percent(floor / all)));
  return t;
}

void add_timeline(Page& page, const ProfiledMeasurement& p) {
  const Profile& x = *p.profile;
  if (x.intervals.empty()) return;
  Timeline chart;
  for (auto& phase : phase_order()) chart.parts.push_back({phase, phase_color(phase)});
  chart.parts.push_back({"other", gray});
  auto part_of = [&](const std::string& phase) {
    auto it = std::find(phase_order().begin(), phase_order().end(), phase);
    return int(it - phase_order().begin());
  };
  double start = x.intervals.front().start_ms;
  std::map<int, bool> streams;
  for (auto& i : x.intervals) start = std::min(start, i.start_ms), streams[i.stream] = true;
  std::map<std::pair<int, int>, Track> tracks;  // stream, place of the class
  PageTable numbers;
  numbers.columns = {{"track", Align::left}, {"pieces"}, {"ms"}};
  for (auto& i : x.intervals) {
    const ProfileInstr* instr =
        i.instr >= 0 && size_t(i.instr) < x.instrs.size() ? &x.instrs[size_t(i.instr)] : nullptr;
    std::string op_class = instr ? instr->op_class : "other", kind = class_label(op_class);
    auto place = std::find(class_order().begin(), class_order().end(), op_class) - class_order().begin();
    int part = !instr ? int(phase_order().size()) : part_of(instr->stream == "comm" ? "communication" : instr->phase);
    std::string stream = streams.size() > 1 ? fmt::format("stream {}, ", i.stream) : "";
    for (auto& [key, label] :
         {std::pair{std::pair{i.stream, -1}, stream + "all"}, {{i.stream, int(place)}, stream + kind}}) {
      Track& track = tracks[key];
      track.label = label;
      track.spans.push_back({i.start_ms - start, i.ms, part});
    }
    chart.end = std::max(chart.end, i.start_ms - start + i.ms);
  }
  for (auto& [key, track] : tracks) {
    double ms = 0;
    for (auto& s : track.spans) ms += s.length;
    numbers.rows.push_back({track.label, std::to_string(track.spans.size()), fmt::format("{:.3f}", ms)});
    chart.tracks.push_back(track);
  }
  chart.axis = "milliseconds since the start of the step";
  Figure f;
  f.title = "Timeline";
  f.caption.add(
      fmt::format("The step nearest to the median: {} pieces of work by operation class, colored by phase. Pieces "
                  "closer than half a pixel are drawn as one.",
                  x.intervals.size()));
  chart.label = f.title + ", " + p.title + ". " + f.caption.plain();
  f.draw = [chart](double width) { return draw_timeline(chart, width); };
  f.numbers = numbers;
  page.blocks.push_back(f);
}

void add_roofline(Page& page, const ProfiledMeasurement& p, const std::vector<InstrGroup>& groups) {
  const Profile& x = *p.profile;
  Roofline chart;
  chart.bandwidth = x.rate("bandwidth");
  double all = 0;
  std::map<std::string, bool> used;
  for (auto& g : groups) all += g.ms, used[g.arithmetic] = true;
  for (auto& r : x.rates)
    if (r.name != "bandwidth" && r.per_second > 0 && used.count(r.name))
      chart.ceilings.push_back({r.name, r.per_second});
  for (auto& c : class_order()) chart.parts.push_back({class_label(c), class_color(c)});
  PageTable numbers;
  numbers.columns = {
      {"instructions", Align::left}, {"phase", Align::left}, {"FLOP per byte"}, {"FLOP/s"}, {"bytes/s"}, {"time"}};
  for (auto& g : groups) {
    if (!(g.flops > 0 && g.bytes > 0 && g.ms > 0)) continue;
    double intensity = g.flops / g.bytes, rate = g.flops / g.ms * 1e3;
    std::string tip = fmt::format("{} ({}): {} at {:.3g} FLOP/B, {}", g.label, g.phase, format_si(rate, "FLOP/s"),
                                  intensity, say_ms(g.ms));
    chart.dots.push_back({g.label, tip, intensity, rate, g.ms / all, class_color(g.op_class)});
    if (numbers.rows.size() < 30)
      numbers.rows.push_back({g.label, g.phase, fmt::format("{:.3g}", intensity), format_si(rate, "FLOP/s"),
                              format_si(g.bytes / g.ms * 1e3, "B/s"), say_ms(g.ms)});
  }
  if (chart.dots.empty()) return;
  Figure f;
  f.title = "Roofline";
  f.caption.add(
      "One dot per kind of instruction; its area is its share of the time. The lines are the limits of this device: "
      "memory bandwidth (rising) and arithmetic (level). Work near the rising line is bound by memory; a dot above it "
      "found its data in cache.");
  chart.label = f.title + ", " + p.title + ". " + f.caption.plain();
  f.draw = [chart](double width) { return draw_roofline(chart, width); };
  f.numbers = numbers;
  page.blocks.push_back(f);
}

void add_above_roofline(Page& page, const ProfiledMeasurement& p, std::vector<InstrGroup> groups) {
  double all = 0;
  for (auto& g : groups) all += g.ms;
  std::stable_sort(groups.begin(), groups.end(),
                   [](auto& a, auto& b) { return a.above_roofline_ms() > b.above_roofline_ms(); });
  StackChart chart;
  chart.axis = "milliseconds per step";
  chart.parts = {{"floor", 5}, {"above the floor", 1}};
  PageTable t;
  t.columns = {{"instructions", Align::left},
               {"phase", Align::left},
               {"calls"},
               {"ms"},
               {"share"},
               {"floor, ms"},
               {"gap, ms"},
               {"rate"},
               {"kernel", Align::left}};
  for (auto& g : groups) {
    if (t.rows.size() >= 12 || g.ms <= 0) break;
    double floor = std::min(g.floor_ms, g.ms);
    if (chart.rows.size() < 10)
      chart.rows.push_back({g.label + (g.phase == "forward" ? "" : ", " + g.phase),
                            say_ms(g.ms),
                            {floor, g.ms - floor},
                            "",
                            {"floor " + say_ms(floor), "gap " + say_ms(g.above_roofline_ms())}});
    std::string rate =
        g.flops > 8 * g.bytes ? format_si(g.flops / g.ms * 1e3, "FLOP/s") : format_si(g.bytes / g.ms * 1e3, "B/s");
    t.rows.push_back({g.label, g.phase, std::to_string(g.calls), fmt::format("{:.3f}", g.ms),
                      say_percent(g.ms / all, 1), fmt::format("{:.3f}", g.floor_ms),
                      fmt::format("{:.3f}", g.above_roofline_ms()), rate, g.kernel});
  }
  if (chart.rows.empty()) return;
  Figure f;
  f.title = "Where time could be saved";
  f.caption.add(
      "The instructions with the largest gap between their time and their floor: the shortest time that the limits of "
      "the device allow for their FLOPs and bytes. All layers and calls together.");
  chart.label = f.title + ", " + p.title + ". " + f.caption.plain();
  f.draw = [chart](double width) { return draw_stack(chart, width); };
  f.numbers = t;
  page.blocks.push_back(f);
}

void add_kernels(Page& page, const ProfiledMeasurement& p) {
  auto kernels = by_kernel(*p.profile);
  double all = 0;
  for (auto& k : kernels) all += k.ms;
  PageTable t;
  t.columns = {{"kernel", Align::left}, {"ms"}, {"share"}, {"instructions"}};
  for (auto& k : kernels) {
    if (t.rows.size() >= 15 || all <= 0) break;
    PageCell share(say_percent(k.ms / all, 1));
    share.bar = k.ms / all;
    t.rows.push_back({fit_text(k.key, 560), fmt::format("{:.3f}", k.ms), share, std::to_string(k.instructions)});
  }
  if (t.rows.empty()) return;
  t.folded = true;
  t.summary = "Time by kernel";
  if (kernels.size() > t.rows.size())
    t.note = fmt::format("{} more kernels make up the rest.", kernels.size() - t.rows.size());
  page.blocks.push_back(t);
}

}  // namespace

std::vector<ProfiledMeasurement> profiled_measurements(const ReportData& data) {
  std::vector<ProfiledMeasurement> list;
  for (auto& g : data.groups)
    for (auto& c : g.measurements)
      if (c.profile) {
        std::string title = g.measurements.size() > 1 ? c.label : c.profiled->name;
        if (g.measurements.size() > 1 && data.groups.size() > 1) title = g.title() + ": " + title;
        std::string row = g.measurements.size() > 1 && data.groups.size() == 1 ? c.short_label : title;
        list.push_back({title, row, &g, &c, c.profile.get()});
      }
  return list;
}

void add_profiles(Page& page, const ReportData& data) {
  std::vector<ProfiledMeasurement> profiles = profiled_measurements(data);
  if (profiles.empty()) return;
  page.blocks.push_back(Heading{2, "Where time and memory go"});
  add_shares(page, profiles, "Time by operation class", "Device time of one step by operation class, and idle time.",
             class_order(), class_color, true, by_class);
  add_shares(page, profiles, "Time by phase", "The same time by phase of the step.", phase_order(), phase_color, false,
             by_phase);
  // Only the slowest and the fastest get full figures.
  std::vector<ProfiledMeasurement> shown = profiles;
  if (shown.size() > 3) {
    auto by_span = [](auto& a, auto& b) { return a.profile->span_ms < b.profile->span_ms; };
    auto [fast, slow] = std::minmax_element(profiles.begin(), profiles.end(), by_span);
    shown = {*slow, *fast};
    page.blocks.push_back(Paragraph{
        fmt::format("{} recipes were profiled; the slowest and the fastest are shown in full.", profiles.size())});
  }
  for (auto& p : shown) {
    page.blocks.push_back(Heading{3, p.title});
    page.blocks.push_back(Paragraph{sentence(p)});
    std::vector<InstrGroup> groups = instr_groups(*p.profile);
    add_timeline(page, p);
    add_above_roofline(page, p, groups);
    add_roofline(page, p, groups);
    add_kernels(page, p);
    add_profile_memory(page, p);
  }
}

}  // namespace crest
