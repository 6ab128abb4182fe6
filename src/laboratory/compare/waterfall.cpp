#include "compare/waterfall.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "compare/split.h"
#include "core/text.h"
#include "profile/overlap.h"

namespace crest {

namespace {

bool on_matrix_units(const ProfileInstr& r) { return r.op_class == "contraction" || r.op_class == "attention"; }

// Rates of both sides. The same device has one rate per precision, its best measured rate: two
// measurements of it differ only by noise.
class Rates {
 public:
  Rates(const ComparedSide& a, const ComparedSide& b) : same_(crest::same_device(a, b)) {
    for (auto& r : a.profile.rates) rate_[0][r.name] = r.per_second;
    for (auto& r : b.profile.rates) rate_[1][r.name] = r.per_second;
    if (same_)
      for (int side : {0, 1})
        for (auto& [name, rate] : rate_[side]) rate = std::max(rate, of(1 - side, name));
    if (same_)
      for (int side : {0, 1}) rate_[side].insert(rate_[1 - side].begin(), rate_[1 - side].end());
    devices_.bandwidth_a = of(0, "bandwidth"), devices_.bandwidth_b = of(1, "bandwidth");
    double clock_a = a.profile.clock_mhz, clock_b = b.profile.clock_mhz;
    if (same_ && clock_a > 0 && clock_b > 0) devices_.clock_ratio = clock_b / clock_a;
  }
  double of(int side, const std::string& name) const {
    auto it = rate_[side].find(name);
    return it == rate_[side].end() ? 0 : it->second;
  }
  const Devices& devices() const { return devices_; }

 private:
  bool same_;
  std::map<std::string, double> rate_[2];
  Devices devices_;
};

Work work_of(const ComparedSide& s, const std::vector<int>& rows, int side, const Rates& rates) {
  Work w;
  for (int i : rows) {
    const ProfileInstr& r = s.rows[size_t(i)];
    WorkPool& pool = w.pools[on_matrix_units(r) ? 0 : 1];
    w.ms += r.ms;
    pool.flops += r.flops, pool.bytes += r.bytes;
    if (double rate = rates.of(side, r.arithmetic); rate > 0) pool.arithmetic_seconds += r.flops / rate;
  }
  return w;
}

Work scaled(Work w, double factor) {
  w.ms *= factor;
  for (auto& p : w.pools) p.flops *= factor, p.bytes *= factor, p.arithmetic_seconds *= factor;
  return w;
}

// Names by weight, heaviest first.
class Weighted {
 public:
  void add(const std::string& name, double weight) {
    if (name.empty()) return;
    auto [it, added] = index_.emplace(name, list_.size());
    if (added) list_.push_back({name, 0, 0});
    list_[it->second].weight += weight, list_[it->second].count += 1;
  }
  std::vector<std::string> names(bool counted = false) {
    std::stable_sort(list_.begin(), list_.end(), [](auto& x, auto& y) { return x.weight > y.weight; });
    std::vector<std::string> out;
    for (auto& e : list_) out.push_back(counted ? fmt::format("{} x {}", e.count, e.name) : e.name);
    return out;
  }

 private:
  struct Entry {
    std::string name;
    double weight;
    int count;
  };
  std::map<std::string, size_t> index_;
  std::vector<Entry> list_;
};

GroupSide side_of(const ComparedSide& s, const std::vector<int>& rows) {
  GroupSide g;
  Weighted ops, kernels, arithmetic, types, classes;
  double most = -1;
  std::map<int, int> layers;
  std::map<Use, int64_t> uses;
  for (int i : rows) {
    const ProfileInstr& r = s.rows[size_t(i)];
    g.instructions += 1, g.calls += r.calls;
    g.ms += r.ms, g.floor_ms += r.floor_ms, g.flops += r.flops, g.bytes += r.bytes;
    ops.add(r.op, r.ms), kernels.add(r.kernel, r.ms), classes.add(r.op_class, r.ms);
    arithmetic.add(r.arithmetic, r.flops), types.add(r.type.substr(0, r.type.find('[')), r.ms);
    if (r.ms > most) most = r.ms, g.type = r.type;
    if (r.layer >= 0) ++layers[r.layer];
    ++uses[{r.op, r.kernel, r.arithmetic, r.type, 0}];
    g.quadratic |= is_quadratic(r.type, s);
  }
  g.layers = int(layers.size());
  for (auto& [use, instructions] : uses) g.uses.push_back(use), g.uses.back().instructions = instructions;
  g.ops = ops.names(true), g.kernels = kernels.names(), g.arithmetic = arithmetic.names();
  g.types = types.names(), g.classes = classes.names();
  return g;
}

Factor main_of(const FactorMs& parts, double difference) {
  difference = without_last_bits(difference);
  size_t best = size_t(Factor::unsplit);
  double most = 0;
  for (size_t f = 0; f < parts.size(); ++f) {
    double part = without_last_bits(parts[f]);
    double with = difference < 0 ? -part : difference > 0 ? part : std::abs(part);  // 0: they cancel
    if (with > most) most = with, best = f;
  }
  return Factor(best);
}

// Communication is time, not work at a rate: its cost depends on the other ranks.
FactorMs split_group(const JoinedGroup& g, const ComparedSide& a, const ComparedSide& b, const Rates& rates,
                     double scale_a, double scale_b, Slowdowns* slowdowns) {
  FactorMs parts{};
  std::vector<int> rows[2];
  for (int side : {0, 1}) {
    const ComparedSide& s = side ? b : a;
    for (int i : side ? g.b : g.a)
      if (communicates(s.rows[size_t(i)]))
        parts[size_t(Factor::communication)] += (side ? scale_b : -scale_a) * s.rows[size_t(i)].ms;
      else
        rows[side].push_back(i);
  }
  FactorMs compute = split(scaled(work_of(a, rows[0], 0, rates), scale_a),
                           scaled(work_of(b, rows[1], 1, rates), scale_b), rates.devices(), slowdowns);
  for (size_t f = 0; f < parts.size(); ++f) parts[f] += compute[f];
  return parts;
}

void add(FactorMs& sum, const FactorMs& parts) {
  for (size_t f = 0; f < sum.size(); ++f) sum[f] += parts[f];
}

// step = rows - overlap + idle + residual.
double residual(const ComparedSide& s) { return s.run.step_ms - (s.rows_ms() - s.overlap_ms() + s.profile.idle_ms); }

// Time between rows, for the whole step.
FactorMs around(const ComparedSide& a, const ComparedSide& b, double scale_a, double scale_b) {
  FactorMs parts{};
  parts[size_t(Factor::idle)] = scale_b * b.profile.idle_ms - scale_a * a.profile.idle_ms;
  parts[size_t(Factor::overlap)] = -(scale_b * b.overlap_ms() - scale_a * a.overlap_ms());
  parts[size_t(Factor::residual)] = scale_b * residual(b) - scale_a * residual(a);
  return parts;
}

struct Totals {
  double flops = 0, bytes = 0, communication_ms = 0;
  double arithmetic_seconds = 0;        // sum over all FLOPs at their rates
  std::vector<std::string> arithmetic;  // precisions with at least a twentieth of the FLOPs, most FLOPs first
};

Totals totals(const ComparedSide& s, int side, const Rates& rates) {
  Totals t;
  Weighted arithmetic;
  std::map<std::string, double> flops;
  for (auto& r : s.rows) {
    if (communicates(r)) {
      t.communication_ms += r.ms;
      continue;
    }
    t.flops += r.flops, t.bytes += r.bytes;
    arithmetic.add(r.arithmetic, r.flops), flops[r.arithmetic] += r.flops;
    if (double rate = rates.of(side, r.arithmetic); rate > 0) t.arithmetic_seconds += r.flops / rate;
  }
  for (auto& name : arithmetic.names())
    if (flops[name] >= 0.05 * t.flops) t.arithmetic.push_back(name);
  return t;
}

// Of all groups, each with the floor used to compare its sides. So the step got closer to its
// limits exactly if the parts of its groups sum to saved time, even if the groups' weights differ.
Slowdowns slowdowns_of_step(const RunComparison& c) {
  Slowdowns sum;
  for (auto& cause : c.causes) {
    const Slowdowns& s = cause.slowdowns;
    sum.a += s.floor_ms * s.a, sum.b += s.floor_ms * s.b, sum.floor_ms += s.floor_ms;
  }
  if (sum.floor_ms > 0) sum.a /= sum.floor_ms, sum.b /= sum.floor_ms;
  return sum;
}

// Work and times are per step, or per 1000 tokens.
std::string detail(Factor factor, const RunComparison& c, const ComparedSide& a, const ComparedSide& b,
                   const Rates& rates) {
  const bool per_token = c.per_token;
  Totals x = totals(a, 0, rates), y = totals(b, 1, rates);
  auto work = [&](double of_a, double of_b, const char* unit) {
    if (!per_token) return fmt::format("{} -> {}", format_si(of_a, unit), format_si(of_b, unit));
    return fmt::format("{} -> {} per 1000 tokens", format_si(1e3 * of_a / double(a.run.tokens), unit),
                       format_si(1e3 * of_b / double(b.run.tokens), unit));
  };
  auto times = [&](double of_a, double of_b) {
    if (!per_token) return format_ms_pair(of_a, of_b);
    return format_ms_pair(1e3 * of_a / double(a.run.tokens), 1e3 * of_b / double(b.run.tokens)) + " per 1000 tokens";
  };
  // The mean rate of all FLOPs, because a step has several precisions.
  auto rate = [](const Totals& t) {
    double mean = t.arithmetic_seconds > 0 ? t.flops / t.arithmetic_seconds : 0;
    return fmt::format("{} {}", join(t.arithmetic, " and "), format_si(mean, "FLOP/s"));
  };
  switch (factor) {
    case Factor::flops: return work(x.flops, y.flops, "FLOP");
    case Factor::rate: return fmt::format("{} -> {}", rate(x), rate(y));
    case Factor::bytes: return work(x.bytes, y.bytes, "B");
    case Factor::bandwidth:
      return fmt::format("{} -> {}", format_si(rates.devices().bandwidth_a, "B/s"),
                         format_si(rates.devices().bandwidth_b, "B/s"));
    case Factor::efficiency: return efficiency_text(slowdowns_of_step(c));
    case Factor::clocks: return fmt::format("{:.0f} -> {:.0f} MHz", a.profile.clock_mhz, b.profile.clock_mhz);
    case Factor::communication: return times(x.communication_ms, y.communication_ms);
    case Factor::unsplit: return "kernel time that the work does not explain";
    case Factor::idle:
      return fmt::format("{}, {} -> {} launches{}", times(a.profile.idle_ms, b.profile.idle_ms), a.profile.launches,
                         b.profile.launches, per_token ? " a step" : "");
    case Factor::overlap: return times(a.overlap_ms(), b.overlap_ms());
    case Factor::residual: return times(residual(a), residual(b));
  }
  return "";
}

Cause cause_of(const JoinedGroup& g, const ComparedSide& a, const ComparedSide& b) {
  Cause c;
  c.label = g.label, c.phase = g.phase, c.roles = g.roles;
  c.a = side_of(a, g.a), c.b = side_of(b, g.b);
  const GroupSide& heavier = c.a.ms > c.b.ms ? c.a : c.b;
  if (!heavier.classes.empty()) c.op_class = heavier.classes[0];
  return c;
}

void split_times(RunComparison& c, const Join& joined, const ComparedSide& a, const ComparedSide& b) {
  Rates rates(a, b);
  double difference = c.explained_difference();
  bool tokens = a.run.tokens > 0 && b.run.tokens > 0;
  double scale_a = tokens ? 1 / double(a.run.tokens) : 0, scale_b = tokens ? 1 / double(b.run.tokens) : 0;
  FactorMs sum = around(a, b, 1, 1), sum_per_token = around(a, b, scale_a, scale_b);
  for (size_t g = 0; g < joined.groups.size(); ++g) {
    Cause& cause = c.causes[g];
    cause.ms = cause.b.ms - cause.a.ms;
    cause.ms_per_token = scale_b * cause.b.ms - scale_a * cause.a.ms;
    Slowdowns *of_step = c.per_token ? nullptr : &cause.slowdowns, *of_token = c.per_token ? &cause.slowdowns : nullptr;
    cause.factors = split_group(joined.groups[g], a, b, rates, 1, 1, of_step);
    if (tokens) cause.factors_per_token = split_group(joined.groups[g], a, b, rates, scale_a, scale_b, of_token);
    cause.main_factor =
        c.per_token ? main_of(cause.factors_per_token, cause.ms_per_token) : main_of(cause.factors, cause.ms);
    if (difference != 0) cause.share = (c.per_token ? cause.ms_per_token : cause.ms) / difference;
    add(sum, cause.factors);
    add(sum_per_token, cause.factors_per_token);
  }
  for (size_t f = 0; f < sum.size(); ++f)
    if (sum[f] != 0 || sum_per_token[f] != 0)
      c.waterfall.push_back({Factor(f), sum[f], sum_per_token[f], detail(Factor(f), c, a, b, rates)});
  for (const ComparedSide* s : {&a, &b})
    if (s->run.step_ms > 0) c.residual_share = std::max(c.residual_share, std::abs(residual(*s)) / s->run.step_ms);
}

}  // namespace

std::string format_ms(double ms) {
  ms = without_last_bits(ms);
  double size = std::abs(ms);
  return fmt::format("{:.{}f} ms", ms, size >= 99.95 ? 1 : size >= 9.995 ? 1 : size >= 0.9995 ? 2 : 3);
}

std::string format_ms_pair(double a, double b) {
  std::string x = format_ms(a), y = format_ms(b);
  return fmt::format("{} -> {}", x.substr(0, x.size() - 3), y);
}

std::string format_ms_signed(double ms) {
  bool nothing = std::abs(ms) < 0.0005;  // as printed
  return (nothing ? "" : ms < 0 ? "-" : "+") + format_ms(std::abs(ms));
}

std::string efficiency_text(const Slowdowns& s) {
  if (!(s.a > 0 && s.b > 0)) return "";
  double a = 100 / s.a, b = 100 / s.b;
  int digits = 0;  // enough to show the difference
  auto text = [&](double x) { return fmt::format("{:.{}f}%", x, digits); };
  while (digits < 2 && text(a) == text(b)) ++digits;
  // Data in caches arrives faster than from memory.
  bool limit = std::max(a, b) < 100.5;
  return fmt::format("{} -> {} of {}", text(a), text(b), limit ? "the limit" : "the measured rates");
}

void join_steps(RunComparison& c, const ComparedSide& a, const ComparedSide& b, GroupBy by) {
  Join joined = join_rows(a.rows, b.rows, by);
  c.join = joined.how;
  for (auto& g : joined.groups) c.causes.push_back(cause_of(g, a, b));
  if (a.profiled && b.profiled) split_times(c, joined, a, b);
  auto size = [&](const Cause& x) {
    if (c.waterfall.empty()) return std::abs(x.b.bytes - x.a.bytes);
    return std::abs(c.per_token ? x.ms_per_token : x.ms);
  };
  std::stable_sort(c.causes.begin(), c.causes.end(), [&](auto& x, auto& y) { return size(x) > size(y); });
}

}  // namespace crest
