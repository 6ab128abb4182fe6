// The memory half of profile/profile_text.h.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "charts/terminal_chart.h"
#include "core/text.h"
#include "profile/profile_summary.h"
#include "profile/profile_text.h"
#include "terminal/fit_table.h"

namespace crest {

namespace {

std::string bytes(int64_t n) { return format_bytes(double(n)); }

std::string place(const ProfileInstr& r) {
  return fmt::format("{} {} {}", r.kernel, r.phase, r.scopes.empty() ? "" : r.scopes[0]);
}

// By category and phase, summed over the layers.
std::string holders_text(const Profile& p, const MemoryPoint& peak, const ProfileView& view) {
  struct Row {
    int64_t bytes = 0, in_layers = 0, largest = 0;
    int layers = 0;
  };
  std::map<std::pair<std::string, std::string>, Row> sums;
  for (auto& h : memory_holders(p, peak)) {
    Row& row = sums[{h.category, h.phase}];
    row.bytes += h.bytes;
    if (h.layer < 0) continue;
    row.in_layers += h.bytes, ++row.layers;
    row.largest = std::max(row.largest, h.bytes);
  }
  std::vector<std::pair<std::pair<std::string, std::string>, Row>> rows(sums.begin(), sums.end());
  std::stable_sort(rows.begin(), rows.end(), [](auto& a, auto& b) { return a.second.bytes > b.second.bytes; });
  Table table(
      {{"bytes"}, {"share"}, {"at the peak", Align::left}, {"written in", Align::left}, {"layers", Align::left}});
  for (auto& [key, row] : rows)
    table.row(
        {bytes(row.bytes), fmt::format("{:.1f}%", 100 * double(row.bytes) / double(total(peak.bytes))), key.first,
         key.second.empty() ? "persistent" : key.second,
         row.layers ? fmt::format("{}: {} (largest {})", row.layers, bytes(row.in_layers), bytes(row.largest)) : ""});
  return table.text(view.color);
}

std::string allocations_text(const Profile& p, const ProfileView& view) {
  std::vector<FitColumn> columns = {{{"bytes"}},
                                    {{"category", Align::left}},
                                    {{"largest allocations", Align::left}, 0, 22},
                                    {{"written by", Align::left}, 0, 24}};
  std::vector<std::vector<std::string>> rows;
  for (auto& a : largest_allocations(p, 8))
    rows.push_back(
        {bytes(a.bytes), a.category, a.name, a.instr >= 0 ? place(p.instrs[size_t(a.instr)]) : "persistent"});
  return fit_table(columns, rows, size_t(view.width), view.color);
}

// After each part of the command.
std::string process_text(const Profile& p, const ProfileView& view) {
  std::string text = "process   CPU memory after ";
  for (auto& part : p.memory.process)
    text += fmt::format("{}{} {}{}", &part == &p.memory.process[0] ? "" : ", ", part.part, bytes(part.end_bytes),
                        part.peak_bytes > part.end_bytes ? fmt::format(" (at most {})", bytes(part.peak_bytes)) : "");
  return p.memory.process.empty() ? "" : wrapped_lines(text + "\n", 10, view.width);
}

std::string timeline_text(const Profile& p, const ProfileView& view) {
  Series all{"MiB in use", {}, {}};
  for (auto& point : memory_timeline(p)) {
    all.x.push_back(double(all.x.size()));
    all.y.push_back(double(total(point.bytes)) / (1 << 20));
  }
  if (all.x.size() < 2) return "";
  ChartOptions options;
  options.x_label = "instruction", options.y_label = "MiB in use";
  return terminal_chart({all}, options, std::min(view.width, 78), 9, view.color);
}

}  // namespace

std::string profile_memory(const Profile& p, const ProfileView& view) {
  const ProfileMemory& m = p.memory;
  MemoryPoint peak = memory_peak(p);
  std::string text =
      fmt::format("memory    planned {} = {} persistent + {} transient\n          held {}{}\n", bytes(m.planned_bytes),
                  bytes(m.persistent_bytes), bytes(m.transient_bytes), bytes(m.measured_peak_bytes),
                  m.device_peak_bytes ? ", process or device peak " + bytes(m.device_peak_bytes) : "");
  if (m.host_bytes) text += fmt::format("          host memory {}\n", bytes(m.host_bytes));
  if (peak.instr < 0) return wrapped_lines(text, 10, view.width);
  text += fmt::format("peak      {} in call {} of {}, {}[{}]: {}\n", bytes(total(peak.bytes)), peak.call + 1,
                      p.calls.size(), printable(p.calls[size_t(peak.call)]), peak.index,
                      fit_width(printable(place(p.instrs[size_t(peak.instr)])), size_t(std::max(view.width - 14, 20))));
  return wrapped_lines(text, 10, view.width) + holders_text(p, peak, view) + "\n" + allocations_text(p, view) + "\n" +
         process_text(p, view) + timeline_text(p, view);
}

std::string profile_alternatives(const Profile& p, const std::vector<Alternative>& alternatives, double flops_per_token,
                                 const ProfileView& view) {
  if (alternatives.empty()) return "";
  Table table({{"planned"}, {"saves"}, {""}, {"FLOPs"}, {"flags that lower it (planned, not run)", Align::left}});
  for (auto& a : alternatives)
    table.row({bytes(a.planned_bytes), bytes(p.memory.planned_bytes - a.planned_bytes),
               fmt::format("{:.1f}%",
                           100 * double(p.memory.planned_bytes - a.planned_bytes) / double(p.memory.planned_bytes)),
               fmt::format("{:+.1f}%", 100 * (a.flops_per_token / flops_per_token - 1)), a.flags});
  return table.text(view.color);
}

}  // namespace crest
