#include "compare/measure_changes.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "compare/side.h"
#include "core/text.h"
#include "plan/recipe_settings.h"

namespace crest {

namespace {

std::string given_text(const RecipeOptions& recipe, const char* setting) {
  return recipe.has(setting) ? join(recipe.given.at(setting), ",") : "";
}

}  // namespace

std::vector<GivenChange> changes_between(const RecipeOptions& a, const RecipeOptions& b) {
  std::vector<GivenChange> changes;
  for (auto& row : recipe_settings()) {
    if (row.effects.empty()) continue;
    std::string of_a = given_text(a, row.name), of_b = given_text(b, row.name);
    if (of_a != of_b) changes.push_back({row.key(), of_a, of_b});
  }
  return changes;
}

RecipeOptions with_changes(const RecipeOptions& a, const RecipeOptions& b, const std::vector<GivenChange>& changes,
                           ChangeSet set) {
  RecipeOptions mixed = a;
  for (auto& row : recipe_settings())
    for (size_t i = 0; i < changes.size(); ++i) {
      if (changes[i].key != row.key() || !(set >> i & 1)) continue;
      if (b.has(row.name))
        mixed.given[row.name] = b.given.at(row.name);
      else
        mixed.given.erase(row.name);
    }
  return mixed;
}

Json to_json(const MeasuredChanges& m) {
  Json changes = Json::array(), sets = Json::array();
  for (auto& c : m.changes) changes.push_back({{"key", c.key}, {"a", c.a}, {"b", c.b}});
  for (auto& s : m.sets) {
    Json made = Json::array();
    for (size_t i = 0; i < m.changes.size(); ++i)
      if (s.set >> i & 1) made.push_back(m.changes[i].key);
    sets.push_back({{"changes", made}, {"ratio", s.ratio}, {"error", s.error}, {"tokens", s.tokens}});
  }
  return {{"other", m.other}, {"changes", changes}, {"sets", sets}, {"missing", m.missing}};
}

MeasuredChanges changes_from_json(const Json& json) {
  MeasuredChanges m;
  m.other = string_at(json, "other"), m.missing = string_at(json, "missing");
  auto list = [](const Json& object, const char* key) {
    const Json* found = member(object, key);
    return found && found->is_array() ? *found : Json::array();
  };
  for (auto& c : list(json, "changes"))
    m.changes.push_back({string_at(c, "key"), string_at(c, "a"), string_at(c, "b")});
  if (m.changes.size() > most_changes) return {};
  for (auto& s : list(json, "sets")) {
    SetRatio ratio{0, number(s, "ratio"), number(s, "error"), int64_t(number(s, "tokens"))};
    if (!(ratio.ratio > 0) || !(ratio.error >= 0) || ratio.tokens < 0) return {};
    const Json made = list(s, "changes");
    for (size_t i = 0; i < m.changes.size(); ++i)
      if (std::count(made.begin(), made.end(), Json(m.changes[i].key))) ratio.set |= ChangeSet(1) << i;
    m.sets.push_back(ratio);
  }
  return m;
}

}  // namespace crest
