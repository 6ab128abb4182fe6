#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compare/compare.h"
#include "compare/side.h"
#include "core/text.h"
#include "device/conditions.h"

namespace crest {

namespace {

constexpr double equal_clocks = 0.03;

std::string kind_of(const RunRecord& r) { return string_at(r.device, "kind"); }

// A figure of a profile; 0: unknown.
double clock_of(const RunRecord& r) {
  auto document = r.documents.find("profile");
  return document == r.documents.end() ? 0 : number(document->second, "clock_mhz");
}

}  // namespace

double other_load(const RunRecord& r) {
  double load = NAN;
  for (const Json* environment : {&r.environment, &r.environment_after})
    if (const Json* conditions = member(*environment, "conditions"))
      if (double known = number(*conditions, "other_load", NAN); std::isfinite(known)) load = known;
  return load;
}

std::string apart_doubt(const RunRecord& a, const RunRecord& b) {
  if (kind_of(a).empty() || kind_of(a) != kind_of(b) || string_at(a.device, "name") != string_at(b.device, "name"))
    return "";
  if (kind_of(a) == "cuda") {
    const double x = clock_of(a), y = clock_of(b);
    if (!(x > 0 && y > 0) || std::max(x, y) <= (1 + equal_clocks) * std::min(x, y)) return "";
    return fmt::format("the clocks were {:.0f} and {:.0f} MHz", x, y);
  }
  const double x = other_load(a), y = other_load(b), most = std::fmax(x, y);  // unknown on one side: the other side's
  if (!(most > quiet_cpus)) return "";
  return fmt::format("other processes kept up to {:.1f} CPUs busy", most);
}

}  // namespace crest
