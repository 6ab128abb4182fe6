// Run databases from strangers: their content is data and never runs. Damage in one run does not
// affect the others.
#include "store/files.h"

namespace crest::test {

namespace {

constexpr int runs = 4;

std::string whole_store(const Folder& folder) {
  Store store(folder / "runs.db");
  for (int i = 0; i < runs; ++i) {
    RunRecord r = bench_record("run " + std::to_string(i + 1));
    r.status = "done", r.started = "2026-01-0" + std::to_string(i + 1) + "T00:00:00.000Z";
    r.result = {{"step_ms_median", 1.5}};
    r.samples = {{1.5, 0, "a", false}, {1.6, 1, "a", false}};
    r.log = {LogRow(), LogRow()};
    r.documents["plan"] = {{"a", 1}};
    store.add(r);
  }
  return folder / "runs.db";
}

}  // namespace

TEST(HostileStore, TriggersDoNotRun) {
  Folder f;
  std::string file = whole_store(f);
  raw_sql(file,
          "CREATE TRIGGER a AFTER INSERT ON samples BEGIN DELETE FROM runs WHERE id = 1; END;"
          "CREATE TRIGGER b AFTER UPDATE ON runs BEGIN UPDATE runs SET command = 'rm -rf /' WHERE id = 2; END;"
          "CREATE TRIGGER c BEFORE DELETE ON runs BEGIN SELECT RAISE(ABORT, 'kept'); END");
  Store store(file);
  RunRecord r = bench_record("new");
  store.begin(r);
  store.add_samples(r.id, {{1, 0, "a", false}});
  store.finish(r.id, r);
  EXPECT_EQ(store.load(1).name, "run 1");
  EXPECT_EQ(store.load(2).command, "crest bench --batch 8");
  store.erase(3);
  EXPECT_EQ(store.list().size(), size_t(runs)) << "one more, one less";
  EXPECT_EQ(raw_sql(file, "SELECT count(*) FROM samples WHERE run = 3"), "0") << "foreign keys still clean up";
}

TEST(HostileStore, AViewInPlaceOfATableIsRefused) {
  Folder f;
  const std::string good = whole_store(f);
  for (const char* table : {"runs", "samples", "log", "documents"})
    for (auto mode : {Store::Mode::write, Store::Mode::read}) {
      std::string file = f.write("bad.db", f.read("runs.db"));
      std::string t = table;
      raw_sql(file, "PRAGMA foreign_keys = OFF; PRAGMA legacy_alter_table = ON; ALTER TABLE " + t +
                        " RENAME TO other; CREATE VIEW " + t + " AS SELECT * FROM other");
      expect_says(error_of([&] { Store(file, mode); }), {"bad.db", "holds a view", table, "crest runs export"});
    }
}

TEST(HostileStore, ModulesAndComputedColumnsAreRefused) {
  Folder f;
  whole_store(f);
  std::string file = f.write("bad.db", f.read("runs.db"));
  raw_sql(file,
          "DROP TABLE log; CREATE TABLE log (run, number, step, loss, val_loss, lr, grad_norm, step_ms, "
          "tokens_per_second, skipped AS (length(hex(zeroblob(900000000)))))");
  expect_says(error_of([&] { Store store(file); }), {"bad.db", "'log'", "'skipped'"});
  std::string missing = f.write("missing.db", f.read("runs.db"));
  raw_sql(missing, "DROP TABLE documents");
  expect_says(error_of([&] { Store store(missing); }), {"missing.db", "'documents'", "missing"});
}

namespace {

struct BadCell {
  const char* sql;
  const char* told;  // by a list
};

}  // namespace

TEST(HostileStore, ADamagedCellDamagesOneRun) {
  for (auto [sql, told] : {BadCell{"recipe = '{\"a\": '", "recipe (line 1"},
                           {"recipe = x'7b7d'", "recipe: a blob"},
                           {"device = '17'", "device: a number"},
                           {"result = '{\"step_ms_median\": NaN}'", "result (line 1"},
                           {"result = '{\"step_ms_median\": 1e999}'", "result (line 1, column 20): not valid JSON"},
                           {"result = CAST(x'7b2261223a22ff227d' AS TEXT)", "result"},
                           {"name = zeroblob(3000000)", "name: a blob"},
                           {"name = CAST(zeroblob(3000000) AS TEXT)", "name: a text of"},
                           {"result = CAST(zeroblob(20000000) AS TEXT)", "result: JSON of"},
                           {"status = x'ff00'", "status: a blob"},
                           {"command = x'c3'", "command: a blob"}}) {
    SCOPED_TRACE(sql);
    Folder f;
    std::string file = whole_store(f);
    raw_sql(file, std::string("UPDATE runs SET ") + sql + " WHERE id = 2");
    Store store(file, Store::Mode::read);
    auto list = store.list();
    ASSERT_EQ(list.size(), size_t(runs));
    for (auto& r : list)
      if (r.id == 2) {
        ASSERT_EQ(r.damage.size(), 1u);
        EXPECT_EQ(r.damage[0].find(told), 0u) << r.damage[0];
      } else {
        EXPECT_TRUE(r.damage.empty());
        EXPECT_EQ(store.load(r.id).samples.size(), 2u);
      }
    std::string column = std::string(told).substr(0, std::string(told).find_first_of(" :"));
    expect_says(error_of([&] { store.load(2); }), {"run 2", "is damaged", column.c_str(), "runs.db", "runs delete 2"});
    for (const char* value : {"8", "nano"}) {  // a recipe other than JSON has no settings
      RunFilter filter;
      filter.settings = {{value[0] == '8' ? "batch" : "model", value}};
      EXPECT_GE(store.list(filter).size(), size_t(runs - 1));
    }
    Store(file).erase(2);
    EXPECT_EQ(store.list().size(), size_t(runs - 1));
  }
}

TEST(HostileStore, ADamagedRowOfAnotherTableNamesTheRunAndTheCell) {
  for (auto [sql, told] :
       {BadCell{"UPDATE samples SET ms = 'fast' WHERE run = 2 AND number = 1", "ms of sample 1: a text"},
        {"UPDATE samples SET contender = zeroblob(9) WHERE run = 2", "contender of sample 0: a blob"},
        {"UPDATE log SET loss = 'low' WHERE run = 2", "loss of log row 0: a text"},
        {"UPDATE log SET step = 1.5 WHERE run = 2", "step of log row 0: a number"},
        {"UPDATE documents SET json = '{' WHERE run = 2", "document plan of run 2"}}) {
    SCOPED_TRACE(sql);
    Folder f;
    std::string file = whole_store(f);
    raw_sql(file, sql);
    Store store(file, Store::Mode::read);
    EXPECT_EQ(store.list().size(), size_t(runs));
    expect_says(error_of([&] { store.load(2); }), {"run 2", told, "runs.db"});
    EXPECT_EQ(store.load(3).log.size(), 2u);
  }
}

// A value with a stated length beyond its page: SQLite calls the row damaged, the others are read.
TEST(HostileStore, ADamagedPageOfOneRunLeavesTheOthers) {
  Folder f;
  std::string file = whole_store(f);
  std::string marker = "cut here ";
  std::string long_text;
  while (long_text.size() < 200'000) long_text += marker;
  raw_sql(file, "UPDATE runs SET result = json_object('text', '" + long_text + "') WHERE id = 2");
  for (int i = 0; i < 40; ++i)  // beyond the size for a whole check on opening
    raw_sql(file, "INSERT INTO documents SELECT 1, 'pad" + std::to_string(i) + "', json_quote(hex(zeroblob(60000)))");
  raw_sql(file, "PRAGMA wal_checkpoint(TRUNCATE)");
  std::string bytes = f.read("runs.db");
  ASSERT_GT(bytes.size(), size_t(4) << 20);
  // The first four bytes of an overflow page are the number of the next one.
  size_t page = 4096, broken = 0;
  for (size_t at = 0; at + page <= bytes.size() && broken < 3; at += page)
    if (bytes.substr(at + 4, 200).find(marker) != std::string::npos && at > 0 && bytes[at] == 0) {
      bytes.replace(at, 4, "\x7f\xff\xff\xff", 4);
      ++broken;
    }
  ASSERT_GT(broken, 0u);
  f.write("runs.db", bytes);
  Store store(file, Store::Mode::read);
  auto list = store.list();
  ASSERT_EQ(list.size(), size_t(runs));
  size_t damaged = 0;
  for (auto& r : list) damaged += !r.damage.empty();
  EXPECT_EQ(damaged, 1u);
  expect_says(error_of([&] { store.load(2); }), {"run 2", "damaged"});
}

}  // namespace crest::test
