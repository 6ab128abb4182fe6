#include "store/step_times.h"

#include <cmath>

#include "stats/samples.h"

namespace crest {

std::vector<double> step_times(const RunRecord& run) {
  std::vector<double> ms;
  for (auto& s : run.samples)
    if (s.contender != "a again" && s.ms > 0 && std::isfinite(s.ms)) ms.push_back(s.ms);
  return ms.empty() ? times_of_rows(after_warmup(run.log)) : ms;
}

double logged_rate(const RunRecord& run) {
  std::vector<double> rates;
  for (auto& row : after_warmup(run.log))
    if (row.tokens_per_second > 0 && std::isfinite(row.tokens_per_second)) rates.push_back(row.tokens_per_second);
  return rates.empty() ? 0 : Samples(std::move(rates)).median();
}

}  // namespace crest
