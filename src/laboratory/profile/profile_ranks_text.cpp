// How each rank spent a profiled step, for the terminal.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "profile/profile_text.h"
#include "terminal/fit_table.h"

namespace crest {

namespace {

std::string in_ms(double x) { return x >= 1000 ? fmt::format("{:.1f}", x) : fmt::format("{:.3f}", x); }

// "1: 2.10, 3: 0.40": rank and wait. Waits below a thousandth of the step are left out.
std::string waits_of(const ProfileRank& r) {
  std::string text;
  for (size_t q = 0; q < r.waiting_ms.size(); ++q)
    if (r.waiting_ms[q] > 1e-3 * r.step_ms)
      text += fmt::format("{}rank {}: {}", text.empty() ? "" : ", ", q, in_ms(r.waiting_ms[q]));
  return text.empty() ? "-" : text;
}

}  // namespace

std::string profile_ranks(const Profile& p, const ProfileView& view) {
  if (p.ranks.empty()) return "";
  std::vector<FitColumn> columns = {{{"rank"}},    {{"step ms"}}, {{"computing"}}, {{"hidden"}, 1},   {{"exposed"}},
                                    {{"waiting"}}, {{"host"}},    {{"idle"}},      {{"explained"}, 2}};
  columns.push_back({{"waiting for", Align::left}});
  std::vector<std::vector<std::string>> rows;
  bool open = false;
  for (auto& r : p.ranks) {
    rows.push_back({std::to_string(r.rank), in_ms(r.step_ms), in_ms(r.compute_ms), in_ms(r.hidden_ms),
                    in_ms(r.exposed_ms), in_ms(r.waiting_sum_ms()), in_ms(r.host_ms), in_ms(r.idle_ms),
                    fmt::format("{:.1f}%", 100 * r.explained_fraction()), waits_of(r)});
    open |= !(std::abs(r.explained_fraction() - 1) <= 0.02);
  }
  std::string text = fit_table(columns, rows, size_t(view.width), view.color);
  text += wrapped_lines(
      "computing + exposed + waiting + host + idle = step. Hidden: communication alongside computing. Exposed: only "
      "transfers run. Waiting: until the last rank has arrived at a collective. Host: samples, and agreement with the "
      "other ranks.\n",
      0, view.width);
  if (open)
    text += wrapped_lines(
        "warning: the explained time of a rank is off by more than 2%; measure again with more --samples\n", 0,
        view.width);
  return text;
}

}  // namespace crest
