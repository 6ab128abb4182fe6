// Training runs and imported logs: loss curves and results.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "charts/figure.h"
#include "report/phrases.h"
#include "report/report_parts.h"
#include "store/step_times.h"

namespace crest {

namespace {

// If not, runs are drawn over tokens.
bool same_steps(const std::vector<const RunRecord*>& runs) {
  return std::all_of(runs.begin(), runs.end(), [&](auto* r) {
    double tokens = tokens_per_step(r->recipe);
    return !std::isfinite(tokens) || tokens == tokens_per_step(runs[0]->recipe);
  });
}

constexpr size_t most_curves = 8;  // runs in a figure

void add_curves(Page& page, const std::vector<const RunRecord*>& runs, const std::vector<std::string>& labels) {
  bool by_step = same_steps(runs) || std::any_of(runs.begin(), runs.end(),
                                                 [](auto* r) { return !std::isfinite(tokens_per_step(r->recipe)); });
  std::vector<Series> series;
  Figure f;
  f.numbers.columns = {{"curve", Align::left}, {"points"}, {"first"}, {"lowest"}, {"last"}};
  int color = 0;
  for (size_t i = 0; i < runs.size() && color < int(most_curves); ++i) {
    double scale = by_step ? 1 : tokens_per_step(runs[i]->recipe);
    Series train, val;
    for (auto& row : runs[i]->log) {
      if (std::isfinite(row.loss)) train.x.push_back(scale * double(row.step)), train.y.push_back(row.loss);
      if (std::isfinite(row.val_loss)) val.x.push_back(scale * double(row.step)), val.y.push_back(row.val_loss);
    }
    std::vector<Series> curves = loss_curves(runs.size() == 1 ? "" : labels[i], train, val, color);
    color += !curves.empty();
    series.insert(series.end(), curves.begin(), curves.end());
    for (auto& [what, s] : {std::pair<const char*, const Series&>{"training", train}, {"validation", val}})
      if (!s.x.empty())
        f.numbers.rows.push_back({(runs.size() == 1 ? "" : labels[i] + ", ") + what, std::to_string(s.y.size()),
                                  fmt::format("{:.4f}", s.y.front()),
                                  fmt::format("{:.4f}", *std::min_element(s.y.begin(), s.y.end())),
                                  fmt::format("{:.4f}", s.y.back())});
  }
  if (series.empty()) return;
  std::string over = by_step ? "step" : "tokens";
  ChartOptions options{"Loss by " + over, over, "loss", false, false};
  f.title = options.title;
  f.caption.add(fmt::format("Cross-entropy per token, in nats ({}).", loss_curves_key));
  if (runs.size() > most_curves) f.caption.add(fmt::format(" The first {} of {} runs.", most_curves, runs.size()));
  f.draw = [series, options](double width) { return draw_lines(series, options, width); };
  page.blocks.push_back(f);
}

}  // namespace

void add_training(Page& page, const ReportData& data) {
  if (data.trainings.empty()) return;
  page.blocks.push_back(Heading{2, "Training"});
  std::vector<std::string> labels = training_labels(data.trainings);
  PageTable t;
  t.columns = {{"run", Align::left},
               {"last loss"},
               {"lowest validation loss"},
               {"tokens/s"},
               {"MFU, HFU"},
               {"steps"},
               {"lr"},
               {"optimizer", Align::left},
               {"data", Align::left},
               {"model", Align::left},
               {"tokens per step"},
               {"step, ms"},
               {"skipped steps"},
               {"folder", Align::left}};
  for (size_t i = 0; i < labels.size(); ++i) {
    const RunRecord& r = *data.trainings[i];
    Reached x = reached(r);
    auto four = [](double v) { return std::isfinite(v) ? fmt::format("{:.4f}", v) : std::string("-"); };
    auto number = [](double v) { return std::isfinite(v) ? fmt::format("{:.4g}", v) : std::string("-"); };
    auto text = [&](const char* path) {
      std::string value = json_text(r.recipe, path);
      return value.empty() ? "-" : value.substr(value.find_last_of('/') + 1);
    };
    double tokens = tokens_per_step(r.recipe);
    const double mfu = json_number(r.result, "/mfu"), hfu = json_number(r.result, "/hfu");
    std::string of_peak = std::isfinite(mfu) ? say_percent(mfu, 1) : "-";
    if (std::isfinite(hfu)) of_peak += ", " + say_percent(hfu, 1);
    t.rows.push_back({labels[i], four(x.loss), four(x.lowest_val_loss), say_rate(x.tokens_per_second), of_peak,
                      std::to_string(x.steps), number(json_number(r.recipe, "/lr")), text("/optimizer"),
                      data_name(r).empty() ? "-" : data_name(r), text("/model"),
                      std::isfinite(tokens) ? fmt::format("{:.0f}", tokens) : "-",
                      std::isfinite(x.step_ms) ? fmt::format("{:.2f}", x.step_ms) : "-", std::to_string(x.skipped),
                      r.folder.empty() ? "-" : r.folder.substr(r.folder.find_last_of('/') + 1)});
  }
  t.note = "Times and speeds are medians over the steps.";
  move_constants_to_note(t, 4);
  page.blocks.push_back(t);
  add_curves(page, data.trainings, labels);
}

}  // namespace crest
