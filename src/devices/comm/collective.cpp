#include "comm/collective.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/text.h"

namespace crest {

const std::vector<Collective> all_collectives = {Collective::all_reduce,     Collective::all_gather,
                                                 Collective::reduce_scatter, Collective::broadcast,
                                                 Collective::all_to_all,     Collective::send_receive};

const char* name(Collective c) {
  switch (c) {
    case Collective::all_reduce: return "all-reduce";
    case Collective::all_gather: return "all-gather";
    case Collective::reduce_scatter: return "reduce-scatter";
    case Collective::broadcast: return "broadcast";
    case Collective::all_to_all: return "all-to-all";
    case Collective::send_receive: return "send-receive";
  }
  return "?";
}

Collective parse_collective(const std::string& text) {
  std::vector<std::string> names;
  for (Collective c : all_collectives) {
    if (text == name(c)) return c;
    names.emplace_back(name(c));
  }
  names.emplace_back("all");
  fail_usage(fmt::format("unknown collective '{}'", printable(text)), "crest comm",
             fmt::format("{} Collectives: {}.", did_you_mean(text, names), join(names, ", ")));
}

double bus_factor(Collective c, int ranks) {
  double n = ranks;
  switch (c) {
    case Collective::all_reduce: return 2 * (n - 1) / n;
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::all_to_all: return (n - 1) / n;
    case Collective::broadcast:
    case Collective::send_receive: return 1;
  }
  return 0;
}

static bool has_parts(Collective c) {
  return c == Collective::all_gather || c == Collective::reduce_scatter || c == Collective::all_to_all;
}

int64_t elements_for(Collective c, int ranks, DType dtype, int64_t bytes) {
  int64_t n = bytes / int64_t(size_of(dtype)), unit = has_parts(c) ? ranks : 1;
  return std::max(unit, n / unit * unit);
}

int64_t buffer_bytes(Collective c, int ranks, DType dtype, int64_t elements) {
  int64_t bytes = elements * int64_t(size_of(dtype));
  if (c == Collective::all_to_all || c == Collective::send_receive) return 2 * bytes;
  return has_parts(c) ? bytes + bytes / ranks : bytes;
}

// Weights of 1 / t^2 minimize the sum of ((a + b x - t) / t)^2.
TransferFit fit_transfer(const std::vector<TransferPoint>& points) {
  double w = 0, wx = 0, wxx = 0, wt = 0, wxt = 0;
  double scale = 0;
  for (auto& p : points) scale = std::max(scale, p.bytes);
  for (auto& p : points) {
    double weight = 1 / (p.seconds * p.seconds), x = p.bytes / scale;
    w += weight, wx += weight * x, wxx += weight * x * x;
    wt += weight * p.seconds, wxt += weight * x * p.seconds;
  }
  double determinant = w * wxx - wx * wx;
  TransferFit fit;
  if (points.size() < 2 || !(determinant > 1e-12 * w * wxx)) return fit;
  fit.points = int(points.size());
  fit.startup = (wxx * wt - wx * wxt) / determinant;
  fit.seconds_per_byte = (w * wxt - wx * wt) / determinant / scale;
  for (auto& p : points)
    fit.worst = std::max(fit.worst, std::abs(p.seconds / (fit.startup + p.bytes * fit.seconds_per_byte) - 1));
  return fit;
}

}  // namespace crest
