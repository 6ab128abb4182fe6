// The result of a search as text and as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/shell_word.h"
#include "core/text.h"
#include "predict/known_effects.h"
#include "stats/ratio.h"
#include "terminal/fit_table.h"
#include "tune/combinations.h"
#include "tune/tune.h"

namespace crest {

using Json = nlohmann::ordered_json;

namespace {

constexpr double busy = 0.2;  // a quiet machine has a lower noise floor

// Finalists of the interleaved rounds, then other measured candidates, then predicted ones, each
// fastest first.
std::vector<size_t> order_of(const TuneResult& r) {
  std::vector<size_t> order(r.candidates.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    auto& x = r.candidates[a];
    auto& y = r.candidates[b];
    return std::tuple(!x.final_ms, !x.measured_ms, -x.rate()) < std::tuple(!y.final_ms, !y.measured_ms, -y.rate());
  });
  return order;
}

Json to_json(const TuneCandidate& c) {
  Json changes = Json::object();
  for (auto& [name, value] : c.changes) changes[name] = value;
  return {{"changes", changes},
          {"tokens_per_step", c.recipe.tokens_per_step()},
          {"planned_bytes", c.planned_bytes},
          {"predicted_ms", c.predicted ? Json(c.predicted->ms) : Json()},
          {"predicted_ms_low", c.predicted ? Json(c.predicted->low_ms) : Json()},
          {"predicted_ms_high", c.predicted ? Json(c.predicted->high_ms) : Json()},
          {"measured_ms", c.measured_ms ? Json(*c.measured_ms) : Json()},
          {"final_ms", c.final_ms ? Json(*c.final_ms) : Json()},
          {"tokens_per_second", c.predicted || c.measured_ms ? Json(c.rate()) : Json()},
          {"failed", c.failed.empty() ? Json() : Json(c.failed)}};
}

std::string milliseconds(double ms) { return fmt::format("{:.{}f}", ms, ms < 10 ? 2 : ms < 1000 ? 1 : 0); }

std::string table_of(const TuneResult& r, size_t top, bool color, size_t width) {
  std::vector<FitColumn> columns = {
      {{"settings", Align::left}}, {{"predicted ms"}, 2}, {{"measured ms"}}, {{"tokens/s"}}, {{"planned"}, 1}};
  std::vector<std::vector<std::string>> rows;
  for (size_t i : order_of(r)) {
    if (rows.size() == top) break;
    const TuneCandidate& c = r.candidates[i];
    std::string note = i == r.best ? " *" : "";
    rows.push_back({change_text(c) + note, c.predicted ? milliseconds(c.predicted->ms) : "",
                    c.measured_ms ? milliseconds(c.ms()) : c.failed,
                    (c.measured_ms ? "" : "~") + format_count(c.rate()), format_bytes(double(c.planned_bytes))});
  }
  return fit_table(columns, rows, width, color);
}

std::string signed_bytes(int64_t bytes) {
  return bytes == 0 ? "the same memory"
                    : fmt::format("{} {} memory", format_bytes(double(std::abs(bytes))), bytes > 0 ? "more" : "less");
}

// The cost of a setting besides time and memory; "": none known.
std::string cost_of(const std::string& setting, const std::string& value) {
  return setting == "precision" && value == "fp8" ? fp8_loss.text : "";
}

std::string gain_text(const TuneGain& g) {
  std::string time =
      fmt::format("{:.1f}% {} time per token", 100 * std::abs(g.ratio - 1), g.ratio < 1 ? "less" : "more");
  std::string cost = cost_of(g.setting, g.to);
  auto named = [](const std::string& value) { return value.empty() ? "by default" : value; };
  return fmt::format("  {} {} instead of {}: {} ({}{}), {}{}", g.setting, named(g.to), named(g.from), time,
                     g.measured ? "measured" : "predicted", g.within_noise ? ", within noise" : "",
                     signed_bytes(g.bytes), cost.empty() ? "" : "; " + cost);
}

}  // namespace

std::string train_flags(const TuneOptions& o, const TuneCandidate& c) {
  GivenSettings given = o.recipe.given;
  if (!o.recipe.has("model")) given["model"] = {c.recipe.model.name};
  for (auto& [name, value] : c.changes) given[name] = texts_of_value(name, value);
  if (o.global_batch > 0) given["batch"] = {std::to_string(c.recipe.batch)};
  if (o.global_batch > 0 && c.recipe.grad_accumulation > 1)
    given["grad-accumulation"] = {std::to_string(c.recipe.grad_accumulation)};
  // Some of these set the default of others.
  if (c.recipe.ranks > 1)
    for (const char* name : {"shard", "reduce"})
      if (c.recipe.pass_settings.count(name)) given[name] = {c.recipe.pass_settings.at(name)};
  std::vector<std::string> flags;
  for (auto& row : recipe_settings()) {
    auto it = given.find(row.name);
    if (it == given.end()) continue;
    for (auto& value : it->second) flags.push_back(printed_word(row.flag() + "=" + value));
  }
  for (auto& flag : o.device_flags) flags.push_back(printed_word(flag));
  return join(flags, " ");
}

Json to_json(const TuneOptions& o, const TuneResult& r) {
  Json candidates = Json::array(), choices = Json::array(), finals;
  for (size_t i : order_of(r)) candidates.push_back(to_json(r.candidates[i]));
  for (auto& g : gains(r))
    choices.push_back({{"setting", g.setting},
                       {"from", g.from},
                       {"to", g.to},
                       {"time_ratio", g.ratio},
                       {"measured", g.measured},
                       {"within_noise", g.within_noise},
                       {"bytes", g.bytes}});
  if (r.finals) {
    finals = {{"rounds", r.finals->rounds}, {"noise_floor", r.finals->noise_floor}, {"contenders", Json::array()}};
    for (size_t i : r.finalists) finals["contenders"].push_back(to_json(r.candidates[i]));
  }
  return {{"best", to_json(r.candidates[r.best])},
          {"command", "crest train TEXT " + train_flags(o, r.candidates[r.best])},
          {"start", r.start == TuneResult::none ? Json() : to_json(r.candidates[r.start])},
          {"choices", choices},
          {"fp8_loss", r.candidates[r.best].recipe.precision == "fp8" ? Json(fp8_loss.text) : Json()},
          {"tolerance", r.tolerance},
          {"combinations", r.candidates.size()},
          {"measured", r.measured()},
          {"too_large", r.too_large},
          {"not_allowed", r.not_allowed},
          {"out_of_time", r.out_of_time},
          {"seconds", r.seconds},
          {"basis", r.not_here.empty() ? "measured" : "predicted"},
          {"finals", finals},
          {"candidates", candidates}};
}

std::string text_of(const TuneOptions& o, const TuneResult& r, size_t top, bool color, size_t width) {
  const TuneCandidate& best = r.candidates[r.best];
  std::string text = table_of(r, top, color, width);
  text += fmt::format("\n{} planned and predicted, {} measured, in {}; * is the choice, ~ is predicted{}\n",
                      format_number_of(int64_t(r.candidates.size()), "combination"),
                      r.not_here.empty() ? std::to_string(r.measured()) : "none", format_duration(r.seconds),
                      best.recipe.ranks > 1 ? "; memory is per rank" : "");
  if (!r.not_here.empty())
    text += fmt::format("{} was not measured: all times are predictions\n{}", printable(r.not_here), r.prediction);
  if (r.too_large) text += fmt::format("{} more do not fit into memory\n", r.too_large);
  if (r.out_of_time) text += "--search-seconds ended the search: others may be faster\n";
  if (r.slow_batches) text += "larger batches were left out: their step takes more than twice --max-seconds\n";
  if (r.finals)
    text += fmt::format("the {} fastest again in {} interleaved rounds; noise floor {:.1f}%\n", r.finalists.size(),
                        r.finals->rounds, 100 * r.finals->noise_floor);
  if (r.finals && r.finals->noise_floor > busy)
    text += "warning: other work keeps this machine busy; search again when it is quiet\n";
  if (r.fastest != r.best)
    text += fmt::format("{}: {:.1f}% more tokens/s{}, which is less than {:g}% for each doubling of the batch\n",
                        change_text(r.candidates[r.fastest]), 100 * (r.candidates[r.fastest].rate() / best.rate() - 1),
                        r.not_here.empty() ? "" : " predicted", 100 * o.stop_below);
  if (r.start == TuneResult::none) {
    text += "the settings as given do not fit\n";
  } else if (r.start == r.best && r.fastest != r.best) {
    text += "the settings as given are the choice: a larger batch brings too little\n";
  } else if (r.start == r.best && !r.not_here.empty()) {
    text += fmt::format("the settings as given are the choice: none is predicted to be faster by more than {:.1f}%\n",
                        100 * r.tolerance);
  } else if (r.start == r.best && r.measured() == 1) {
    text += "the settings as given are the choice: nothing else was measured\n";
  } else if (r.start == r.best) {
    text +=
        fmt::format("the settings as given are the choice: no measured combination is faster by more than {:.1f}%\n",
                    100 * r.tolerance);
  } else {
    const TuneCandidate& start = r.candidates[r.start];
    double ratio = best.rate() / start.rate();
    text += fmt::format("{} tokens/s instead of {} ({:.2f}x{}), {} planned instead of {}\n", format_count(best.rate()),
                        format_count(start.rate()), ratio, relative_size(ratio) <= r.noise ? ", within noise" : "",
                        format_bytes(double(best.planned_bytes)), format_bytes(double(start.planned_bytes)));
  }
  std::vector<TuneGain> list = gains(r);
  if (!list.empty()) text += "\nWhat each choice brings\n";
  for (auto& g : list) text += gain_text(g) + "\n";
  const bool told = std::any_of(list.begin(), list.end(), [](auto& g) { return !cost_of(g.setting, g.to).empty(); });
  if (best.recipe.precision == "fp8" && !told) text += fmt::format("fp8 costs: {}\n", fp8_loss.text);
  if (best.recipe.precision == "fp8") text += "  --precision bf16 searches without fp8\n";
  text += fmt::format("\nRun it\n  crest train TEXT {}\n", train_flags(o, best));
  text += fmt::format("The figures hold for data with a vocabulary of {} tokens: --vocab N searches for another.\n",
                      best.recipe.model.vocab);
  return text;
}

Json to_json(const TuneOptions& o, const LongestContext& r) {
  return {{"best", to_json(r.best)},
          {"context", r.best.recipe.seq_length()},
          {"start", r.start ? to_json(*r.start) : Json()},
          {"command", "crest train TEXT " + train_flags(o, r.best)},
          {"combinations", r.combinations},
          {"seconds", r.seconds}};
}

std::string text_of(const TuneOptions& o, const LongestContext& r) {
  auto line = [](const TuneCandidate& c) {
    std::string time =
        c.predicted ? fmt::format(", {} a step predicted", format_duration(c.predicted->ms / 1e3)) : std::string();
    return fmt::format("{} tokens, batch {}: {} planned{}", c.recipe.seq_length(), c.recipe.batch,
                       format_bytes(double(c.planned_bytes)), time);
  };
  std::string text = fmt::format("longest context  {}\n", line(r.best));
  text += r.start ? fmt::format("settings given   {}\n", line(*r.start))
                  : fmt::format("settings given   not even {} tokens fit\n", context_step);
  text +=
      fmt::format("{} planned, in {}; {} tokens more do not fit\n",
                  format_number_of(int64_t(r.combinations), "combination"), format_duration(r.seconds), context_step);
  return text + fmt::format("\nRun it\n  crest train TEXT {}\n", train_flags(o, r.best));
}

}  // namespace crest
