// A cache of at most `capacity` expensive values, by key. The least recently used value is dropped
// first. Values are shared or copied, so a dropped value stays valid for its users.
#pragma once
#include <cstddef>
#include <list>
#include <map>
#include <mutex>
#include <utility>

namespace crest {

template <class Key, class Value>
class LruCache {
 public:
  explicit LruCache(size_t capacity) : capacity_(capacity) {}

  // The value of `key`. If there is none, make() creates it, under the lock. If make() throws,
  // nothing is stored.
  template <class Make>
  Value find_or_make(const Key& key, Make make) {
    std::lock_guard lock(mutex_);
    if (auto it = index_.find(key); it != index_.end()) {
      entries_.splice(entries_.begin(), entries_, it->second);
      return it->second->second;
    }
    entries_.emplace_front(key, make());
    index_.emplace(key, entries_.begin());
    if (entries_.size() > capacity_) {
      index_.erase(entries_.back().first);
      entries_.pop_back();
    }
    return entries_.front().second;
  }
  size_t size() const {
    std::lock_guard lock(mutex_);
    return entries_.size();
  }
  size_t capacity() const { return capacity_; }

 private:
  using Entries = std::list<std::pair<Key, Value>>;  // most recently used first
  const size_t capacity_;
  mutable std::mutex mutex_;
  Entries entries_;
  std::map<Key, typename Entries::iterator> index_;
};

}  // namespace crest
