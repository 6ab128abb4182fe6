#include "tune/combinations.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/text.h"

namespace crest {

namespace {

constexpr int most_combinations = 2000;

std::string value_of(const Recipe& recipe, const std::string& name) {
  std::string text = settings_of(recipe).at(name).text();
  if (name == varied_kernels) std::replace(text.begin(), text.end(), ',', '+');
  return text;
}

std::string resolved_value(const Recipe& given, const std::string& name, const Device& device) {
  try {
    return value_of(resolve(given, device), name);
  } catch (const Error& e) {
    if (e.code() != Exit::usage) throw;
    return value_of(given, name);
  }
}

// Whether a sharing setting has no effect in this combination: with one rank, a bucket size without
// buckets, or one sum where only buckets exist.
bool pointless(const TuneCombination& c) {
  auto is = [&](const char* setting, const char* value) { return value_of(c.given, setting) == value; };
  bool in_buckets = is("shard", "gradients") || is("shard", "weights");
  if (in_buckets && c.given.pass_settings.count("reduce") && !is("reduce", "bucket")) return true;
  for (auto& [name, value] : c.changes) {
    bool of_ranks = name == "shard" || name == "reduce" || name == "bucket";
    if (of_ranks && c.given.ranks == 1) return true;
    if (name == "bucket" && !is("reduce", "bucket") && !in_buckets) return true;
  }
  return false;
}

}  // namespace

std::vector<std::string> texts_of_value(const std::string& setting, const std::string& value) {
  if (setting != varied_kernels) return {value};
  return value.empty() ? std::vector<std::string>{} : split(value, '+');
}

std::vector<TuneCombination> combinations_of(const std::vector<TuneList>& lists, const Recipe& given_start,
                                             const Device& device, size_t& not_allowed) {
  const Recipe start = resolve(given_start, device);
  std::vector<TuneCombination> all = {{{}, given_start}}, kept;
  for (auto& list : lists) {
    auto is_start = [&](const std::string& value) {
      Recipe r = given_start;
      settings_of(r).apply({{list.name, texts_of_value(list.name, value)}});
      return resolved_value(r, list.name, device) == value_of(start, list.name);
    };
    std::vector<TuneCombination> next;
    std::vector<std::string> values = list.values;
    if (std::none_of(values.begin(), values.end(), is_start))
      values.insert(values.begin(), value_of(given_start, list.name));
    for (auto& c : all)
      for (auto& value : values) {
        TuneCombination d = c;
        settings_of(d.given).apply({{list.name, texts_of_value(list.name, value)}});
        if (resolved_value(d.given, list.name, device) != value_of(start, list.name))
          d.changes.push_back({list.name, value});
        next.push_back(std::move(d));
      }
    all = std::move(next);
    if (all.size() > most_combinations)
      fail_usage(fmt::format("more than {} combinations", most_combinations), "--vary", "Vary fewer settings.");
  }
  std::set<std::string> seen;
  for (auto& c : all) {
    if (pointless(c)) continue;
    try {
      if (seen.insert(join(recipe_flags(resolve(c.given, device)), " ")).second) kept.push_back(c);
    } catch (const Error& e) {
      if (e.code() != Exit::usage) throw;
      ++not_allowed;
    }
  }
  return kept;
}

std::string changed_to(const TuneCombination& combination, const std::string& setting) {
  for (auto& [name, value] : combination.changes)
    if (name == setting) return value;
  return "";
}

TuneCombination without_changes(TuneCombination combination, const std::vector<std::string>& settings) {
  std::erase_if(combination.changes, [&](auto& change) {
    return std::find(settings.begin(), settings.end(), change.first) != settings.end();
  });
  return combination;
}

TuneCombination with_change(TuneCombination combination, const std::string& setting, const std::string& value) {
  settings_of(combination.given).apply({{setting, {value}}});
  combination.changes.emplace_back(setting, value);
  return combination;
}

}  // namespace crest
