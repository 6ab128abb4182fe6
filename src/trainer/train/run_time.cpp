#include "train/run_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/json_number.h"
#include "core/text.h"
#include "device/data_sheet.h"
#include "train/run.h"

namespace crest {

void RunTime::begin(const CompiledSession& session, const TrainOptions& o) {
  const Recipe& r = session.recipe;
  flops_ = step_flops(session);
  peak_ = o.peak, source_ = "as given";
  if (const DataSheet* sheet = o.device.kind == "cuda" ? data_sheet_of(o.device.name) : nullptr; sheet && peak_ <= 0)
    peak_ = sheet->peak(r.precision).value_or(0), source_ = sheet->title;
  if (r.ranks > 1) source_ += fmt::format(", {} ranks", r.ranks);
  peak_ *= r.ranks;
}

void RunTime::add(const StepRow& row) {
  ++count_;
  steps_ += row.step_ms / 1e3, data_ += row.wait_ms / 1e3;
  communication_ = communication_ < 0 || row.communication_ms < 0 ? -1 : communication_ + row.communication_ms / 1e3;
}

double RunTime::share(double flops, double seconds) const {
  return peak_ > 0 && seconds > 0 && count_ > 0 ? flops * double(count_) / seconds / peak_ : NAN;
}

std::string RunTime::parts_text() const {
  std::string text;
  for (auto [seconds, what] : {std::pair{data_, "waiting for data"}, {communication_, "communication"}})
    if (seconds >= 0.005) text += fmt::format("; {:.2f} s of them {}", seconds, what);
  return text;
}

std::string RunTime::peak_text(double seconds) const {
  const double model = mfu(seconds), hardware = hfu(seconds);
  if (!std::isfinite(model)) return "";
  return fmt::format("MFU {:.1f}%, HFU {:.1f}% of {} ({}), over all {:.2f} s with every wait", 100 * model,
                     100 * hardware, format_si(peak_, "FLOP/s"), source_, seconds);
}

nlohmann::ordered_json to_json(const RunTime& t, double seconds, const BetweenSteps& b) {
  using Json = nlohmann::ordered_json;
  auto rounded = [](double x) { return std::round(x * 1000) / 1000; };
  const double communication = std::max(t.communication_seconds(), 0.0);
  const double between = b.validation + b.saving + b.sampling;
  return {
      {"mfu", number_or_null(t.mfu(seconds))},
      {"hfu", number_or_null(t.hfu(seconds))},
      {"peak_flops_per_second", t.peak() > 0 ? Json(t.peak()) : Json()},
      {"time",
       {{"compute_seconds", rounded(t.step_seconds() - t.data_seconds() - communication)},
        {"data_seconds", rounded(t.data_seconds())},
        {"communication_seconds", t.communication_seconds() < 0 ? Json() : Json(rounded(t.communication_seconds()))},
        {"validation_seconds", rounded(b.validation)},
        {"saving_seconds", rounded(b.saving)},
        {"sampling_seconds", rounded(b.sampling)},
        {"rest_seconds", rounded(seconds - t.step_seconds() - between)}}}};
}

}  // namespace crest
