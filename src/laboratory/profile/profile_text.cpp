#include "profile/profile_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/text.h"
#include "profile/class_label.h"
#include "profile/kernel_name.h"
#include "profile/profile_summary.h"
#include "program/mesh.h"
#include "stats/samples.h"
#include "terminal/fit_table.h"

namespace crest {

namespace {

using Json = nlohmann::ordered_json;

// A field of recipe or device; "?" if missing.
std::string field(const Json& object, const char* key) {
  if (!object.is_object() || !object.contains(key)) return "?";
  const Json& v = object[key];
  return printable(v.is_string() ? v.get<std::string>() : v.dump());
}

std::string percent(double part, double whole) {
  return whole > 0 ? fmt::format("{:.1f}%", 100 * part / whole) : std::string("-");
}

std::string ms(double x) { return x >= 1000 ? fmt::format("{:.1f}", x) : fmt::format("{:.3f}", x); }

// FLOP/s or B/s; "-" without work.
std::string rate(double amount, double ms, const char* unit) {
  return amount > 0 && ms > 0 ? format_si(amount / ms * 1e3, unit) : std::string("-");
}

std::string interval(const std::vector<double>& samples) {
  double width = Samples(samples).median_relative_half_width();
  return std::isfinite(width) ? fmt::format(" +-{:.1f}%", 100 * width) : std::string();
}

constexpr size_t least_label = 36;  // of a row's name, before columns are dropped

// FLOPs and bytes are rates times time, so they get columns only when sorted by them.
struct ShareColumns {
  bool flops, bytes;
  explicit ShareColumns(const ProfileView& view) : flops(view.sort == "flops"), bytes(view.sort == "bytes") {}

  std::vector<FitColumn> headers(const char* title) const {
    std::vector<FitColumn> columns = {{{"ms"}}, {{"share"}}, {{"calls"}, 4}, {{"FLOP/s"}, 1}, {{"B/s"}, 2}};
    if (flops) columns.push_back({{"FLOPs"}});
    if (bytes) columns.push_back({{"bytes"}});
    columns.push_back({{"floor ms"}, 3});
    columns.push_back({{"gap ms"}});
    columns.push_back({{title, Align::left}, 0, least_label});
    return columns;
  }
  std::vector<std::string> cells(const ProfileShare& s, double total) const {
    std::vector<std::string> row = {ms(s.ms), percent(s.ms, total), std::to_string(s.launches), rate(s.flops, s.ms, ""),
                                    rate(s.bytes, s.ms, "")};
    if (flops) row.push_back(s.flops > 0 ? format_count(s.flops) : "-");
    if (bytes) row.push_back(s.bytes > 0 ? format_count(s.bytes) : "-");
    for (const std::string& cell : {ms(s.floor_ms), ms(s.ms - s.floor_ms), s.key}) row.push_back(cell);
    return row;
  }
};

std::string share_table(const std::vector<ProfileShare>& shares, double total, const char* title,
                        const ProfileView& view, size_t top = SIZE_MAX) {
  ShareColumns columns(view);
  std::vector<std::vector<std::string>> rows;
  for (size_t i = 0; i < shares.size() && i < top; ++i) rows.push_back(columns.cells(shares[i], total));
  std::string text = fit_table(columns.headers(title), rows, size_t(view.width), view.color);
  if (shares.size() > top) {
    double rest = 0;
    for (size_t i = top; i < shares.size(); ++i) rest += shares[i].ms;
    text += fmt::format("and {} more with {} ms ({})\n", shares.size() - top, ms(rest), percent(rest, total));
  }
  return text;
}

std::string layers_text(const Profile& p, const ProfileView& view) {
  std::vector<LayerTime> layers = layer_times(p);
  if (layers.empty()) return "";
  if (view.layers) {
    Table table({{"layer"}, {"ms"}, {"forward"}, {"recompute"}, {"backward"}});
    for (auto& l : layers)
      table.row({std::to_string(l.layer), ms(l.ms()), ms(l.forward_ms), ms(l.recompute_ms), ms(l.backward_ms)});
    return table.text(view.color);
  }
  LayerTime sum;
  for (auto& l : layers)
    sum.forward_ms += l.forward_ms, sum.recompute_ms += l.recompute_ms, sum.backward_ms += l.backward_ms;
  double n = double(layers.size());
  auto less = [](auto& a, auto& b) { return a.ms() < b.ms(); };
  auto [fastest, slowest] = std::minmax_element(layers.begin(), layers.end(), less);
  std::string text = fmt::format("{} layer{}, mean {} ms (forward {}", layers.size(), layers.size() == 1 ? "" : "s",
                                 ms(sum.ms() / n), ms(sum.forward_ms / n));
  if (sum.recompute_ms > 0) text += fmt::format(", recompute {}", ms(sum.recompute_ms / n));
  if (sum.backward_ms > 0) text += fmt::format(", backward {}", ms(sum.backward_ms / n));
  text += fmt::format(")\nfastest {} ms (layer {}), slowest {} ms (layer {}); outside the layers {} ms\n",
                      ms(fastest->ms()), fastest->layer, ms(slowest->ms()), slowest->layer,
                      ms(summary_of(p).total_ms - sum.ms()));
  return wrapped_lines(text, 0, view.width);
}

}  // namespace

std::string wrapped_lines(const std::string& lines, size_t indent, int width) {
  std::string out;
  std::vector<std::string> list = split(lines, '\n');
  if (list.back().empty()) list.pop_back();
  for (auto& line : list) {
    size_t label = std::min(indent, line.size());
    out += line.substr(0, label) +
           wrapped(line.substr(label), {.width = size_t(width), .indent = std::string(indent, ' '), .taken = label}) +
           "\n";
  }
  return out;
}

std::vector<ProfileShare> profile_shares(const Profile& p, const ProfileView& view) {
  static const std::vector<std::pair<std::string, std::vector<ProfileShare> (*)(const Profile&)>> ways = {
      {"place", by_place},   {"instruction", by_instruction},
      {"kernel", by_kernel}, {"class", by_class},
      {"layer", by_layer},   {"phase", by_phase}};
  static const std::vector<std::pair<std::string, double (*)(const ProfileShare&)>> orders = {
      {"time", [](const ProfileShare& s) { return s.ms; }},
      {"gap", [](const ProfileShare& s) { return s.ms - s.floor_ms; }},
      {"flops", [](const ProfileShare& s) { return s.flops; }},
      {"bytes", [](const ProfileShare& s) { return s.bytes; }}};
  auto pick = [](auto& list, const std::string& word, const char* flag) {
    std::vector<std::string> names;
    for (auto& [name, value] : list) {
      if (name == word) return value;
      names.push_back(name);
    }
    fail_usage(fmt::format("'{}' is not a value of {}", printable(word), flag), flag,
               fmt::format("{} Values: {}.", did_you_mean(word, names), join(names, ", ")));
  };
  auto order = pick(orders, view.sort, "--sort");
  std::vector<ProfileShare> shares = pick(ways, view.by, "--by")(p);
  std::stable_sort(shares.begin(), shares.end(), [&](auto& a, auto& b) { return order(a) > order(b); });
  return shares;
}

// Ranks along other axes than data share the same tokens.
static std::string ranks_text(const std::string& ranks, const std::string& mesh) {
  const std::string rest = "times and memory are those of rank 0";
  try {
    if (!mesh.empty() && mesh != "?") {
      const int data = parse_mesh(mesh).size(Axis::data);
      return fmt::format("{}; {} ranks ({}), {}", data > 1 ? fmt::format(" x {} data ranks", data) : "", ranks, mesh,
                         rest);
    }
  } catch (const Error&) {  // a profile of another version
  }
  return fmt::format(" x {} ranks; {}", ranks, rest);
}

std::string profile_head(const Profile& p, const ProfileView& view) {
  auto r = [&](const char* key) { return field(p.recipe, key); };
  double step = p.step_median_ms();
  std::string title = fmt::format("{}, phase {}, on {}\n", r("model"), printable(p.phase), field(p.device, "name"));
  std::string text = fmt::format("recipe    {} ({}), attention {}, fusion {}, recompute {}; ", r("precision"),
                                 r("policy"), r("attention"), r("fusion"), r("recompute"));
  text += p.phase == "decode" ? fmt::format("the last token of {}", r("seq"))
                              : fmt::format("{} tokens = batch {} x seq {}", p.tokens, r("batch"), r("seq"));
  if (r("grad_accumulation") != "1" && p.phase != "forward")
    text += fmt::format(" x {} micro steps", r("grad_accumulation"));
  for (const char* key : {"ranks", "data_parallel"})
    if (r(key) != "1" && r(key) != "?") text += ranks_text(r(key), r("mesh"));
  text += fmt::format("\nstep      {} ms{} ({} runs), {} tokens/s, {} ({} + 12 L d T per token)\n", ms(step),
                      interval(p.step_ms), p.step_ms.size(), format_count(double(p.tokens) / step * 1e3),
                      format_si(p.model_flops / step * 1e3, "FLOP/s"),
                      r("lora") == "0" || r("lora") == "?" ? "6N" : "4N + 2A");
  if (auto joules = p.joules_per_token())
    text += fmt::format("power     {:.0f} W, {:.3g} J/token\n", *p.power_w, *joules);
  text += fmt::format("profiled  {} ms{} ({} runs): overhead {:+.1f}%; {}\n", ms(p.profiled_median_ms()),
                      interval(p.profiled_ms), p.profiled_ms.size(), 100 * p.overhead(),
                      p.method == "cupti" ? "CUPTI records of the captured graph" : "a timer around each instruction");
  text += fmt::format(
      "explained {:.1f}%: busy {} + idle {} = {} ms, of {} ms for a step without the profiler; "
      "instruction times add up to {} ms\n",
      100 * p.explained_fraction(), ms(p.busy_ms), ms(p.idle_ms), ms(p.busy_ms + p.idle_ms), ms(step),
      ms(summary_of(p).total_ms));
  if (p.recording_ms > 0)
    text += fmt::format("          recording adds {} ms between launches ({:.2f} us each), not counted as idle\n",
                        ms(p.recording_ms), 1e3 * p.recording_ms / double(std::max<int64_t>(p.launches, 1)));
  if (!(std::abs(p.explained_fraction() - 1) <= 0.02))
    text +=
        "warning: the explained time is off by more than 2%: other work kept the machine busy, or the step does work\n"
        "         outside its Programs; measure again with more --samples\n";
  if (int64_t slow = std::count(p.throttled.begin(), p.throttled.end(), 1))
    text += fmt::format("warning: the device was throttled during {} of {} runs ({})\n", slow, p.step_ms.size(),
                        printable(join(p.throttle_reasons, ", ")));
  text += "limits    ";
  for (size_t i = 0; i < p.rates.size(); ++i)
    text +=
        fmt::format("{}{} {}", i ? ", " : "", printable(p.rates[i].name),
                    format_si(p.rates[i].per_second,
                              p.rates[i].name == "bandwidth" || p.rates[i].name == host_link_rate ? "B/s" : "FLOP/s"));
  auto given = [](auto& rate) { return rate.source.starts_with("given") || rate.source.starts_with("data sheet"); };
  auto n = std::count_if(p.rates.begin(), p.rates.end(), given);
  text += n == 0                     ? " (measured)"
          : n == std::ssize(p.rates) ? " (given by --rates)"
                                     : " (given by --rates, or measured)";
  if (p.clock_mhz > 0) text += fmt::format(", clock {:.0f} MHz", p.clock_mhz);
  text += "\n          floor: the shortest time at these limits; gap: time above the floor\n";
  return title + wrapped_lines(text, 10, view.width);
}

std::string profile_times(const Profile& p, const ProfileView& view) {
  std::vector<ProfileShare> phases = by_phase(p);
  double all = 0;  // includes idle time; overlapping streams count twice
  for (auto& s : phases) all += s.ms;
  std::vector<ProfileShare> classes = by_class(p);
  for (auto& s : classes) s.key = class_label(s.key);
  return share_table(phases, all, "phase", view) + "\n" + share_table(classes, all, "class", view) + "\n" +
         layers_text(p, view);
}

std::string profile_table(const Profile& p, const ProfileView& view) {
  double total = summary_of(p).total_ms;
  std::vector<ProfileShare> shares = profile_shares(p, view);
  if (view.by == "class")
    for (auto& s : shares) s.key = class_label(s.key);
  std::string title = view.by == "place" ? "kernel, phase, scope (layers merged)" : view.by;
  std::string text = share_table(shares, total, title.c_str(), view, view.top);
  if (p.kernels.empty() || view.by == "kernel") return text;
  std::vector<ProfileShare> kernels = by_kernel(p);
  std::vector<std::vector<std::string>> rows;
  for (size_t i = 0; i < kernels.size() && i < 10; ++i)
    rows.push_back({ms(kernels[i].ms), percent(kernels[i].ms, p.busy_ms), std::to_string(kernels[i].launches),
                    short_kernel(kernels[i].key)});
  std::vector<FitColumn> columns = {
      {{"ms"}}, {{"share"}}, {{"launches"}}, {{"device kernel", Align::left}, 0, least_label}};
  return text + "\n" + fit_table(columns, rows, size_t(view.width), view.color);
}

std::string profile_summary(const Profile& p, const ProfileView& view) {
  ProfileSummary f = summary_of(p);
  std::string text =
      fmt::format("matmuls            {} of instruction time, at {}\n", percent(f.contractions.ms, f.total_ms),
                  rate(f.contractions.flops, f.contractions.ms, "FLOP/s"));
  text += fmt::format("attention          {} of instruction time, {} ms, at {}\n", percent(f.attention.ms, f.total_ms),
                      ms(f.attention.ms), rate(f.attention.flops, f.attention.ms, "FLOP/s"));
  if (f.softmax.rows && f.products.rows)
    text += fmt::format("softmax : matmuls  {} : {} ms, 1 : {:.2f} in time, 1 : {:.1f} in FLOPs (naive attention)\n",
                        ms(f.softmax.ms), ms(f.products.ms), f.products.ms / f.softmax.ms,
                        f.products.flops / f.softmax.flops);
  if (f.backward_ms > 0)
    text += fmt::format("forward : backward {} : {} ms, 1 : {:.2f}; recompute {}\n", ms(f.forward_ms),
                        ms(f.backward_ms), f.backward_ms / f.forward_ms, percent(f.recompute_ms, f.total_ms));
  if (f.communication_ms > 0)
    text += fmt::format("communication      {} ms: {} ms while other instructions run, {} ms exposed\n",
                        ms(f.communication_ms), ms(f.hidden_ms), ms(f.exposed_ms));
  if (f.gradients_ms > 0)
    text += fmt::format("gradient stream    {} ms: {} ms while the compute stream runs, {} ms alone\n",
                        ms(f.gradients_ms), ms(f.gradients_hidden_ms), ms(f.gradients_ms - f.gradients_hidden_ms));
  text += fmt::format("launches           {}, mean {:.1f} us; idle {} ms ({}) in {} gaps, the largest {:.1f} us\n",
                      f.launches, f.launches ? 1e3 * p.busy_ms / double(f.launches) : 0, ms(f.idle_ms),
                      percent(f.idle_ms, p.span_ms), f.idle_periods, 1e3 * f.longest_idle_ms);
  text += fmt::format("floor              {} ms at the limits above: {} of instruction time\n", ms(f.floor_ms),
                      percent(f.floor_ms, f.total_ms));
  return wrapped_lines(text, 19, view.width);
}

}  // namespace crest
