// The memory snapshot: read back by an unpickler with the viewer's opcodes only.
#include "traces/memory_snapshot.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "host/external.h"
#include "traces/memory_events.h"
#include "traces/pickle.h"
#include "traces/python.h"
#include "traces/sample_profile.h"
#include "traces/unpickle.h"

using namespace crest;
using crest::test::unpickle;

TEST(Pickle, ValuesComeBack) {
  PickleWriter w;
  w.begin_dict();
  w.key("numbers");
  w.begin_list();
  for (int64_t n : {0l, 255l, 256l, 65535l, 65536l, 2147483647l, 2147483648l, -1l, -2147483649l, 1l << 52, INT64_MIN})
    w.integer(n);
  w.number(0.1), w.boolean(true), w.boolean(false), w.none();
  w.end_list();
  w.key("text");
  w.text(std::string(300, 'x') + "\xc3\xa9");
  w.key("again");
  w.text("numbers");
  w.key("empty");
  w.begin_list(), w.end_list();
  w.key("none");
  w.begin_dict(), w.end_dict();
  w.end_dict();
  EXPECT_EQ(unpickle(w.finish()).dump(),
            R"({"again":"numbers","empty":[],"none":{},"numbers":[0,255,256,65535,65536,2147483647,2147483648,-1,)"
            R"(-2147483649,4503599627370496,-9223372036854775808,0.1,true,false,null],"text":")" +
                std::string(300, 'x') + "\xc3\xa9\"}");
}

TEST(Pickle, LongListsComeInBatchesAndReferencesCountPast256) {
  PickleWriter w;
  w.begin_list();
  for (int i = 0; i < 2500; ++i) w.text(std::to_string(i % 1250));
  w.begin_list(), w.text("kept"), w.end_list();
  uint32_t kept = w.remember();
  w.recall(kept);
  w.end_list();
  nlohmann::json list = unpickle(w.finish());
  ASSERT_EQ(list.size(), 2502u);
  for (int i = 0; i < 2500; ++i) ASSERT_EQ(list[size_t(i)], std::to_string(i % 1250));
  EXPECT_EQ(list[2500], list[2501]);
  EXPECT_EQ(list[2501][0], "kept");
}

TEST(MemoryEvents, FollowTheInstructions) {
  Profile p = test::sample_profile(false);
  auto events = memory_events(p);
  // 2 persistent, two calls of train with 3 blocks, one of update with 1.
  ASSERT_EQ(events.size(), 2u + 2 * 6 + 2);
  std::string order;
  for (auto& e : events)
    order += (e.alloc ? "+" : "-") +
             (e.block < 0 ? p.memory.persistent[size_t(e.persistent)].name : p.memory.blocks[size_t(e.block)].name) +
             " ";
  EXPECT_EQ(order, "+weights +moments +x +q -q +t -t -x +x +q -q +t -t -x +workspace of adamw -workspace of adamw ");
  for (size_t i = 1; i < events.size(); ++i) EXPECT_GE(events[i].ms, events[i - 1].ms);
  EXPECT_NEAR(events[3].ms, 0.65, 1e-9) << "q is taken when instruction 1 starts";
  EXPECT_NEAR(events[4].ms, 1.2 + 0.5, 1e-9) << "and free when instruction 2 ends";
  EXPECT_EQ(memory_events(p, 10).size(), 2u + 6 + 2) << "beyond the limit a repeated Program is written once";
}

TEST(MemorySnapshot, SegmentsAreTiledAndTracesAddUp) {
  Profile p = test::sample_profile(true);
  nlohmann::json s = unpickle(memory_snapshot(p));
  ASSERT_EQ(s["segments"].size(), 2u);
  for (auto& segment : s["segments"]) {
    int64_t at = segment["address"];
    for (auto& b : segment["blocks"]) {
      EXPECT_EQ(b["address"], at);
      at += b["size"].get<int64_t>();
    }
    EXPECT_EQ(at, segment["address"].get<int64_t>() + segment["total_size"].get<int64_t>());
  }
  EXPECT_EQ(s["segments"][0]["blocks"].size(), 4u) << "weights, a gap, moments, the rest";
  std::map<int64_t, int64_t> live;
  int64_t held = 0, peak = 0;
  for (auto& e : s["device_traces"][0]) {
    int64_t size = e["size"], address = e["addr"];
    if (e["action"] == "alloc") {
      auto next = live.lower_bound(address);
      EXPECT_TRUE(next == live.end() || next->first >= address + size) << e;
      EXPECT_TRUE(next == live.begin() || std::prev(next)->first + std::prev(next)->second <= address) << e;
      live[address] = size;
      held += size;
    } else if (e["action"] == "free_completed") {
      EXPECT_EQ(live[address], size);
      live.erase(address);
      held -= size;
    }
    peak = std::max(peak, held);
    ASSERT_FALSE(e["frames"].empty());
  }
  EXPECT_EQ(held, 3000) << "the persistent values stay";
  EXPECT_EQ(peak, 3000 + 768);
}

TEST(MemorySnapshot, FramesSayWhoMadeIt) {
  nlohmann::json s = unpickle(memory_snapshot(test::sample_profile(false)));
  for (auto& e : s["device_traces"][0])
    if (e["action"] == "alloc" && e["size"] == 128) {
      EXPECT_EQ(e["category"], "temporary");
      std::string stack;
      for (auto& f : e["frames"])
        stack += f["filename"].get<std::string>() + ":" + f["line"].dump() + ":" + f["name"].get<std::string>() + "\n";
      EXPECT_EQ(stack,
                "train:3:norm writes t\nscope:0:h.0.ln_1\nphase:0:recompute\nlayer:0:layer 0\n"
                "category:0:temporary\n");
      return;
    }
  FAIL() << "block t is missing";
}

TEST(MemorySnapshot, NothingToSayIsStillASnapshot) {
  nlohmann::json s = unpickle(memory_snapshot({}));
  EXPECT_EQ(s["segments"].size(), 0u);
  EXPECT_EQ(s["device_traces"].dump(), "[[]]");
}

// Python's own unpickler and pickletools agree (tests/tools/check_snapshot.py, standard library
// only).
TEST(MemorySnapshot, PythonReadsIt) {
  std::string path = testing::TempDir() + "crest_snapshot.pickle";
  write_memory_snapshot(test::sample_profile(true), path);
  test::expect_python("check_snapshot.py", path, "ok: 2 segments, 9 allocations");
}
