// A rank's current work. Its watchdog tells the other ranks (comm/watchdog.h).
#pragma once
#include <cstdint>
#include <mutex>
#include <string>

#include "core/dtype.h"

namespace crest {

// A collective call, equal on all ranks.
struct CollectiveCall {
  const char* what = "";  // "all-reduce"; "": none
  DType dtype = DType::u8;
  int64_t elements = 0;
  int root = 0;

  std::string text() const;  // "all-reduce of 4096 f32"; "" for none
  // A hash to match messages by, so that no call receives another call's bytes.
  uint32_t tag() const;
};

class Activity {
 public:
  // steady: the work counts progress (host/progress.h), so a long pause means it hangs. Other work
  // has no time limit: saving, or waiting for a GPU.
  void doing(std::string what, bool steady = false);

  // The rank waits for others while this object lives.
  class InCollective {
   public:
    InCollective(Activity& activity, const CollectiveCall& call) : activity_(activity) { activity_.enter(call); }
    ~InCollective() { activity_.enter({}); }
    InCollective(const InCollective&) = delete;
    InCollective& operator=(const InCollective&) = delete;

   private:
    Activity& activity_;
  };
  // Part of a collective is done.
  void moved();

  enum State : char { waits = 'w', steady = 's', free = 'f' };
  struct Seen {
    State state = free;
    uint64_t count = 0;  // of progress
    std::string doing, collective;

    std::string text() const;  // "step 12, all-reduce of 4096 fp32"
  };
  Seen look() const;

 private:
  void enter(const CollectiveCall& call);

  mutable std::mutex mutex_;
  std::string doing_ = "start";
  bool steady_ = false;
  CollectiveCall call_;
  uint64_t count_ = 0;
};

}  // namespace crest
