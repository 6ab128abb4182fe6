#include "program/origin.h"

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "core/text.h"

namespace crest {

namespace {
// Lives as long as the process: the scopes of all models built or read, and their unions made by
// passes.
struct ScopeTable {
  std::mutex mutex;
  std::deque<std::vector<std::string>> sets{{}};
  std::map<std::vector<std::string>, uint32_t> index{{{}, 0}};
  std::unordered_map<std::string, uint32_t>
      single;  // sets with one scope: every instruction of a model starts with one
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> unions;

  uint32_t intern(std::vector<std::string> scopes) {
    auto [it, added] = index.emplace(scopes, uint32_t(sets.size()));
    if (added) sets.push_back(std::move(scopes));
    return it->second;
  }
};
ScopeTable& table() {
  static ScopeTable t;
  return t;
}
}  // namespace

Origin::Origin(std::string_view scope) {
  if (scope.empty()) return;
  std::lock_guard lock(table().mutex);
  auto [it, added] = table().single.emplace(scope, 0);
  if (added) it->second = table().intern({it->first});
  id_ = it->second;
}

Origin Origin::operator|(Origin other) const {
  if (id_ == other.id_ || other.id_ == 0) return *this;
  if (id_ == 0) return other;
  ScopeTable& t = table();
  std::lock_guard lock(t.mutex);
  auto [it, added] = t.unions.emplace(std::pair{id_, other.id_}, 0);
  if (added) {
    std::vector<std::string> all = t.sets[id_];
    for (auto& s : t.sets[other.id_])
      if (std::find(all.begin(), all.end(), s) == all.end()) all.push_back(s);
    it->second = t.intern(std::move(all));
  }
  Origin o;
  o.id_ = it->second;
  return o;
}

const std::vector<std::string>& Origin::scopes() const {
  std::lock_guard lock(table().mutex);
  return table().sets[id_];  // a deque: references stay valid
}

std::string Origin::text() const { return join(scopes(), "+"); }

Origin Origin::parse(std::string_view text) {
  // All at once: every set is kept, so uniting scopes one by one would store the first one n times.
  std::vector<std::string> scopes;
  std::unordered_set<std::string_view> known;
  std::vector<std::string> parts = text.empty() ? std::vector<std::string>() : split(text, '+');
  for (const std::string& s : parts)
    if (!s.empty() && known.insert(s).second) scopes.push_back(s);
  std::lock_guard lock(table().mutex);
  Origin o;
  o.id_ = table().intern(std::move(scopes));
  return o;
}

int Origin::layer() const {
  for (auto& s : scopes())
    if (s.starts_with("h.")) return std::atoi(s.c_str() + 2);
  return -1;
}

}  // namespace crest
