#include "bench/comm_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/json_number.h"
#include "core/text.h"
#include "terminal/table.h"

namespace crest {

using Json = nlohmann::ordered_json;

namespace {

// Decimal units, like the given sizes and GB/s.
std::string size_text(double bytes) { return format_si(bytes, "B"); }
std::string rate_text(double bytes_per_second) { return format_si(bytes_per_second, "B/s"); }

std::string fit_text(const CommGroup& g) {
  TransferFit f = g.fit();
  if (f.points == 0) return "fit: needs at least two sizes\n";
  if (f.seconds_per_byte <= 0) return "fit: the times do not grow with the size\n";
  std::string startup = f.startup < 0 ? "no measurable start-up" : format_duration(f.startup) + " start-up";
  return fmt::format("fit: {} + {:.3g} s per GB (bus bandwidth {}); largest deviation {:.0f}%\n", startup,
                     f.seconds_per_byte * 1e9, rate_text(bus_factor(g.collective, g.ranks) / f.seconds_per_byte),
                     100 * f.worst);
}

}  // namespace

TransferFit CommGroup::fit() const {
  std::vector<TransferPoint> points;
  for (auto& t : times) points.push_back({double(t.bytes), t.seconds.median()});
  return fit_transfer(points);
}

namespace {

// The verdict for a share of the link rate.
struct Level {
  double from;
  const char *verdict, *message;
};
constexpr Level levels[] = {
    {0.8, "reaches", "reaches"}, {0.5, "below", "stays below"}, {0, "far_below", "stays far below"}};

const Level& level_of(double share) {
  for (auto& l : levels)
    if (share >= l.from) return l;
  return levels[2];
}

}  // namespace

// Judges the largest size, where start-up matters least.
CommVerdict judge(const CommGroup& g) {
  if (g.ranks == 1) return {"cannot_tell", NAN, "One rank sends nothing, so there is no bandwidth to judge."};
  const CollectiveTime& largest = g.times.back();
  double expected = g.link_expected > 0 ? g.link_expected : g.link_measured, bus = g.bus_bandwidth(largest);
  std::string source = g.link_expected > 0 ? g.link_source : "measured: every rank sends to the next at the same time";
  CommVerdict v;
  v.share = bus / expected;
  std::string figures = fmt::format("bus bandwidth {} at {} is {:.0f}% of {} ({})", rate_text(bus),
                                    size_text(double(largest.bytes)), 100 * v.share, rate_text(expected), source);
  Interval median = largest.seconds.median_interval();
  double at_low = v.share * largest.seconds.median() / median.low,
         at_high = v.share * largest.seconds.median() / median.high;
  const Level& level = level_of(v.share);
  if (!(median.low > 0) || level_of(at_low).verdict != level.verdict || level_of(at_high).verdict != level.verdict) {
    v.verdict = "cannot_tell";
    v.sentence =
        fmt::format("Inconclusive whether {} {} the link rate: {}, but its 95% interval allows another verdict.",
                    name(g.collective), level.message, figures);
  } else {
    v.verdict = level.verdict;
    v.sentence = fmt::format("{} {} the link rate: {}.", name(g.collective), level.message, figures);
  }
  if (g.other_load > 0.25)
    v.sentence += fmt::format(" Other processes kept {:.1f} CPUs busy: measure again.", g.other_load);
  return v;
}

Json rows_to_json(const CommGroup& g) {
  Json rows = Json::array();
  for (auto& t : g.times) {
    Samples ms = t.seconds.scaled(1e3);
    Interval interval = ms.median_interval();
    rows.push_back({{"collective", name(g.collective)},
                    {"backend", g.backend},
                    {"ranks", g.ranks},
                    {"dtype", flag_name(g.dtype)},
                    {"bytes", t.bytes},
                    {"calls", t.calls},
                    {"ms_median", ms.median()},
                    {"ms_median_low", number_or_null(interval.low)},
                    {"ms_median_high", number_or_null(interval.high)},
                    {"ms_mean", ms.mean()},
                    {"ms_std", ms.std_dev()},
                    {"ms_min", ms.min()},
                    {"ms_max", ms.max()},
                    {"samples", ms.count()},
                    {"samples_ms", ms.values()},
                    {"algorithm_gb_per_s", t.algorithm_bandwidth() / 1e9},
                    {"bus_gb_per_s", g.bus_bandwidth(t) / 1e9}});
  }
  return rows;
}

Json to_json(const CommGroup& g) {
  TransferFit f = g.fit();
  Json fit = nullptr;
  if (f.points)
    fit = {{"startup_ms", f.startup * 1e3},
           {"seconds_per_gb", f.seconds_per_byte * 1e9},
           {"bus_gb_per_s", f.seconds_per_byte > 0 ? Json(bus_factor(g.collective, g.ranks) / f.seconds_per_byte / 1e9)
                                                   : Json(nullptr)},
           {"worst", f.worst},
           {"points", f.points}};
  CommVerdict v = judge(g);
  bool expected = g.link_expected > 0;
  return {{"collective", name(g.collective)},
          {"backend", g.backend},
          {"ranks", g.ranks},
          {"dtype", flag_name(g.dtype)},
          {"startup",
           {{"process_seconds", g.process_seconds},
            {"connect_seconds", g.connect_seconds},
            {"first_call_ms", g.first_call_seconds * 1e3}}},
          {"latency_ms", g.latency_seconds * 1e3},
          {"fit", fit},
          {"link",
           {{"gb_per_s", g.ranks == 1 ? Json(nullptr) : Json((expected ? g.link_expected : g.link_measured) / 1e9)},
            {"source", expected       ? g.link_source
                       : g.ranks == 1 ? ""
                                      : "measured"},
            {"measured_gb_per_s", g.ranks == 1 ? Json(nullptr) : Json(g.link_measured / 1e9)}}},
          {"other_load", g.other_load < 0 ? Json(nullptr) : Json(g.other_load)},
          {"share", number_or_null(v.share)},
          {"verdict", v.verdict},
          {"sentence", v.sentence}};
}

std::string group_text(const CommGroup& g, bool color) {
  Table table({{"size"}, {"median ms"}, {"95% CI"}, {"samples"}, {"algorithm GB/s"}, {"bus GB/s"}});
  for (auto& t : g.times) {
    double half = t.seconds.median_relative_half_width();
    table.row({size_text(double(t.bytes)), fmt::format("{:.3f}", t.seconds.median() * 1e3),
               std::isfinite(half) ? fmt::format("+-{:.1f}%", 100 * half) : "-",
               t.calls == 1 ? fmt::format("{}", t.seconds.count()) : fmt::format("{} x {}", t.seconds.count(), t.calls),
               fmt::format("{:.3f}", t.algorithm_bandwidth() / 1e9), fmt::format("{:.3f}", g.bus_bandwidth(t) / 1e9)});
  }
  return fmt::format(
      "{}, {} rank{}, {}, {}\n\n{}\nstart-up: processes {}, connections {}, first call {}\n"
      "latency: {} (one element per rank)\n{}verdict: {}\n",
      name(g.collective), g.ranks, g.ranks == 1 ? "" : "s", g.backend, flag_name(g.dtype), table.text(color),
      format_duration(g.process_seconds), format_duration(g.connect_seconds), format_duration(g.first_call_seconds),
      format_duration(g.latency_seconds), fit_text(g), judge(g).sentence);
}

}  // namespace crest
