#include "plan/alternatives.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "plan/recipe_settings.h"

namespace crest {

namespace {

struct Candidate {
  std::string flags;
  Recipe recipe;
};

// Changes one setting to each value with possibly lower memory, and halves the batch.
std::vector<Candidate> neighbors(const Recipe& r) {
  std::vector<Candidate> list;
  for (auto& row : settings_of(r).rows())
    for (const char* value : row.setting->smaller) {
      if (row.text() == value) continue;
      list.push_back({fmt::format("{} {}", row.setting->flag(), value), r});
      settings_of(list.back().recipe).apply({{row.setting->name, {value}}});
    }
  if (r.batch > 1 && r.batch % 2 == 0) {
    list.push_back({fmt::format("--batch {} --grad-accumulation {}", r.batch / 2, r.grad_accumulation * 2), r});
    list.back().recipe.batch /= 2, list.back().recipe.grad_accumulation *= 2;
  }
  return list;
}

}  // namespace

std::vector<Alternative> memory_alternatives(const CompiledSession& session,
                                             const std::function<CompiledSession(const Recipe&)>& compile,
                                             const std::function<double(const CompiledSession&)>& flops_per_token) {
  std::vector<Alternative> list;
  for (auto& candidate : neighbors(session.recipe)) {
    try {
      CompiledSession other = compile(candidate.recipe);
      if (other.limited_bytes() < session.limited_bytes())
        list.push_back({candidate.flags, other.planned_bytes(), flops_per_token(other)});
    } catch (const Error& e) {
      if (e.code() != Exit::usage) throw;  // skip invalid combinations
    }
  }
  std::stable_sort(list.begin(), list.end(), [](auto& a, auto& b) { return a.planned_bytes < b.planned_bytes; });
  return list;
}

}  // namespace crest
