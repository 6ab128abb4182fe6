// Export and import: whole records from machine to machine. Nothing is imported from damaged files.
#include "store/export.h"

#include <cmath>

#include "core/random.h"
#include "core/text.h"
#include "store/files.h"
#include "store/record_json.h"

namespace crest::test {

namespace {

std::string exported(const Store& store, const std::vector<int64_t>& ids) {
  std::string text;
  write_export(store, ids, [&](std::string_view line) { text += line; });
  return text;
}

class Export : public testing::Test {
 protected:
  Folder folder_;
  Store from_{folder_ / "from.db"}, to_{folder_ / "to.db"};

  // Two runs with everything possible.
  std::string sample() {
    RunRecord a = bench_record("first \xC3\xBC <b>\x1b[31m");
    a.status = "done", a.folder = folder_ / "run", a.finished = "2026-01-31T12:00:00.000Z", a.grid = "g";
    a.result = {{"step_ms_median", 1.25}}, a.environment_after = {{"x", nullptr}};
    a.samples = {{1.5, 0, "a", true}, {NAN, 1, "", false}};
    LogRow row;
    row.step = int64_t(1) << 40, row.loss = 1e-300, row.lr = 0.1;
    a.log = {row, LogRow()};
    a.documents = {{"plan", {{"z", 1}, {"a", {1, 2}}}}, {"profile", {{"instrs", Json::array()}}}};
    RunRecord b = bench_record("second");
    b.status = "failed", b.error = "line\nbreak, \"quotes\"";
    return exported(from_, {from_.add(a), from_.add(b)});
  }
  Store::Added import_text(const std::string& text) {
    LineReader lines(folder_.write("in.jsonl", text), export_line_limit);
    return import_export(to_, lines);
  }
  // Importing fails with these words, and nothing is imported.
  void expect_refused(const std::string& text, std::initializer_list<const char*> said) {
    std::string error = error_of([&] { import_text(text); });
    expect_says(error, said);
    expect_says(error, {"in.jsonl"});
    EXPECT_TRUE(to_.list().empty()) << "nothing of a damaged file is imported";
  }
};

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return at == std::string::npos ? text : text.replace(at, what.size(), by);
}

}  // namespace

TEST_F(Export, CarriesWholeRuns) {
  std::string text = sample();
  auto added = import_text(text);
  ASSERT_EQ(added.ids.size(), 2u);
  RunRecord before = from_.load(1), after = to_.load(added.ids[0]);
  EXPECT_EQ(after.imported_from, folder_ / "in.jsonl");
  before.imported_from = after.imported_from;
  EXPECT_EQ(run_to_json(after).dump(), run_to_json(before).dump());
  EXPECT_EQ(after.documents, before.documents);
  EXPECT_EQ(after.documents.at("plan").dump(), before.documents.at("plan").dump());
  ASSERT_EQ(after.samples.size(), 2u);
  EXPECT_EQ(after.samples[0].ms, 1.5);
  EXPECT_TRUE(after.samples[0].throttled);
  EXPECT_TRUE(std::isnan(after.samples[1].ms));
  ASSERT_EQ(after.log.size(), 2u);
  EXPECT_EQ(after.log[0].step, int64_t(1) << 40);
  EXPECT_EQ(after.log[0].loss, 1e-300);
  EXPECT_TRUE(std::isnan(after.log[0].val_loss));
  EXPECT_EQ(to_.load(added.ids[1]).error, "line\nbreak, \"quotes\"");
  // The second time they are known; exported again from here, the file is the same except for its
  // date.
  EXPECT_EQ(import_text(text).known, 2);
  EXPECT_EQ(to_.list().size(), 2u);
}

TEST_F(Export, OfARunningRunIsLostElsewhere) {
  RunRecord r = bench_record("open");
  from_.begin(r);
  auto added = import_text(exported(from_, {r.id}));
  EXPECT_EQ(to_.load(added.ids.at(0)).status, "lost");
}

TEST_F(Export, ManySamplesGoThroughShortLines) {
  RunRecord r = bench_record("long");
  r.status = "done", r.samples.resize(50'000), r.log.resize(20'000);
  for (size_t i = 0; i < r.samples.size(); ++i) r.samples[i].ms = double(i) / 7, r.samples[i].round = int(i);
  for (size_t i = 0; i < r.log.size(); ++i) r.log[i].step = int64_t(i), r.log[i].loss = double(i) / 3;
  std::string text = exported(from_, {from_.add(r)});
  for (auto& line : split(text, '\n')) ASSERT_LT(line.size(), 1u << 20);
  RunRecord back = to_.load(import_text(text).ids.at(0));
  ASSERT_EQ(back.samples.size(), r.samples.size());
  ASSERT_EQ(back.log.size(), r.log.size());
  for (size_t i = 0; i < r.samples.size(); ++i) ASSERT_EQ(back.samples[i].ms, r.samples[i].ms);
  for (size_t i = 0; i < r.log.size(); ++i) ASSERT_EQ(back.log[i].loss, r.log[i].loss);
}

TEST_F(Export, DamageIsNamedByItsLine) {
  std::string text = sample();
  auto lines = split(text, '\n');
  EXPECT_EQ(lines.at(1).find("{\"type\":\"run\""), 0u);
  expect_refused("", {"is truncated"});
  expect_refused("{\"type\":\"header\"}\n", {"line 1", "header"});
  expect_refused(replaced(text, "\"version\":2", "\"version\":3"), {"newer Crest"});
  expect_refused(replaced(text, "\"version\":2", "\"version\":\"2\""), {"line 1", "version"});
  expect_refused(replaced(text, "\"status\":\"done\"", "\"status\":\"fine\""), {"line 2", "fine"});
  expect_refused(replaced(text, "\"status\":\"done\"", "\"status\":7"), {"line 2", "status", "not a string"});
  expect_refused(replaced(text, "\"name\":", "\"nome\":"), {"line 2", "'name'"});
  expect_refused(replaced(text, "\"uid\":\"", "\"uid\":\"x"), {"line 2", "uid"});
  expect_refused(replaced(text, "\"finished\":\"2026-01-31T12", "\"finished\":\"yesterday 12"), {"line 2", "finished"});
  expect_refused(replaced(text, "\"recipe\":{", "\"recipe\":7,\"x\":{"), {"line 2", "recipe"});
  expect_refused(replaced(text, "[1.5,0,\"a\",true]", "[1.5,0,\"a\",1]"), {"line 3", "throttled"});
  expect_refused(replaced(text, "[1.5,0,\"a\",true]", "[1.5,0.5,\"a\",true]"), {"line 3", "round"});
  expect_refused(replaced(text, "[1.5,0,\"a\",true]", "[1.5,-1,\"a\",true]"), {"line 3", "round"});
  expect_refused(replaced(text, "[1.5,0,\"a\",true]", "[1.5,4000000000,\"a\",true]"), {"line 3", "round"});
  expect_refused(replaced(text, "[1.5,0,\"a\",true]", "[\"1.5\",0,\"a\",true]"), {"line 3", "ms"});
  expect_refused(replaced(text, "[1.5,0,\"a\",true]", "[1e999,0,\"a\",true]"), {"line 3"});
  expect_refused(replaced(text, "[1.5,0,\"a\",true]", "[1.5,0,\"a\"]"), {"line 3", "4 values"});
  expect_refused(replaced(text, "[1.5,0,\"a\",true]", "NaN"), {"line 3", "JSON"});
  expect_refused(replaced(text, "{\"type\":\"samples\",\"rows\"", "{\"type\":\"samples\",\"raws\""),
                 {"line 3", "rows"});
  expect_refused(replaced(text, "[1099511627776,", "[-1,"), {"line 4", "step"});
  expect_refused(replaced(text, "[1099511627776,", "[18446744073709551615,"), {"line 4", "step"});
  expect_refused(replaced(text, "\"name\":\"profile\"", "\"name\":\"plan\""), {"line 6", "duplicate document"});
  expect_refused(replaced(text, "{\"type\":\"document\"", "{\"type\":\"movie\""), {"line 5", "movie"});
  expect_refused(replaced(text, "{\"type\":\"end\",\"runs\":2}", "{\"type\":\"end\",\"runs\":3}"), {"number of runs"});
  expect_refused(text.substr(0, text.rfind("{\"type\":\"end\"")), {"is truncated"});
  expect_refused(text.substr(0, text.find("\"rows\"") + 10), {"the JSON text is incomplete"});
  expect_refused(text + "{}\n", {"after the end"});
  expect_refused(lines[0] + "\n" + lines[2] + "\n", {"line 2", "no run"});
  expect_refused(lines[0] + "\n" + lines[1] + "\n" + lines[1] + "\n{\"type\":\"end\",\"runs\":2}\n", {"line 3", "uid"});
  expect_refused(replaced(text, "\"z\":1", "\"z\":" + std::string(200, '[') + std::string(200, ']')),
                 {"line 5", "nested"});
  std::string keys;
  for (int i = 0; i < 30'000; ++i) keys += "\"k" + std::to_string(i) + "\":1,";
  expect_refused(replaced(text, "\"z\":1", keys + "\"z\":1"), {"line 5", "keys"});
  EXPECT_EQ(import_text(text).ids.size(), 2u) << "the undamaged text is fine";
}

// Bytes changed, lines left out, doubled or swapped: imported whole or refused with a line, never
// anything else.
TEST_F(Export, MutatedTexts) {
  std::string text = sample();
  int taken = 0, refused = 0;
  for (uint64_t i = 0; i < 400; ++i) {
    std::string bad = text;
    auto random = [&](uint64_t n, uint64_t below) { return size_t(random_bits(7, i, n) % below); };
    for (size_t change = 0; change <= random(0, 3); ++change) {
      size_t at = random(1 + 4 * change, bad.size()), kind = random(2 + 4 * change, 5);
      static const std::string odd = "{}[]\",:0-e.x\\\n\0\xff";
      if (kind == 0) bad[at] = odd[random(3, odd.size())];
      if (kind == 1) bad.erase(at, 1 + random(3, 40));
      if (kind == 2) bad.insert(at, std::string(1 + random(3, 5), odd[random(4, odd.size())]));
      if (kind == 3) bad.insert(at, bad.substr(random(3, bad.size()), 60));
      if (kind == 4) bad[at] = char(random(3, 256));
    }
    try {
      auto added = import_text(bad);
      ++taken;
      for (int64_t id : added.ids) to_.load(id), to_.erase(id);
    } catch (const Error& e) {
      ++refused;
      EXPECT_NE(std::string(e.what()).find("in.jsonl"), std::string::npos) << e.what();
    }
    ASSERT_TRUE(to_.list().empty());
  }
  EXPECT_GT(refused, 150);
  EXPECT_GT(taken, 15) << "changes within texts do no harm";
}

TEST(Lines, AreReadWhateverTheirEnds) {
  Folder f;
  std::string longer(700'000, 'y');
  LineReader lines(f.write("lines", "a\r\n\n" + longer + "\nlast"), 1 << 20);
  std::string line;
  ASSERT_TRUE(lines.next(line));
  EXPECT_EQ(line, "a");
  lines.unread(line);
  ASSERT_TRUE(lines.next(line));
  EXPECT_EQ(line, "a");
  EXPECT_EQ(lines.number(), 1);
  ASSERT_TRUE(lines.next(line));
  EXPECT_EQ(line, "");
  ASSERT_TRUE(lines.next(line));
  EXPECT_EQ(line, longer);
  ASSERT_TRUE(lines.next(line));
  EXPECT_EQ(line, "last");
  EXPECT_EQ(lines.number(), 4);
  EXPECT_FALSE(lines.next(line));
  LineReader limited(f.write("long", std::string(3 << 20, 'x')), 1 << 20);
  expect_says(error_of([&] { limited.next(line); }), {"line 1", "1.00 MiB"});
  expect_says(error_of([&] { LineReader(f / "missing", 10); }), {"missing"});
}

}  // namespace crest::test
