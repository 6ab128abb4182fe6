// The settings varied by a search, and the gain of each choice.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/text.h"
#include "plan/automatic.h"
#include "plan/choose_kernels.h"
#include "stats/ratio.h"
#include "tune/combinations.h"
#include "tune/tune.h"

namespace crest {

namespace {

// Settings of the computation without an effect on the result of training, with their values. Also
// fp8: the result states its cost in loss.
std::vector<TuneList> usual_lists(const Recipe& start, const Device& device) {
  std::vector<TuneList> lists = {{"attention", {"flash", "naive"}},
                                 {"recompute", {"none", "activation", "pointwise", "selective", "full"}},
                                 {"loss-chunk", {"auto", "off"}}};
  // Predictions ignore alignment: without measurements, no padding would seem faster.
  if (start.model.vocab % 128 && !device.described) lists.push_back({"pad-vocab", {"1", "128"}});
  if (varies_precision(device)) lists.push_back({"precision", {"bf16", "fp8"}});
  return lists;
}

// How ranks share the work. Predictions ignore overlap: without measurements, buckets and one sum
// look the same.
std::vector<TuneList> rank_lists(const TuneOptions& o, const Recipe& start, const Device& device) {
  std::vector<TuneList> lists;
  Recipe several = start;
  several.ranks = 2;
  std::vector<std::string> shards = shard_levels(several);
  if (!shards.empty()) {
    shards.insert(shards.begin(), "none");
    lists.push_back({"shard", shards});
  }
  if (device.described) return lists;
  lists.push_back({"reduce", {"flat", "bucket"}});
  // A CPU's models are smaller than the larger bucket.
  if (device.kind == "cuda" && !o.recipe.has("bucket")) lists.push_back({"bucket", {"25MB", "128MiB"}});
  return lists;
}

const Setting& setting_called(const std::string& name) {
  std::vector<std::string> names;
  for (auto& row : recipe_settings()) {
    if (row.name == name) return row;
    names.emplace_back(row.name);
  }
  fail_usage(fmt::format("'{}' is not a setting of a recipe", printable(name)), "--vary",
             did_you_mean(name, names) + " crest help settings lists them.");
}

// A wrong pin would only exclude its combinations.
void check_pins(const std::vector<std::string>& values, const Device& device) {
  for (auto& value : values) {
    Recipe recipe;
    settings_of(recipe).apply({{varied_kernels, texts_of_value(varied_kernels, value)}}, "--vary");
    kernel_finder(recipe, device);
  }
}

TuneList parse_vary(const std::string& text, const Device& device) {
  size_t equals = text.find('=');
  TuneList list{text.substr(0, equals), {}};
  const Setting& row = setting_called(list.name);
  std::set<std::string> own = {"model", "vocab", "context",       "seq",
                               "mesh",  "batch", "data-parallel", "grad-accumulation"};
  const bool kernels = list.name == varied_kernels;
  if (own.count(list.name) || (row.type == SettingType::list && !kernels))
    fail_usage(fmt::format("'{}' is not varied", list.name), "--vary",
               list.name == "batch" || list.name == "grad-accumulation"
                   ? "The batch is varied unless --batch is given; --global-batch N keeps batch x accumulation."
                   : "Give its flag instead.");
  if (equals != std::string::npos)
    list.values = split(text.substr(equals + 1), ',');
  else if (row.type == SettingType::truth)
    list.values = {"false", "true"};
  else if (!kernels)
    for (auto& value : choices_of(row))
      if (value.find('=') == value.npos) list.values.push_back(value);  // else a form such as budget=SIZE
  if (list.values.empty())
    fail_usage(fmt::format("'{}' needs values", list.name), "--vary",
               fmt::format("Write for example {}=A,B ({}).", list.name, allowed(row)));
  for (auto& v : list.values) {
    const std::vector<std::string> parts = texts_of_value(list.name, v);
    if (parts.empty())
      fail_usage(fmt::format("a value of {} is empty", list.name), "--vary",
                 "Leave it out: the settings as given are compared in any case.");
    for (auto& part : parts) parse_setting(row, part, "--vary");
  }
  if (kernels) check_pins(list.values, device);
  return list;
}

}  // namespace

std::vector<TuneList> tune_lists(const TuneOptions& o, const Recipe& start, const Device& device) {
  std::vector<TuneList> lists;
  for (auto& list : usual_lists(start, device))
    if (!o.recipe.has(list.name)) lists.push_back(list);
  std::vector<TuneList> varied;
  for (auto& text : o.vary) {
    TuneList list = parse_vary(text, device);
    auto same = [&](auto& l) { return l.name == list.name; };
    if (auto given = std::find_if(varied.begin(), varied.end(), same); given != varied.end())
      given->values.insert(given->values.end(), list.values.begin(), list.values.end());
    else
      varied.push_back(list);
    std::erase_if(lists, same);
  }
  auto ranks = std::find_if(varied.begin(), varied.end(), [](auto& list) { return list.name == "ranks"; });
  if (ranks != varied.end() && device.kind == "cpu")
    fail_usage("ranks of a CPU share its threads, so each number of them is a search of its own", "--vary",
               "Give --ranks N.");
  if (ranks != varied.end() || start.ranks > 1)
    for (auto& list : rank_lists(o, start, device)) {
      auto same = [&](auto& l) { return l.name == list.name; };
      if (!o.recipe.has(list.name) && std::none_of(varied.begin(), varied.end(), same)) lists.push_back(list);
    }
  lists.insert(lists.end(), varied.begin(), varied.end());
  return lists;
}

int most_ranks(const std::vector<TuneList>& lists, const Recipe& start) {
  int most = start.ranks;
  for (auto& list : lists)
    if (list.name == "ranks")
      for (auto& value : list.values) most = std::max(most, std::stoi(value));
  return most;
}

std::string change_text(const TuneCandidate& c) {
  std::vector<std::string> parts;
  for (auto& [name, value] : c.changes) parts.push_back(name + " " + value);
  return parts.empty() ? "the settings as given" : join(parts, ", ");
}

bool varies_precision(const Device& device) { return device.kind == "cuda" && device.sm >= 89 && !device.emulated; }

std::vector<TuneGain> gains(const TuneResult& r) {
  const TuneCandidate& best = r.candidates[r.best];
  std::vector<TuneGain> list;
  auto add = [&](const std::string& name, const TuneCandidate& c) {
    bool measured = best.final_ms && c.final_ms;
    if (!measured && !(best.predicted && c.predicted)) return;
    auto per_token = [&](const TuneCandidate& x) {
      return (measured ? *x.final_ms : x.predicted->ms / x.scale) / double(x.recipe.tokens_per_step());
    };
    list.push_back({name, settings_of(c.recipe).at(name).text(), settings_of(best.recipe).at(name).text(),
                    per_token(best) / per_token(c), measured, best.planned_bytes - c.planned_bytes});
    list.back().within_noise =
        relative_size(list.back().ratio) <= (measured ? r.noise : std::max(r.noise, least_noise));
  };
  for (auto& [name, value] : best.changes) {
    auto without = best.changes;
    std::erase_if(without, [&, &n = name](auto& change) { return change.first == n; });
    for (auto& c : r.candidates)
      if (c.changes == without) add(name, c);
  }
  // If nothing changes: the time of each single change. Batches are rows of the table.
  for (auto& c : r.candidates)
    if (best.changes.empty() && c.changes.size() == 1 && c.changes[0].first != "batch") add(c.changes[0].first, c);
  return list;
}

}  // namespace crest
