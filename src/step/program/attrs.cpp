#include "program/attrs.h"

#include <algorithm>
#include <mutex>
#include <set>

#include "core/error.h"

namespace crest {

// Keys live as long as the process: the names in the source and in parsed Programs.
static std::string_view intern(std::string_view key) {
  static std::mutex mutex;
  static std::set<std::string, std::less<>> pool;
  std::lock_guard lock(mutex);
  auto it = pool.find(key);
  if (it == pool.end()) it = pool.emplace(key).first;
  return *it;
}

const AttrValue* Attrs::find(std::string_view key) const {
  for (auto& e : entries_)
    if (e.key == key) return &e.value;
  return nullptr;
}

int64_t Attrs::integer(std::string_view key) const {
  auto* v = find(key);
  if (!v || !std::holds_alternative<int64_t>(*v)) fail_internal("integer attribute '" + std::string(key) + "' missing");
  return std::get<int64_t>(*v);
}

int64_t Attrs::integer(std::string_view key, int64_t otherwise) const { return has(key) ? integer(key) : otherwise; }

double Attrs::number(std::string_view key) const {
  auto* v = find(key);
  if (v && std::holds_alternative<int64_t>(*v)) return double(std::get<int64_t>(*v));
  if (!v || !std::holds_alternative<double>(*v)) fail_internal("number attribute '" + std::string(key) + "' missing");
  return std::get<double>(*v);
}

double Attrs::number(std::string_view key, double otherwise) const { return has(key) ? number(key) : otherwise; }

const std::string& Attrs::text(std::string_view key) const {
  auto* v = find(key);
  if (!v || !std::holds_alternative<std::string>(*v)) fail_internal("attribute '" + std::string(key) + "' missing");
  return std::get<std::string>(*v);
}

Attrs& Attrs::put(std::string_view key, AttrValue value) {
  auto it = std::lower_bound(entries_.begin(), entries_.end(), key, [](auto& e, auto k) { return e.key < k; });
  if (it != entries_.end() && it->key == key)
    it->value = std::move(value);
  else
    entries_.insert(it, {intern(key), std::move(value)});
  return *this;
}

Attrs& Attrs::set(std::string_view key, int64_t value) { return put(key, value); }
Attrs& Attrs::set(std::string_view key, double value) { return put(key, value); }
Attrs& Attrs::set(std::string_view key, std::string_view value) { return put(key, std::string(value)); }

void Attrs::erase(std::string_view key) {
  std::erase_if(entries_, [&](auto& e) { return e.key == key; });
}

}  // namespace crest
