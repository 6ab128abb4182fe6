// Advice as text and as JSON.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "advise/advise.h"
#include "backend/device_json.h"
#include "core/text.h"
#include "plan/explain.h"
#include "plan/plan_json.h"
#include "plan/recipe_settings.h"
#include "stats/ratio.h"
#include "terminal/table.h"

namespace crest {

using Json = nlohmann::ordered_json;

namespace {

Json to_json(const Advice& a, int64_t planned) {
  auto optional = [](const auto& x) { return x ? Json(*x) : Json(); };
  Json measured;
  if (a.measured)
    measured = {{"time_ratio", a.measured->ratio},
                {"time_ratio_low", a.measured->interval.low},
                {"time_ratio_high", a.measured->interval.high},
                {"noise_floor", a.measured->few_rounds() ? Json() : Json(a.measured->noise_floor)},
                {"verdict", name(a.measured->verdict)},
                {"rounds", a.measured->rounds}};
  return {{"condition", a.finding.condition},
          {"change", a.finding.change},
          {"other_model", a.finding.other_model},
          {"time_ratio", optional(a.predicted.ratio)},
          {"basis", a.predicted.basis.empty() ? Json() : Json(a.predicted.basis)},
          {"not_predicted", a.predicted.why_not.empty() ? Json() : Json(a.predicted.why_not)},
          {"planned_bytes", optional(a.planned_bytes)},
          {"bytes", a.planned_bytes ? Json(*a.planned_bytes - planned) : Json()},
          {"measured", measured},
          {"not_measured", a.not_measured.empty() ? Json() : Json(a.not_measured)}};
}

// "tokens/s +12.3%".
std::string speed(double time_ratio) { return fmt::format("tokens/s {:+.1f}%", 100 * (1 / time_ratio - 1)); }

std::string basis_text(const AdviceCase& c, const std::string& basis) {
  if (basis == "calibration") return "from the calibration of " + dates_text(*c.calibration);
  if (basis == "floors") return fmt::format("by floors of the {}'s data sheet, whole tiles and waves", c.sheet->title);
  if (basis == "flops") return "by executed FLOPs alone";
  return "by the formula above";
}

// A label with its text, wrapped into lines of one column.
std::string labeled(std::string label, const std::string& text, size_t column, size_t width) {
  label.resize(std::max(column, label.size() + 1), ' ');
  return label + wrapped(text, {.width = width, .indent = std::string(column, ' '), .taken = label.size()}) + "\n";
}

std::string advice_text(const AdviceCase& c, const Advice& a, int64_t planned, size_t width) {
  std::vector<std::pair<std::string, std::string>> lines = {{"because", a.finding.condition},
                                                            {"change", a.finding.change}};
  if (a.finding.other_model) lines.emplace_back("", "this changes the result of training");
  lines.emplace_back("predicted", a.predicted.ratio
                                      ? speed(*a.predicted.ratio) + ", " + basis_text(c, a.predicted.basis)
                                      : "no figure: " + a.predicted.why_not);
  if (a.planned_bytes && *a.planned_bytes != planned)
    lines.emplace_back("memory",
                       fmt::format("{} -> {}", format_bytes(double(planned)), format_bytes(double(*a.planned_bytes))));
  if (a.measured) {
    const MeasuredRatio& m = *a.measured;
    if (m.few_rounds()) {
      lines.emplace_back("measured", fmt::format("{} within --max-seconds: too few for a verdict; {}",
                                                 format_number_of(int64_t(m.rounds), "round"), speed(m.ratio)));
    } else {
      std::string figures =
          fmt::format("{} (95%: {:+.1f}% to {:+.1f}%; noise {:.1f}%, {} rounds)", speed(m.ratio),
                      100 * (1 / m.interval.high - 1), 100 * (1 / m.interval.low - 1), 100 * m.noise_floor, m.rounds);
      lines.emplace_back("measured", m.verdict == Verdict::cannot_tell ? "within noise: " + figures : figures);
    }
  } else if (!a.not_measured.empty()) {
    lines.emplace_back("measured", "not measured: " + a.not_measured);
  }
  std::string text;
  for (auto& [label, line] : lines) text += labeled("   " + label, line, 14, width);
  return text;
}

}  // namespace

Json to_json(const AdviceCase& c, const AdviceReport& report) {
  Json list = Json::array();
  for (auto& r : report.rules) {
    Json advice = Json::array();
    for (auto& a : r.advice) advice.push_back(to_json(a, report.planned_bytes));
    list.push_back({{"rule", r.rule->id},
                    {"help", r.rule->help},
                    {"section", r.rule->section},
                    {"status", name(r.status)},
                    {"text", r.text},
                    {"advice", advice}});
  }
  return {{"model", model_to_json(c.recipe.model)},
          {"recipe", recipe_to_json(c.recipe)},
          {"device", device_to_json(c.device)},
          {"mesh", explained_mesh_json(c.mesh)},
          {"document", rules_document},
          {"calibration", c.calibration ? Json(c.calibration->date()) : Json()},
          {"data_sheet", c.sheet ? Json(c.sheet->name) : Json()},
          {"planned_bytes", report.planned_bytes},
          {"available_bytes", c.limit},
          {"rules", list}};
}

std::string text_of(const AdviceCase& c, const AdviceReport& report, size_t width) {
  width = std::min<size_t>(width, 100);
  std::string text =
      wrapped(fmt::format("{}, batch {} x seq {}, {}, on {}: {} of {} planned", printable(c.recipe.model.name),
                          c.recipe.batch, c.recipe.seq_length(), c.recipe.precision, printable(c.device.name),
                          format_bytes(double(report.planned_bytes)), format_bytes(double(c.limit))),
              {.width = width});
  text += fmt::format("\n{} rules: {} advise a change, {} hold, {} do not apply\n", report.rules.size(),
                      report.count(RuleStatus::advice), report.count(RuleStatus::holds),
                      report.count(RuleStatus::not_applicable));
  for (auto& r : report.rules) {
    if (r.status != RuleStatus::advice) continue;
    text += fmt::format("\n{}: {}\n", r.rule->id, r.rule->help);
    for (auto& a : r.advice) text += advice_text(c, a, report.planned_bytes, width);
    text += labeled("   source", r.rule->section, 14, width);
  }
  for (auto [status, title] : {std::pair{RuleStatus::holds, "holds"}, {RuleStatus::not_applicable, "does not apply"}}) {
    if (!report.count(status)) continue;
    text += fmt::format("\n{}\n", title);
    for (auto& r : report.rules)
      if (r.status == status) text += labeled(std::string("   ") + r.rule->id, r.text, 22, width);
  }
  return text + "\n" +
         wrapped(fmt::format("Sections are from \"{}\" unless another source is named.", rules_document),
                 {.width = width}) +
         "\n";
}

}  // namespace crest
