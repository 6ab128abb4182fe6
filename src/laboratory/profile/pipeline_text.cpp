#include "profile/pipeline_text.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "terminal/fit_table.h"

namespace crest {

std::string pipeline_text(const nlohmann::ordered_json& json, size_t width, bool color) {
  const double step = json.at("step_ms");
  auto cell = [&](double ms, double of) {
    ms = std::abs(ms) < 5e-4 ? 0 : ms;  // no "-0.000"
    const std::string number = ms >= 1000 ? fmt::format("{:.1f}", ms) : fmt::format("{:.3f}", ms);
    return fmt::format("{} {:>5.1f}%", number, of > 0 ? 100 * ms / of : 0);
  };
  std::vector<FitColumn> columns = {{{"stage"}},   {{"step ms"}}, {{"computing"}}, {{"transfer"}},
                                    {{"warm-up"}}, {{"between"}}, {{"drain"}},     {{"rest"}}};
  std::vector<std::vector<std::string>> rows;
  for (auto& s : json.at("stages")) {
    const double own = s.at("step_ms");
    auto& waiting = s.at("waiting_ms");
    rows.push_back({std::to_string(rows.size()), fmt::format("{:.3f}", own), cell(s.at("compute_ms"), own),
                    cell(s.at("transfer_ms"), own), cell(waiting.at("warm_up"), own), cell(waiting.at("between"), own),
                    cell(waiting.at("drain"), own), cell(s.at("rest_ms"), own)});
  }
  std::string text = fit_table(columns, rows, width, color);
  text += wrapped(
              "computing + transfer + warm-up + between + drain + rest = step. Warm-up, between, drain: waiting for "
              "other stages before the first pass, between passes and after the last one. Rest: sums over ranks, the "
              "update, the host.",
              {.width = width}) +
          "\n\n";
  Table split({{"the step", Align::left}, {"ms"}, {"", Align::left}});
  auto row = [&](const char* what, const char* key, const char* meaning) {
    split.row({what, cell(json.at(key), step), meaning});
  };
  row("work", "ideal_ms", "all passes, divided by the ranks");
  row("warm-up", "warm_up_ms", "before the last of equal stages begins");
  row("drain", "drain_ms", "after the last of equal stages has ended");
  row("imbalance", "imbalance_ms", "the stages are not equal");
  row("transfers", "transfers_ms", "between stages");
  row("other", "other_ms", "in no simulation");
  row("rest", "rest_ms", "sums over ranks, the update, the host");
  split.rule();
  split.row({"step", cell(step, step), ""});
  const auto& bubble = json.at("bubble");
  text += split.text(color);
  text += wrapped(fmt::format("bubble: {:.1f}% of the work measured, {:.1f}% simulated with the measured passes and "
                              "transfers of {:.3f} ms, {:.1f}% planned by FLOPs",
                              100 * double(bubble.at("measured")), 100 * double(bubble.at("simulated")),
                              double(json.at("transfer_ms")), 100 * double(bubble.at("planned"))),
                  {.width = width}) +
          "\n";
  return text;
}

}  // namespace crest
