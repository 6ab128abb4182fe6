// Verdicts from tables, rows as JSON, and the allocator that plans are compared with.
#include "lab/judge.h"

#include <gtest/gtest.h>

#include "lab/caching_allocator.h"
#include "lab/result_json.h"
#include "lab/result_text.h"

namespace crest::lab {

namespace {

Experiment experiment() {
  return parse_experiment(
      "name = \"x\"\ntitle = \"t\"\nkind = \"bench\"\nshow = [\"ms\"]\n[recipe]\nfusion = [\"on\", \"off\"]\n"
      "[quantities]\ngain = \"ratio(ms, fusion=off, fusion=on)\"\n"
      "[[claim]]\ntext = \"1\"\nsubject = \"s\"\nsource = \"d\"\ncheck = \"gain > 1.05\"\n"
      "[[claim]]\ntext = \"2\"\nsubject = \"s\"\nsource = \"d\"\ncheck = \"gain > 2\"\n"
      "[[claim]]\ntext = \"3\"\nsubject = \"s\"\nsource = \"d\"\ncheck = \"gain > 1.19\"\n"
      "[[claim]]\ntext = \"4\"\nsubject = \"s\"\nsource = \"d\"\nneeds = \"cuda and sm >= 90\"\ncheck = \"gain > 1\"\n"
      "[[then]]\nwhat = \"gain\"\ndocument = 1.5\nhere = \"gain\"\n",
      "x.toml");
}

Result judged(const Experiment& e, double floor) {
  Result r;
  r.experiment = &e, r.scale = "tiny", r.device = "a CPU", r.noise_floor = floor, r.floor_source = "assumed";
  auto row = [&](const char* fusion, double ms) {
    r.table.rows.push_back(
        {{{"fusion", fusion}, {"status", "done"}}, {{"ms", Value::number(ms)}}, "", "0123456789abcdef"});
  };
  row("on", 10), row("off", 12);
  widen_times(r.table, floor);
  Device device;
  device.name = "a CPU";
  judge(r, device);
  return r;
}

}  // namespace

TEST(Judge, VerdictsOfClaims) {
  Experiment e = experiment();
  Result r = judged(e, 0.04);
  ASSERT_EQ(r.claims.size(), 4u);
  EXPECT_EQ(r.claims[0].verdict, Verdict::upheld);
  EXPECT_EQ(r.claims[1].verdict, Verdict::refuted);
  EXPECT_EQ(r.claims[2].verdict, Verdict::cannot_tell);
  EXPECT_NE(r.claims[2].reason.find("within noise"), std::string::npos);
  EXPECT_EQ(r.claims[3].verdict, Verdict::cannot_tell);
  EXPECT_NE(r.claims[3].reason.find("requires cuda and sm >= 90; this device is a CPU"), std::string::npos);
  ASSERT_EQ(r.claims[0].figures.size(), 1u);
  EXPECT_EQ(r.claims[0].figures[0].first, "gain");
  EXPECT_NEAR(r.then.at(0).x, 1.2, 1e-12);
}

TEST(Judge, TheFloorWidensRatiosByAllOfItself) {
  Experiment e = experiment();
  Value gain = judged(e, 0.04).quantities.at(0).second;
  EXPECT_NEAR(gain.high / gain.x, 1.04, 1e-9);
  EXPECT_NEAR(gain.low / gain.x, 1 / 1.04, 1e-9);
  EXPECT_EQ(judged(e, 0.2).claims[0].verdict, Verdict::cannot_tell);
}

TEST(Judge, RowsComeBackFromJson) {
  Row row;
  row.keys = {{"fusion", "on"}, {"status", "out_of_memory"}};
  row.columns = {{"ms", Value::range(2, 1, 3)},
                 {"planned_bytes", Value::number(5)},
                 {"dtype", Value::of_text("f16")},
                 {"share", Value::missing("why")}};
  row.absent = "too large", row.run = "0123456789abcdef";
  Row back = row_from_json(Json::parse(to_json(row).dump()));
  EXPECT_EQ(back.keys, row.keys);
  EXPECT_EQ(back.absent, row.absent);
  EXPECT_EQ(back.run, row.run);
  EXPECT_EQ(back.columns.at("ms").high, 3);
  EXPECT_EQ(back.columns.at("planned_bytes").x, 5);
  EXPECT_EQ(back.columns.at("dtype").text, "f16");
  EXPECT_EQ(back.columns.at("share").unknown, "why");
  EXPECT_NO_THROW(row_from_json(Json::parse("{\"keys\": {\"a\": 1}, \"columns\": {\"b\": [1]}}")));
}

TEST(Judge, TheTextNamesVerdictsAndFigures) {
  Experiment e = experiment();
  std::string text = result_text(judged(e, 0.04), false);
  for (const char* said : {"upheld: 1", "refuted: 2", "inconclusive: 3", "here / document", "noise floor 4.0%"})
    EXPECT_NE(text.find(said), std::string::npos) << text;
}

TEST(CachingAllocator, ReusesAndSplits) {
  MemoryPlan plan;
  constexpr int64_t MiB = 1 << 20;
  auto block = [&](int64_t bytes, int first, int last) {
    Block b{};
    b.bytes = bytes, b.first = first, b.last = last, b.storage = no_value, b.category = Category::activations;
    plan.blocks.push_back(b);
  };
  EXPECT_EQ(caching_allocator_bytes(plan), 0);
  block(100, 0, 1);
  EXPECT_EQ(caching_allocator_bytes(plan), 2 * MiB);  // a small segment
  block(4 * MiB, 0, 0);
  EXPECT_EQ(caching_allocator_bytes(plan), 22 * MiB);
  block(4 * MiB, 1, 1);  // in the place of the first
  block(8 * MiB, 1, 1);  // in what is left of the segment
  EXPECT_EQ(caching_allocator_bytes(plan), 22 * MiB);
  block(31 * MiB, 2, 2);  // no segment has so much, though 20 MiB are free
  EXPECT_EQ(caching_allocator_bytes(plan), 54 * MiB);
}

}  // namespace crest::lab
