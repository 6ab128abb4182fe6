// Verdicts from tables, rows as JSON, and the allocator compared with plans.
#include "lab/judge.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "lab/caching_allocator.h"
#include "lab/result_json.h"
#include "lab/result_text.h"
#include "lab/sources.h"

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

// Claims about one model on a GPU, about one without
// measurements, and about an unknown device.
Experiment conditional() {
  std::string text =
      "name = \"x\"\ntitle = \"t\"\nkind = \"bench\"\n[recipe]\nmodel = [\"small\", \"large\"]\nfusion = [\"on\", "
      "\"off\"]\n[quantities]\ngain = \"ratio(ms, fusion=off, fusion=on)\"\n"
      "[conditions.large]\nabout = \"the large model\"\nwhere = { model = \"large\" }\n"
      "[conditions.huge]\nabout = \"the huge model on an H100\"\nwhere = { model = \"huge\" }\n"
      "[conditions.gpu]\nabout = \"a GPU\"\nneeds = \"cuda\"\nwhere = { model = \"large\" }\n"
      "[conditions.chip]\nabout = \"another chip\"\navailable = \"no: Crest does not run on it\"\n"
      "[conditions.quick]\nabout = \"a step below 1 ms\"\nneeds = \"min(ms) < 1\"\n";
  for (const char* conditions : {"large", "huge", "gpu", "chip", "quick"})
    text += std::string("[[claim]]\ntext = \"c\"\nsubject = \"s\"\nsource = \"d\"\nconditions = \"") + conditions +
            "\"\ncheck = \"gain > 2\"\n";
  return parse_experiment(text, "x.toml");
}

Result judged_conditional(const Experiment& e, const std::string& device_kind, double large_off = 30) {
  Result r;
  r.experiment = &e, r.scale = "tiny", r.device = "a CPU";
  auto row = [&](const char* model, const char* fusion, double ms) {
    r.table.rows.push_back({{{"model", model}, {"fusion", fusion}, {"status", "done"}},
                            {{"ms", Value::number(ms)}},
                            "",
                            "0123456789abcdef"});
  };
  row("small", "on", 10), row("small", "off", 10), row("large", "on", 10), row("large", "off", large_off);
  Device device;
  device.name = "a CPU", device.kind = device_kind;
  judge(r, device);
  return r;
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
  EXPECT_EQ(r.claims[3].verdict, Verdict::not_comparable);
  EXPECT_EQ(r.claims[3].reason, "the claim is about a device with cuda and sm >= 90; this is a CPU");
  ASSERT_EQ(r.claims[0].figures.size(), 1u);
  EXPECT_EQ(r.claims[0].figures[0].first, "gain");
  EXPECT_NEAR(r.then.at(0).x, 1.2, 1e-12);
}

// A measurement of the small model, with gain 1, neither refutes nor upholds a claim about the
// large one.
TEST(Judge, AClaimReadsOnlyMeasurementsThatMeetItsConditions) {
  Experiment e = conditional();
  Result cpu = judged_conditional(e, "cpu"), gpu = judged_conditional(e, "cuda");
  EXPECT_EQ(cpu.claims[0].verdict, Verdict::upheld);
  ASSERT_EQ(cpu.claims[0].figures.size(), 1u);
  EXPECT_EQ(cpu.claims[0].figures[0].second.x, 3);
  EXPECT_EQ(judged_conditional(e, "cpu", 15).claims[0].verdict, Verdict::refuted);
  for (double large_off : {15.0, 30.0}) {  // the same claim outside of its conditions: never a verdict
    Result r = judged_conditional(e, "cpu", large_off);
    for (size_t i = 1; i < 5; ++i) EXPECT_EQ(r.claims[i].verdict, Verdict::not_comparable) << i;
  }
  EXPECT_EQ(cpu.claims[1].reason, "the claim is about the huge model on an H100; here large, small ran on a CPU");
  EXPECT_EQ(cpu.claims[2].reason, "the claim is about a GPU; here large, small ran on a CPU");
  EXPECT_EQ(cpu.claims[3].reason, "the claim is about another chip; Crest does not run on it");
  EXPECT_EQ(gpu.claims[2].verdict, Verdict::upheld);
  EXPECT_EQ(judged_conditional(e, "cuda", 15).claims[2].verdict, Verdict::refuted);
  EXPECT_EQ(judged_conditional(e, "cuda", 0.5).claims[4].verdict, Verdict::cannot_tell) << "two models match";
}

TEST(Judge, MeasurementsThatCannotRunHereOrNotYet) {
  Experiment e = conditional();
  auto judged_again = [&](const std::string& status, size_t left) {
    Result r = judged_conditional(e, "cpu");
    for (auto& row : r.table.rows)
      if (row.keys["model"] == "large")
        row.keys["status"] = status, row.absent = "PyTorch is not installed", row.columns.clear();
    r.claims.clear(), r.then.clear(), r.measurements_left = left;
    Device device;
    device.name = "a CPU", device.kind = "cpu";
    judge(r, device);
    return r;
  };
  Result absent = judged_again("absent", 0), large = judged_again("out_of_memory", 0),
         early = judged_again("absent", 2);
  EXPECT_EQ(absent.claims[0].verdict, Verdict::not_comparable);
  EXPECT_EQ(absent.claims[0].reason, "the claim is about the large model; here PyTorch is not installed");
  EXPECT_EQ(absent.claims[1].reason, "the claim is about the huge model on an H100; here small ran on a CPU")
      << "the large one did not run";
  EXPECT_EQ(large.claims[0].verdict, Verdict::cannot_tell) << "such cells exist, and do not fit";
  EXPECT_EQ(early.claims[1].verdict, Verdict::cannot_tell) << "a cell of the huge model may come";
}

// A device of the right kind that shows nothing: inconclusive, not "not comparable".
TEST(Judge, WithoutItsEvidenceAClaimIsInconclusive) {
  auto judged_with = [](const char* same_tile, double off) {
    Experiment e = parse_experiment(
        "name = \"x\"\ntitle = \"t\"\nkind = \"gemm\"\n[recipe]\nm = 8\nk = 8\nn = [4, 8]\n"
        "[conditions.tile]\nabout = \"one tile\"\nneeds = \"cpu\"\n"
        "evidence = \"value(tile, n=4) == value(tile, n=8)\"\nlacking = \"the tiles differ\"\n"
        "[conditions.old]\nabout = \"two tiles\"\nneeds = \"cpu and value(tile, n=4) != value(tile, n=8)\"\n"
        "[[claim]]\ntext = \"c\"\nsubject = \"s\"\nsource = \"d\"\nconditions = \"tile\"\n"
        "check = \"ratio(ms, n=8, n=4) > 1\"\n"
        "[[claim]]\ntext = \"c\"\nsubject = \"s\"\nsource = \"d\"\nconditions = \"old\"\n"
        "check = \"ratio(ms, n=16, n=4) > 1\"\n",
        "x.toml");
    Result r;
    r.experiment = &e, r.scale = "tiny", r.device = "a CPU";
    for (auto [n, tile, ms] : {std::tuple{"4", "64x64", 10.0}, {"8", same_tile, off}})
      r.table.rows.push_back({{{"m", "8"}, {"k", "8"}, {"n", n}, {"status", "done"}},
                              {{"ms", Value::number(ms)}, {"tile", Value::of_text(tile)}},
                              "",
                              ""});
    Device device;
    device.name = "a CPU", device.kind = "cpu";
    judge(r, device);
    return r.claims;
  };
  EXPECT_EQ(judged_with("64x64", 20)[0].verdict, Verdict::upheld);
  EXPECT_EQ(judged_with("64x64", 5)[0].verdict, Verdict::refuted);
  ClaimResult other = judged_with("64x32", 20)[0];
  EXPECT_EQ(other.verdict, Verdict::cannot_tell);
  EXPECT_EQ(other.reason, "the tiles differ");
  ASSERT_EQ(other.figures.size(), 2u) << "the two tiles";
  ClaimResult unmet = judged_with("64x64", 20)[1], missing = judged_with("64x32", 20)[1];
  EXPECT_EQ(unmet.verdict, Verdict::not_comparable);
  EXPECT_NE(unmet.reason.find(": value(tile, n=4) = 64x64; value(tile, n=8) = 64x64"), std::string::npos)
      << unmet.reason;
  EXPECT_EQ(missing.verdict, Verdict::cannot_tell);
  EXPECT_EQ(missing.reason, "nothing was measured with n=16 at scale tiny");
}

TEST(Judge, SharesOfTimeGetTheFloor) {
  Table table;
  table.rows.push_back({{}, {{"wait_share", Value::number(0.5)}, {"parameters", Value::number(5)}}, "", ""});
  widen_times(table, 0.02);
  EXPECT_NEAR(table.rows[0].columns.at("wait_share").high, 0.505, 1e-3);
  EXPECT_TRUE(table.rows[0].columns.at("parameters").exact());
}

TEST(Judge, TheFloorWidensRatiosByAllOfItself) {
  Experiment e = experiment();
  Value gain = judged(e, 0.04).quantities.at(0).second;
  EXPECT_NEAR(gain.high / gain.x, 1.04, 1e-9);
  EXPECT_NEAR(gain.low / gain.x, 1 / 1.04, 1e-9);
  EXPECT_EQ(judged(e, 0.2).claims[0].verdict, Verdict::cannot_tell);
}

// "Does not get faster": upheld within a stated margin, refuted beyond it, open between.
TEST(Judge, AClaimOfNoEffectNamesItsMargin) {
  auto verdict = [](double on, double floor) {
    Experiment e = parse_experiment(
        "name = \"x\"\ntitle = \"t\"\nkind = \"bench\"\nshow = [\"ms\"]\n[recipe]\nfusion = [\"on\", \"off\"]\n"
        "[[claim]]\ntext = \"1\"\nsubject = \"s\"\nsource = \"d\"\n"
        "check = \"close(ratio(ms, fusion=off, fusion=on), 1, 2%)\"\n",
        "x.toml");
    Result r;
    r.experiment = &e, r.scale = "tiny", r.device = "a CPU";
    for (auto& [fusion, ms] : {std::pair{"on", on}, {"off", 10.0}})
      r.table.rows.push_back({{{"fusion", fusion}, {"status", "done"}}, {{"ms", Value::number(ms)}}, "", "uid"});
    widen_times(r.table, floor);
    judge(r, Device());
    return r.claims.at(0).verdict;
  };
  EXPECT_EQ(verdict(10.05, 0.01), Verdict::upheld) << "parity";
  EXPECT_EQ(verdict(10.15, 0.01), Verdict::cannot_tell);
  EXPECT_EQ(verdict(9, 0.01), Verdict::refuted);
  EXPECT_EQ(verdict(11, 0.01), Verdict::refuted) << "in both directions";
  EXPECT_EQ(verdict(10.05, 0.05), Verdict::cannot_tell) << "too much noise for this margin";
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
  for (const char* said : {"upheld: 1", "refuted: 2", "inconclusive: 3", "here / document", "noise floor 4.0%",
                           "not comparable here: the claim is about a device with cuda", "\n  - 4 (",
                           "4 claims: 1 upheld, 1 refuted, 1 inconclusive, 1 not comparable on this machine\n"})
    EXPECT_NE(text.find(said), std::string::npos) << text;
}

TEST(Judge, AContinuedClaimIsWholeIfTheOneBeforeItComesLast) {
  Experiment e = parse_experiment(
      "name = \"x\"\ntitle = \"t\"\nkind = \"arithmetic\"\n"
      "[[claim]]\ntext = \"A\"\nsubject = \"s\"\nsource = \"d\"\nneeds = \"cuda\"\ncheck = \"2 > 1\"\n"
      "[[claim]]\ntext = \"... also B\"\nsubject = \"s\"\nsource = \"d\"\ncheck = \"2 > 1\"\n"
      "[[claim]]\ntext = \"... and C\"\nsubject = \"s\"\nsource = \"d\"\ncheck = \"2 > 1\"\n",
      "x.toml");
  Result r;
  r.experiment = &e, r.scale = "tiny", r.device = "a CPU";
  judge(r, Device());
  std::string text = result_text(r, false);
  EXPECT_NE(text.find("upheld: A ... also B (s; d)"), std::string::npos) << text;
  EXPECT_NE(text.find("upheld: ... and C (s; d)"), std::string::npos) << text;
}

// An experiment without a document, as a newcomer writes it, one measurement short.
TEST(Judge, TheTextLeavesOutWhatIsUnknownAndCountsInSingular) {
  Experiment e = experiment();
  Result r = judged(e, 0.04);
  r.measurements_left = 1;
  std::string text = result_text(r, false);
  EXPECT_NE(text.find("\n  here: a CPU, scale tiny\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("document: "), std::string::npos) << text;
  EXPECT_NE(text.find("2 measurements were measured in only one round\n1 measurement is not measured yet\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("1.2 [1.15"), std::string::npos) << "the figure next to the document's has its interval\n"
                                                       << text;
  EXPECT_EQ(text.find("  \n"), std::string::npos) << "no column is empty\n" << text;
}

TEST(Judge, CountsAndNamesOfVerdicts) {
  EXPECT_EQ(verdict_counts({1, 3, 6, 2}), "12 claims: 1 upheld, 3 refuted, 6 inconclusive, 2 not comparable");
  EXPECT_EQ(std::string(name(Verdict::not_comparable)), "not_comparable");
  EXPECT_EQ(std::string(name(Verdict::cannot_tell)), "cannot tell here");
  Experiment e = experiment();
  Json json = to_json(judged(e, 0.04));
  EXPECT_EQ(json["claims"][3]["verdict"], "not_comparable");
  std::vector<Result> two = {judged(e, 0.04), judged(e, 0.04)};
  std::string text = summary_text(two, false);
  EXPECT_NE(text.find("8 claims: 2 upheld, 2 refuted, 2 inconclusive, 2 not comparable on this machine"),
            std::string::npos)
      << text;
}

TEST(Sources, TitlesForPeople) {
  EXPECT_EQ(source_text("003, batch sizes"),
            "\"Software Tune Up For The Best Performance\" (Stas Bekman), batch sizes");
  EXPECT_EQ(source_text("somebody in 2003"), "somebody in 2003");
  EXPECT_EQ(section_text("002: (3.84 - 0.74) / 0.999"), "(3.84 - 0.74) / 0.999");
  EXPECT_EQ(section_text("001"), "");
  EXPECT_EQ(section_text("me"), "me");
  EXPECT_EQ(source_keys("000, 001, 20033"), (std::vector<std::string>{"000", "001"}));
}

constexpr int64_t MiB = 1 << 20;

// Requests by hand: bytes, first and last instruction.
class Requests {
 public:
  Requests& add(int64_t bytes, int first, int last) {
    Block b{};
    b.bytes = bytes, b.first = first, b.last = last, b.storage = no_value, b.category = Category::activations;
    plan_.blocks.push_back(b);
    return *this;
  }
  AllocatorUse replay(const std::string& settings = "default", int64_t memory = 0) const {
    AllocatorSettings s = parse_allocator_settings(settings);
    s.memory = memory;
    return replay_allocations(plan_, s);
  }
  int64_t reserved(const std::string& settings = "default", int64_t memory = 0) const {
    return replay(settings, memory).reserved_bytes;
  }
  int64_t least(const std::string& settings = "default") const {
    return least_memory(plan_, parse_allocator_settings(settings));
  }

 private:
  MemoryPlan plan_;
};

TEST(CachingAllocator, ReusesAndSplits) {
  Requests r;
  EXPECT_EQ(r.reserved(), 0);
  r.add(100, 0, 1);
  EXPECT_EQ(r.reserved(), 2 * MiB);  // a small segment
  r.add(4 * MiB, 0, 0);
  EXPECT_EQ(r.reserved(), 22 * MiB);
  r.add(4 * MiB, 1, 1);  // in the place of the first
  r.add(8 * MiB, 1, 1);  // in the rest of the segment
  EXPECT_EQ(r.reserved(), 22 * MiB);
  r.add(31 * MiB, 2, 2);  // no segment has so much, though 20 MiB are free
  EXPECT_EQ(r.reserved(), 54 * MiB);
}

// A request of 24 MiB splits a free block of 100 MiB, which then cannot serve the next 100 MiB.
TEST(CachingAllocator, MaxSplitSizeKeepsLargeBlocksWhole) {
  Requests r;
  r.add(100 * MiB, 0, 0).add(24 * MiB, 1, 2).add(100 * MiB, 2, 2);
  EXPECT_EQ(r.reserved(), 200 * MiB);
  EXPECT_EQ(r.reserved("max_split_size_mb:64"), 124 * MiB);
  EXPECT_EQ(r.reserved("max_split_size_mb:128"), 200 * MiB);  // 100 MiB may be split
  // An oversize block serves requests that leave less than 20 MiB of it.
  Requests s;
  s.add(100 * MiB, 0, 0).add(81 * MiB, 1, 1);
  EXPECT_EQ(s.reserved("max_split_size_mb:64"), 100 * MiB);
  Requests t;
  t.add(100 * MiB, 0, 0).add(80 * MiB, 1, 1);
  EXPECT_EQ(t.reserved("max_split_size_mb:64"), 180 * MiB);
  EXPECT_EQ(t.reserved(), 100 * MiB);
}

// Requests that grow: cudaMalloc needs a new segment for each, an expandable segment gets longer.
TEST(CachingAllocator, ExpandableSegmentsGrow) {
  Requests r;
  r.add(40 * MiB, 0, 0).add(60 * MiB, 1, 1).add(80 * MiB, 2, 2);
  EXPECT_EQ(r.reserved(), 180 * MiB);
  EXPECT_EQ(r.reserved("expandable_segments:True"), 80 * MiB);
  // Pages of 20 MiB for large requests, of 2 MiB for small ones.
  Requests s;
  s.add(21 * MiB, 0, 0).add(3000, 0, 0);
  EXPECT_EQ(s.reserved("expandable_segments:True"), 42 * MiB);
  EXPECT_EQ(s.reserved(), 24 * MiB);
  // A used block at the end stays: the free 40 MiB before it are too small.
  Requests t;
  t.add(40 * MiB, 0, 0).add(20 * MiB, 0, 1).add(60 * MiB, 1, 1);
  EXPECT_EQ(t.reserved("expandable_segments:True"), 120 * MiB);
  // Within 90 MiB the 40 are unmapped and mapped again at the end.
  AllocatorUse use = t.replay("expandable_segments:True", 90 * MiB);
  EXPECT_FALSE(use.out_of_memory);
  EXPECT_EQ(use.reserved_bytes, 80 * MiB);
  EXPECT_EQ(use.retries, 1);
}

// 30 and 50 MiB are cached, of no use for 60. Above 70% of the memory the older one is returned.
TEST(CachingAllocator, GarbageCollectionReturnsOldBlocks) {
  Requests r;
  r.add(30 * MiB, 0, 0).add(50 * MiB, 1, 1).add(60 * MiB, 2, 2);
  EXPECT_EQ(r.reserved(), 140 * MiB);
  EXPECT_EQ(r.reserved("garbage_collection_threshold:0.8"), 140 * MiB);  // no limit to compare with
  AllocatorUse without = r.replay("default", 112 * MiB);
  EXPECT_EQ(without.returned, 2);  // all cached memory
  EXPECT_EQ(without.retries, 1);
  EXPECT_EQ(without.reserved_bytes, 80 * MiB);
  AllocatorUse with = r.replay("garbage_collection_threshold:0.7", 112 * MiB);
  EXPECT_EQ(with.returned, 1);
  EXPECT_EQ(with.retries, 0);
  EXPECT_EQ(with.reserved_bytes, 110 * MiB);
}

TEST(CachingAllocator, LeastMemory) {
  Requests r;
  r.add(100 * MiB, 0, 0).add(24 * MiB, 1, 2).add(100 * MiB, 2, 2);
  // The split block cannot be given back, an oversize one can.
  EXPECT_EQ(r.least(), 200 * MiB);
  EXPECT_EQ(r.least("max_split_size_mb:64"), 124 * MiB);
  EXPECT_TRUE(r.replay("default", 198 * MiB).out_of_memory);
  EXPECT_EQ(r.replay("max_split_size_mb:64", 124 * MiB).retries, 0);
}

TEST(CachingAllocator, RefusesSettingsOutsideTheModel) {
  for (const char* text : {"max_split_size_mb:20", "max_split_size_mb:x", "garbage_collection_threshold:1",
                           "expandable_segments:yes", "roundup_power2_divisions:4", "", "max_split_size_mb"})
    EXPECT_THROW(parse_allocator_settings(text), Error) << text;
}

}  // namespace crest::lab
