// Memory of a profiled step: over its instructions, and live blocks at the peak.
#include <fmt/format.h>

#include <algorithm>

#include "charts/figure.h"
#include "report/phrases.h"
#include "report/report_colors.h"
#include "report/report_profile.h"

namespace crest {

namespace {

int64_t total_of(const MemoryPoint& p) { return total(p.bytes); }

const ProfileInstr* instr_of(const Profile& x, const MemoryPoint& p) {
  return p.instr >= 0 && size_t(p.instr) < x.instrs.size() ? &x.instrs[size_t(p.instr)] : nullptr;
}

// The phases along the points. Pieces too short to see are merged into the one before.
std::vector<Stretch> stretches(const Profile& x, const std::vector<MemoryPoint>& points) {
  std::vector<Stretch> list;
  for (size_t i = 0; i < points.size(); ++i) {
    const ProfileInstr* instr = instr_of(x, points[i]);
    std::string phase = instr ? instr->phase : "";
    if (!list.empty() && list.back().name == phase)
      list.back().last = i;
    else
      list.push_back({i, i, phase, phase_color(phase)});
  }
  std::vector<Stretch> kept;
  for (auto& s : list) {
    bool tiny = (s.last - s.first + 1) * 100 < points.size();
    if (!kept.empty() && (tiny || kept.back().name == s.name))
      kept.back().last = s.last;
    else
      kept.push_back(s);
  }
  return kept;
}

void add_holders(Page& page, const Profile& x, const MemoryPoint& peak) {
  struct Holder {
    std::string name, category, made;
    int64_t bytes;
  };
  std::vector<Holder> holders;
  const std::string& program = size_t(peak.call) < x.calls.size() ? x.calls[size_t(peak.call)] : "";
  for (auto& b : x.memory.blocks)
    if (b.program == program && b.first <= peak.index && peak.index <= b.last)
      holders.push_back({b.name, b.category, b.phase + (b.scope.empty() ? "" : " of " + b.scope), b.bytes});
  for (auto& p : x.memory.persistent) holders.push_back({p.name, p.category, "the whole run", p.bytes});
  std::stable_sort(holders.begin(), holders.end(), [](auto& a, auto& b) { return a.bytes > b.bytes; });
  if (holders.empty()) return;
  PageTable t;
  t.columns = {{"block", Align::left}, {"category", Align::left}, {"written by", Align::left}, {"bytes"}, {"share"}};
  for (auto& h : holders) {
    if (t.rows.size() >= 15) break;
    PageCell share(say_percent(double(h.bytes) / double(total_of(peak)), 1));
    share.bar = double(h.bytes) / double(total_of(peak));
    t.rows.push_back({h.name, spaced(h.category), h.made, say_bytes(double(h.bytes)), share});
  }
  if (holders.size() > t.rows.size())
    t.note = fmt::format("The largest of {} blocks alive at the peak.", holders.size());
  t.folded = true;
  t.summary = "Live blocks at the peak";
  page.blocks.push_back(t);
}

}  // namespace

void add_profile_memory(Page& page, const ProfiledMeasurement& p) {
  const Profile& x = *p.profile;
  std::vector<MemoryPoint> points = memory_timeline(x);
  if (points.empty()) return;
  auto peak =
      *std::max_element(points.begin(), points.end(), [](auto& a, auto& b) { return total_of(a) < total_of(b); });
  if (total_of(peak) <= 0) return;
  AreaChart chart;
  chart.x_axis = "instructions of a step, in order";
  // The longest-lived categories are at the bottom.
  for (Category c :
       {Category::weights, Category::optimizer_state, Category::gradients, Category::library_context,
        Category::comm_buffers, Category::kv_cache, Category::activations, Category::workspace, Category::temporary}) {
    std::string category(name(c));
    chart.parts.push_back({spaced(category), category_color(category)});
    std::vector<double> values;
    for (auto& point : points) values.push_back(double(point.bytes[size_t(c)]));
    chart.values.push_back(values);
  }
  chart.stretches = stretches(x, points);
  const ProfileInstr* at = instr_of(x, peak);
  std::string where = at ? label_of(*at) + " (" + at->phase + ")" : "";
  chart.peak = "peak " + say_bytes(double(total_of(peak)));
  Figure f;
  f.title = "Memory over the instructions";
  f.caption.add("Bytes in use at each instruction of a step, by category. The peak is ")
      .strong(say_bytes(double(total_of(peak))));
  if (!where.empty()) f.caption.add(", at ").code(where);
  f.caption.add(".");
  chart.label = f.title + ", " + p.title + ". " + f.caption.plain();
  f.draw = [chart](double width) { return draw_areas(chart, width); };
  f.numbers.columns = {{"category", Align::left}, {"at the peak"}, {"largest"}, {"smallest"}};
  for (size_t c = 0; c < chart.parts.size(); ++c) {
    auto [low, high] = std::minmax_element(chart.values[c].begin(), chart.values[c].end());
    if (*high <= 0) continue;
    size_t i = 0;
    for (size_t k = 0; k < points.size(); ++k)
      if (total_of(points[k]) > total_of(points[i])) i = k;
    f.numbers.rows.push_back({chart.parts[c].name, say_bytes(chart.values[c][i]), say_bytes(*high), say_bytes(*low)});
  }
  page.blocks.push_back(f);
  add_holders(page, x, peak);
}

}  // namespace crest
