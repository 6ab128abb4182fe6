// Training runs and imported logs: loss curves and results.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "charts/figure.h"
#include "report/phrases.h"
#include "report/report_parts.h"

namespace crest {

namespace {

struct Reached {
  int64_t steps = 0, skipped = 0;
  double loss = NAN, val_loss = NAN, step_ms = NAN, tokens_per_second = NAN;
};

Reached reached(const RunRecord& r) {
  Reached x;
  Samples ms, tokens;
  for (auto& row : r.log) {
    x.steps = std::max(x.steps, row.step);
    x.skipped += row.skipped;
    if (std::isfinite(row.loss)) x.loss = row.loss;
    if (std::isfinite(row.val_loss))
      x.val_loss = std::isfinite(x.val_loss) ? std::min(x.val_loss, row.val_loss) : row.val_loss;
    if (std::isfinite(row.step_ms)) ms.add(row.step_ms);
    if (std::isfinite(row.tokens_per_second)) tokens.add(row.tokens_per_second);
  }
  if (!ms.empty()) x.step_ms = ms.median();
  if (!tokens.empty()) x.tokens_per_second = tokens.median();
  return x;
}

void add_curves(Page& page, const std::vector<const RunRecord*>& runs) {
  std::vector<Series> series;
  for (auto* r : runs) {
    Series train{runs.size() == 1 ? "training loss" : r->name, {}, {}}, val = train;
    val.name = runs.size() == 1 ? "validation loss" : r->name + ", validation";
    for (auto& row : r->log) {
      if (std::isfinite(row.loss)) train.x.push_back(double(row.step)), train.y.push_back(row.loss);
      if (std::isfinite(row.val_loss)) val.x.push_back(double(row.step)), val.y.push_back(row.val_loss);
    }
    for (auto& s : {train, val})
      if (!s.x.empty() && series.size() < 12) series.push_back(s);
  }
  if (series.empty()) return;
  ChartOptions options{"Loss", "step", "loss", false, false};
  Figure f;
  f.title = "Loss by step";
  f.caption.add("Cross-entropy per token, in nats, as logged by each run.");
  f.draw = [series, options](double width) { return draw_lines(series, options, width); };
  f.numbers.columns = {{"curve", Align::left}, {"points"}, {"first"}, {"lowest"}, {"last"}};
  for (auto& s : series)
    f.numbers.rows.push_back({s.name, std::to_string(s.y.size()), fmt::format("{:.4f}", s.y.front()),
                              fmt::format("{:.4f}", *std::min_element(s.y.begin(), s.y.end())),
                              fmt::format("{:.4f}", s.y.back())});
  page.blocks.push_back(f);
}

}  // namespace

void add_training(Page& page, const ReportData& data) {
  if (data.trainings.empty()) return;
  page.blocks.push_back(Heading{2, "Training"});
  PageTable t;
  t.columns = {{"run", Align::left},       {"model", Align::left}, {"steps"},    {"last loss"},
               {"lowest validation loss"}, {"step, ms"},           {"tokens/s"}, {"skipped"}};
  for (auto* r : data.trainings) {
    Reached x = reached(*r);
    auto four = [](double v) { return std::isfinite(v) ? fmt::format("{:.4f}", v) : std::string("-"); };
    std::string model = json_text(r->recipe, "/model");
    t.rows.push_back({r->name, model.empty() ? "-" : model, std::to_string(x.steps), four(x.loss), four(x.val_loss),
                      std::isfinite(x.step_ms) ? fmt::format("{:.2f}", x.step_ms) : "-", say_rate(x.tokens_per_second),
                      std::to_string(x.skipped)});
  }
  t.note = "Times and speeds are medians over the steps.";
  page.blocks.push_back(t);
  add_curves(page, data.trainings);
}

}  // namespace crest
