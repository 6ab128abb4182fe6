// The run store: written values are read back; lists, names, deletion.
#include "store/store.h"

#include <cmath>
#include <ctime>

#include "slowness.h"
#include "store/files.h"

namespace crest::test {

namespace {

class StoreTest : public testing::Test {
 protected:
  Folder folder_;
  std::string file_ = folder_ / "runs.db";
  Store store_{file_};

  int64_t begin(const std::string& name, const std::string& started = "", const std::string& status = "done") {
    RunRecord r = bench_record(name);
    r.started = started, r.status = status;
    return store_.begin(r);
  }
};

std::vector<std::string> names(const std::vector<RunRecord>& runs) {
  std::vector<std::string> all;
  for (auto& r : runs) all.push_back(r.name);
  return all;
}

}  // namespace

TEST_F(StoreTest, KeepsARunAsItWasWritten) {
  RunRecord r = bench_record("first");
  r.grid = "grid-1";
  int64_t id = store_.begin(r);
  EXPECT_EQ(r.id, id);
  EXPECT_EQ(r.uid.size(), 16u);
  EXPECT_EQ(r.started.size(), 24u);
  EXPECT_EQ(r.status, "running");

  LogRow step;
  step.step = 3, step.loss = 2.5, step.skipped = true;
  LogRow validation;
  validation.step = 3, validation.val_loss = INFINITY;
  store_.add_log(id, {step});
  store_.add_log(id, {validation});
  store_.add_samples(id, {{1.5, 0, "a", false}, {1.25, 0, "b", true}});
  store_.add_samples(id, {{1.75, 1, "a", false}});
  store_.set_document(id, "plan", {{"z", 1}, {"a", {1, 2.5, nullptr, "x"}}});
  store_.set_document(id, "plan", {{"z", 2}, {"a", 1}});
  r.status = "done", r.result = {{"step_ms_median", 1.5}}, r.environment_after = {{"load_average", 0.75}};
  store_.finish(id, r);

  RunRecord back = Store(file_, Store::Mode::read).load(id);
  EXPECT_EQ(back.uid, r.uid);
  EXPECT_EQ(back.name, "first");
  EXPECT_EQ(back.kind, "bench");
  EXPECT_EQ(back.status, "done");
  EXPECT_EQ(back.started, r.started);
  EXPECT_GE(back.finished, back.started);
  EXPECT_EQ(back.command, r.command);
  EXPECT_EQ(back.grid, "grid-1");
  EXPECT_EQ(back.recipe.dump(), r.recipe.dump()) << "the order of the keys, too";
  EXPECT_EQ(back.device, r.device);
  EXPECT_EQ(back.environment, r.environment);
  EXPECT_EQ(back.environment_after, r.environment_after);
  EXPECT_EQ(back.result, r.result);
  ASSERT_EQ(back.samples.size(), 3u);
  EXPECT_EQ(back.samples[1].contender, "b");
  EXPECT_TRUE(back.samples[1].throttled);
  EXPECT_EQ(back.samples[2].ms, 1.75);
  EXPECT_EQ(back.samples[2].round, 1);
  ASSERT_EQ(back.log.size(), 2u);
  EXPECT_EQ(back.log[0].loss, 2.5);
  EXPECT_TRUE(back.log[0].skipped);
  EXPECT_TRUE(std::isnan(back.log[0].val_loss));
  EXPECT_TRUE(std::isinf(back.log[1].val_loss));
  EXPECT_TRUE(std::isnan(back.log[1].loss));
  EXPECT_EQ(back.documents.at("plan").dump(), R"({"z":2,"a":1})");
  EXPECT_EQ(store_.document(id, "plan"), back.documents.at("plan"));
  EXPECT_TRUE(store_.load_without_documents(id).documents.at("plan").is_null());
  expect_says(error_of([&] { store_.document(id, "profil"); }), {"no document 'profil'", "plan"});
}

TEST_F(StoreTest, TextSurvivesWhateverItHolds) {
  RunRecord r = bench_record(std::string("n\0ul '; DROP TABLE runs; --\xff\x1b[31m", 32));
  r.command = "crest bench \xfe";
  r.recipe["model"] = "\xff model";
  int64_t id = store_.begin(r);
  RunRecord back = store_.load(id);
  EXPECT_EQ(back.name, r.name);
  EXPECT_EQ(back.command, r.command);
  EXPECT_EQ(back.recipe["model"], "\xEF\xBF\xBD model") << "JSON is UTF-8";
}

TEST_F(StoreTest, MakesANameAndAKeyFromTheRecipe) {
  RunRecord r = bench_record("");
  r.recipe["attention"] = "naive";
  store_.begin(r);
  EXPECT_EQ(r.name, "bench-nano-bf16-naive-b8-t256");
  RunRecord same = bench_record("other");
  same.recipe["attention"] = "naive";
  same.device["memory_bytes"] = 12345;  // free memory varies
  store_.begin(same);
  EXPECT_EQ(r.key, same.key);
  RunRecord different = bench_record("");
  store_.begin(different);
  EXPECT_NE(r.key, different.key);
}

TEST_F(StoreTest, ListsTheNewestFirstAndFilters) {
  begin("old", "2026-01-01T00:00:00.000Z");
  begin("middle", "2026-01-31T23:59:59.999Z", "failed");
  RunRecord r = bench_record("new 100%_sure");
  r.kind = "train", r.phase = "", r.status = "done", r.started = "2026-02-01T00:00:00.000Z";
  r.recipe["model"] = "gpt2-124M", r.device = {{"kind", "cuda"}, {"name", "NVIDIA H200"}};
  store_.begin(r);
  using Names = std::vector<std::string>;
  auto listed = [&](RunFilter f) { return names(store_.list(f)); };
  EXPECT_EQ(listed({}), (Names{"new 100%_sure", "middle", "old"}));
  EXPECT_EQ(listed({.limit = 2}), (Names{"new 100%_sure", "middle"}));
  EXPECT_EQ(listed({.kind = "bench"}), (Names{"middle", "old"}));
  EXPECT_EQ(listed({.status = "failed"}), Names{"middle"});
  EXPECT_EQ(listed({.model = "nano"}), (Names{"middle", "old"}));
  EXPECT_EQ(listed({.device = "h200"}), Names{"new 100%_sure"});
  EXPECT_EQ(listed({.device = "cpu", .phase = "step"}), (Names{"middle", "old"}));
  EXPECT_EQ(listed({.since = "2026-01-31"}), (Names{"new 100%_sure", "middle"}));
  EXPECT_EQ(listed({.until = "2026-01-31"}), (Names{"middle", "old"})) << "all of that day";
  EXPECT_EQ(listed({.since = "2026-01-31", .until = "2026-01"}), Names{"middle"});
  EXPECT_EQ(listed({.text = "%_"}), Names{"new 100%_sure"}) << "no wildcards";
  EXPECT_EQ(listed({.text = "--batch 8"}).size(), 3u);
  EXPECT_EQ(listed({.key = r.key}), Names{"new 100%_sure"});
  EXPECT_EQ(listed({.model = "x' OR '1'='1"}), Names{});
}

TEST_F(StoreTest, FindsARunByAnythingThatNamesIt) {
  int64_t first = begin("same", "2026-01-01T00:00:00Z"), second = begin("same", "2026-01-02T00:00:00Z");
  EXPECT_EQ(store_.find(std::to_string(first)), first);
  EXPECT_EQ(store_.find("same"), second) << "the newest of a name";
  std::string uid = store_.load(first).uid;
  EXPECT_EQ(store_.find(uid), first);
  EXPECT_EQ(store_.find(uid.substr(0, 15)), first);
  std::filesystem::create_directories(folder_ / "work/run");
  std::filesystem::create_symlink(folder_ / "work", folder_ / "link");
  RunRecord r = bench_record("training");
  r.folder = folder_ / "work/run";
  int64_t id = store_.begin(r);
  EXPECT_EQ(store_.find(folder_ / "work/run"), id);
  EXPECT_EQ(store_.find(folder_ / "work/run/"), id);
  EXPECT_EQ(store_.find(folder_ / "work/../work/./run//"), id);
  EXPECT_EQ(store_.find(folder_ / "link/run"), id);
  EXPECT_EQ(store_.find(std::filesystem::relative(folder_ / "work/run").string()), id);
  expect_says(error_of([&] { store_.find("trainin"); }), {"no run 'trainin'", "Did you mean 'training'?"});
  expect_says(error_of([&] { store_.find("\x1b[31m"); }), {"\\x1b[31m"});
  EXPECT_EQ(error_of([&] { store_.find(""); }).find('\x1b'), std::string::npos);
  error_of([&] { store_.find("99999999999999999999999"); });
  error_of([&] { store_.find("0"); });
}

TEST_F(StoreTest, AnAmbiguousUidIsAnError) {
  for (const char* uid : {"abcd000000000001", "abcd000000000002"}) {
    RunRecord r = bench_record();
    r.uid = uid;
    store_.begin(r);
  }
  expect_says(error_of([&] { store_.find("abcd"); }), {"2 runs", "abcd"});
  EXPECT_EQ(store_.find("abcd000000000002"), 2);
}

TEST_F(StoreTest, DeletesARunWithAllItHas) {
  int64_t id = begin("gone"), other = begin("kept");
  for (int64_t run : {id, other}) {
    store_.add_samples(run, {{1, 0, "", false}});
    store_.add_log(run, {LogRow()});
    store_.set_document(run, "plan", {{"a", 1}});
  }
  store_.erase(id);
  EXPECT_EQ(names(store_.list()), std::vector<std::string>{"kept"});
  for (const char* table : {"samples", "log", "documents"})
    EXPECT_EQ(raw_sql(file_, std::string("SELECT count(*) FROM ") + table), "1") << table;
  for (auto& text : {error_of([&] { store_.erase(id); }), error_of([&] { store_.add_log(id, {LogRow()}); }),
                     error_of([&] { store_.finish(id, RunRecord()); })})
    expect_says(text, {"run 1 does not exist"});
  EXPECT_EQ(begin("next"), 3) << "an id is never used again";
}

TEST_F(StoreTest, AddsAWholeRunOnce) {
  RunRecord r = bench_record("whole");
  r.status = "done", r.samples = {{1, 0, "", false}}, r.log = {LogRow()}, r.documents["plan"] = {{"a", 1}};
  int64_t id = store_.add(r);
  EXPECT_EQ(store_.add(r), id);
  EXPECT_EQ(store_.list().size(), 1u);
  EXPECT_EQ(store_.load(id).samples.size(), 1u);
}

TEST_F(StoreTest, AddsAllOrNothing) {
  int count = 0;
  error_of([&] {
    store_.add_all([&](RunRecord& r) {
      if (++count == 3) fail("damaged");
      r = bench_record("n" + std::to_string(count));
      return true;
    });
  });
  EXPECT_TRUE(store_.list().empty());
  EXPECT_EQ(begin("still works"), 1);
}

TEST_F(StoreTest, ProfilesCanBeAskedWithSql) {
  int64_t id = begin("profiled");
  Json instr = {{"program", "train"}, {"index", 7},
                {"op", "linear"},     {"kernel", "cpu.linear"},
                {"phase", "forward"}, {"op_class", "contraction"},
                {"layer", 2},         {"ms", 1.5},
                {"floor_ms", 1.0},    {"flops", 2e9},
                {"bytes", 3e6}};
  Json other = instr;
  other["ms"] = 0.5, other["op"] = "gelu";
  store_.set_document(id, "profile",
                      {{"instrs", {instr, other}}, {"kernels", {{{"name", "k"}, {"count", 3}, {"ms", 2.0}}}}});
  store_.set_document(id, "plan", {{"instrs", {instr}}});
  EXPECT_EQ(raw_sql(file_, "SELECT sum(ms) FROM profile_instructions"), "2.0");
  EXPECT_EQ(raw_sql(file_, "SELECT count(*) FROM sqlite_schema WHERE sql LIKE '%->>%'"), "0");  // SQLite 3.37 reads it
  EXPECT_EQ(raw_sql(file_,
                    "SELECT run || program || \"index\" || op || kernel || phase || class || layer || floor_ms || "
                    "flops || bytes FROM profile_instructions ORDER BY ms"),
            "1train7linearcpu.linearforwardcontraction21.02000000000.03000000.0");
  EXPECT_EQ(raw_sql(file_, "SELECT count * ms FROM profile_kernels"), "6.0");
}

TEST_F(StoreTest, ListsThousandsOfRunsQuickly) {
  int made = 0;
  store_.add_all([&](RunRecord& r) {
    r = bench_record("run " + std::to_string(made));
    r.result = {{"step_ms_median", 1.5}, {"memory", {{"planned_bytes", 1}, {"by_category", {{"weights", 1}}}}}};
    return made++ < 3000;
  });
  std::clock_t start = std::clock();  // processor time: other work here does not count
  EXPECT_EQ(store_.list().size(), 3000u);
  [[maybe_unused]] double seconds = double(std::clock() - start) / CLOCKS_PER_SEC;
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__)  // sanitizers take three times as long
  EXPECT_LT(seconds, slowness());
#endif
}

}  // namespace crest::test
