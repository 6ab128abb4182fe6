#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/text.h"
#include "passes/recompute.h"
#include "settings/setting.h"

namespace crest {

const std::vector<std::string> recompute_levels = {"none", "activation", "pointwise", "selective", "full"};

namespace {

constexpr std::string_view layers_prefix = "layers=", budget_prefix = "budget=";
constexpr int64_t most_layers = 1'000'000;

// LEVEL:N; count 0: without a number.
struct LayerRun {
  std::string level;
  int64_t count = 0;
};

// Returns the error, or "".
std::string parse_layers(std::string_view value, std::vector<LayerRun>& runs) {
  std::vector<std::string> parts = split(std::string(value.substr(layers_prefix.size())), '+');
  for (auto& part : parts) {
    size_t colon = part.find(':');
    LayerRun run{part.substr(0, colon)};
    if (std::find(recompute_levels.begin(), recompute_levels.end(), run.level) == recompute_levels.end())
      return fmt::format("'{}' of '{}' is not what a layer can repeat ({})", printable(run.level), printable(value),
                         join(recompute_levels, ", "));
    if (colon == std::string::npos) {
      if (&part != &parts.back())
        return fmt::format("'{}' of '{}' has no number of layers", printable(part), printable(value));
    } else {
      std::string number = part.substr(colon + 1);
      bool digits = !number.empty() && number.size() <= 7 && number.find_first_not_of("0123456789") == number.npos;
      run.count = digits ? std::stoll(number) : 0;
      if (run.count < 1 || run.count > most_layers)
        return fmt::format("'{}' of '{}' is not a number of layers", printable(number), printable(value));
    }
    runs.push_back(run);
  }
  return runs.empty() ? fmt::format("'{}' names no layers", printable(value)) : "";
}

}  // namespace

std::string_view recompute_budget(std::string_view value) {
  return value.starts_with(budget_prefix) ? value.substr(budget_prefix.size()) : std::string_view();
}

std::vector<std::string> recompute_by_layer(std::string_view value, int64_t layers) {
  if (!value.starts_with(layers_prefix)) return std::vector<std::string>(size_t(layers), std::string(value));
  std::vector<LayerRun> runs;
  if (std::string wrong = parse_layers(value, runs); !wrong.empty()) fail_usage(wrong, "--recompute");
  int64_t named = 0;
  for (auto& run : runs) {
    if (!run.count) run.count = std::max<int64_t>(0, layers - named);
    named += run.count;
  }
  if (named != layers)
    fail_usage(
        fmt::format("'{}' is for {}, but the model has {}", printable(value), format_number_of(named, "layer"), layers),
        "--recompute", "Name every layer once; the last level may go without a number: layers=full:2+none.");
  std::vector<std::string> list;
  for (auto& run : runs) list.insert(list.end(), size_t(run.count), run.level);
  return list;
}

std::string recompute_value(const std::vector<std::string>& by_layer) {
  if (std::adjacent_find(by_layer.begin(), by_layer.end(), std::not_equal_to<>()) == by_layer.end())
    return by_layer.empty() ? "none" : by_layer[0];
  std::string text(layers_prefix);
  for (size_t i = 0, end; i < by_layer.size(); i = end) {
    for (end = i; end < by_layer.size() && by_layer[end] == by_layer[i];) ++end;
    text += fmt::format("{}{}:{}", i ? "+" : "", by_layer[i], end - i);
  }
  return text;
}

std::string wrong_recompute(std::string_view value) {
  std::vector<LayerRun> runs;
  if (value.starts_with(layers_prefix)) return parse_layers(value, runs);
  if (!value.starts_with(budget_prefix)) return "";
  try {
    return parse_bytes(recompute_budget(value), "--recompute") > 0 ? "" : fmt::format("'{}' is no memory", value);
  } catch (const Error& e) {
    return e.problem();
  }
}

}  // namespace crest
