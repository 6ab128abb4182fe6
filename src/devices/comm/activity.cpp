#include "comm/activity.h"

#include <fmt/format.h>

#include <string_view>

#include "host/progress.h"

namespace crest {

std::string CollectiveCall::text() const {
  if (!*what) return "";
  return elements ? fmt::format("{} of {} {}", what, elements, name(dtype)) : what;
}

uint32_t CollectiveCall::tag() const {
  uint64_t hash = 0xcbf29ce484222325;
  auto mix = [&](uint64_t part) { hash = (hash ^ part) * 0x100000001b3, hash ^= hash >> 29; };
  for (char c : std::string_view(what)) mix(uint64_t(c));
  mix(uint64_t(dtype)), mix(uint64_t(elements)), mix(uint64_t(root));
  return uint32_t(hash ^ hash >> 32);
}

std::string Activity::Seen::text() const {
  return collective.empty() ? doing : fmt::format("{}, {}", doing, collective);
}

void Activity::doing(std::string what, bool steady) {
  std::lock_guard lock(mutex_);
  doing_ = std::move(what), steady_ = steady, ++count_;
}

void Activity::enter(const CollectiveCall& call) {
  std::lock_guard lock(mutex_);
  call_ = call, ++count_;
}

void Activity::moved() {
  std::lock_guard lock(mutex_);
  ++count_;
}

Activity::Seen Activity::look() const {
  std::lock_guard lock(mutex_);
  return {*call_.what ? waits : steady_ ? steady : free, count_ + progress_count, doing_, call_.text()};
}

}  // namespace crest
