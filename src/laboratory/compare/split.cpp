#include "compare/split.h"

#include <algorithm>
#include <cmath>

namespace crest {

namespace {

constexpr int switched = 6;  // the first factors of Factor
static_assert(int(Factor::clocks) == switched - 1);
constexpr int cases = 1 << switched;

double seconds_per_flop(const WorkPool& pool, const WorkPool& other) {
  if (pool.flops > 0) return pool.arithmetic_seconds / pool.flops;
  return other.flops > 0 ? other.arithmetic_seconds / other.flops : 0;
}

// All inputs of the time model, for one side.
struct Side {
  std::array<double, 2> flops{}, seconds_per_flop{}, bytes{};
  double seconds_per_byte = 0, slowdown = 1, clock = 1;
};

Side side(const Work& work, const Work& other, double bandwidth, double clock) {
  Side s;
  for (size_t p = 0; p < 2; ++p) {
    s.flops[p] = work.pools[p].flops;
    s.bytes[p] = work.pools[p].bytes;
    s.seconds_per_flop[p] = seconds_per_flop(work.pools[p], other.pools[p]);
  }
  s.seconds_per_byte = bandwidth > 0 ? 1 / bandwidth : 0;
  s.clock = clock;
  return s;
}

double floor_ms(const Side& f, const Side& r, const Side& b, const Side& w, const Side& c) {
  double sum = 0;
  for (size_t p = 0; p < 2; ++p)
    sum += std::max(f.flops[p] * r.seconds_per_flop[p] / c.clock, b.bytes[p] * w.seconds_per_byte);
  return 1e3 * sum;
}

double floor_ms(const Side& s) { return floor_ms(s, s, s, s, s); }

// Weight of a set of `size` factors in the Shapley value: size! (n - size - 1)! / n!.
double weight(int size) {
  double w = 1.0 / switched;
  for (int k = 1; k <= size; ++k) w *= double(k) / double(switched - k);
  return w;
}

}  // namespace

void Work::add(const Work& other) {
  ms += other.ms;
  for (size_t p = 0; p < 2; ++p) {
    pools[p].flops += other.pools[p].flops;
    pools[p].bytes += other.pools[p].bytes;
    pools[p].arithmetic_seconds += other.pools[p].arithmetic_seconds;
  }
}

FactorMs split(const Work& a, const Work& b, const Devices& devices, Slowdowns* slowdowns) {
  FactorMs parts{};
  // Rates refer to a clock midway between both, so swapping A and B only flips the signs.
  double clock = std::sqrt(devices.clock_ratio);
  Side sa = side(a, b, devices.bandwidth_a, 1 / clock), sb = side(b, a, devices.bandwidth_b, clock);
  double floor_a = floor_ms(sa), floor_b = floor_ms(sb);
  bool known_a = floor_a > 0 || !a.any(), known_b = floor_b > 0 || !b.any();
  if (!known_a || !known_b || floor_a + floor_b == 0) {
    parts[size_t(Factor::unsplit)] = b.ms - a.ms;
    return parts;
  }
  // Work missing on one side is assumed to be as efficient there as on the other.
  sa.slowdown = floor_a > 0 ? a.ms / floor_a : b.ms / floor_b;
  sb.slowdown = floor_b > 0 ? b.ms / floor_b : sa.slowdown;

  std::array<double, cases> time;
  double mean_floor = 0;
  for (int set = 0; set < cases; ++set) {
    auto of = [&](Factor f) -> const Side& { return set >> int(f) & 1 ? sb : sa; };
    double floor =
        floor_ms(of(Factor::flops), of(Factor::rate), of(Factor::bytes), of(Factor::bandwidth), of(Factor::clocks));
    time[size_t(set)] = of(Factor::efficiency).slowdown * floor;
    if (!(set >> int(Factor::efficiency) & 1)) mean_floor += weight(__builtin_popcount(unsigned(set))) * floor;
  }
  for (int i = 0; i < switched; ++i)
    for (int set = 0; set < cases; ++set)
      if (!(set >> i & 1))
        parts[size_t(i)] +=
            weight(__builtin_popcount(unsigned(set))) * (time[size_t(set | 1 << i)] - time[size_t(set)]);
  for (double part : parts)
    if (std::abs(part) > (1 + 1e-9) * std::max(a.ms, b.ms)) {
      parts = {};
      parts[size_t(Factor::unsplit)] = b.ms - a.ms;
      return parts;
    }
  if (slowdowns && floor_a > 0 && floor_b > 0) *slowdowns = {sa.slowdown, sb.slowdown, mean_floor};
  return parts;
}

}  // namespace crest
