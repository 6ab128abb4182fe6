// The pages of crest watch over a database that another connection writes.
#include <nlohmann/json.hpp>

#include "store/files.h"
#include "watch/watch.h"

namespace crest::test {

namespace {

class Watching : public testing::Test {
 protected:
  Folder folder_;
  std::string file_ = folder_ / "runs.db";
  Store store_{file_};

  int64_t begin(const std::string& name, int64_t rows, double loss = 5) {
    RunRecord r = bench_record(name);
    r.kind = "train", r.phase = "", r.folder = folder_ / name;
    const int64_t id = store_.begin(r);
    add(id, rows, loss);
    return id;
  }
  void add(int64_t id, int64_t rows, double loss = 5) {
    std::vector<LogRow> list{size_t(rows), LogRow()};
    for (size_t i = 0; i < list.size(); ++i) {
      list[i].step = int64_t(i) + 1, list[i].loss = loss, list[i].lr = 1e-3, list[i].step_ms = 10;
      list[i].wait_ms = 1, list[i].tokens_per_second = 1e5;
    }
    if (!list.empty()) list.back().val_loss = loss + 1;
    store_.add_log(id, list);
  }
  static HttpResponse get(WatchPages& pages, const std::string& address) {
    HttpRequest request;
    const size_t question = std::min(address.find('?'), address.size());
    request.path = address.substr(0, question);
    request.query = parse_query(address.substr(std::min(question + 1, address.size())));
    return pages.answer(request);
  }
  static Json json(WatchPages& pages, const std::string& address) {
    HttpResponse r = get(pages, address);
    EXPECT_EQ(r.status, 200) << address << ": " << r.body;
    return Json::parse(r.body);
  }
};

}  // namespace

TEST_F(Watching, PageLoadsNothingFromElsewhere) {
  const int64_t id = begin("a", 3);
  WatchPages pages(file_, {id});
  HttpResponse page = get(pages, "/");
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.type, "text/html; charset=utf-8");
  EXPECT_NE(page.body.find("firstRuns = [" + std::to_string(id) + "]"), std::string::npos);
  EXPECT_EQ(page.body.find("{{"), std::string::npos) << "all marks are replaced";
  const size_t nonce = page.policy.find("'nonce-") + 7;
  EXPECT_NE(page.body.find("<script nonce=\"" + page.policy.substr(nonce, 16) + "\">"), std::string::npos)
      << page.policy;
  for (const char* other : {"src=\"", "@import", "url(http", "https://"})
    EXPECT_EQ(page.body.find(other), std::string::npos) << other;
  EXPECT_EQ(get(pages, "/etc/passwd").status, 404);
}

TEST_F(Watching, ListsRunsWithALog) {
  RunRecord bench = bench_record("no training");
  store_.begin(bench);
  const int64_t a = begin("<b>first</b>", 3), b = begin("second", 5);
  RunRecord end;
  end.status = "done", end.result = {{"step", 3}, {"loss", 5.0}};
  store_.finish(a, end);
  WatchPages pages(file_);
  Json runs = json(pages, "/api/runs");
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0]["id"], b);
  EXPECT_EQ(runs[0]["status"], "running");
  EXPECT_EQ(runs[1]["name"], "<b>first</b>") << "text, which the page does not read as HTML";
  EXPECT_EQ(runs[1]["status"], "done");
  EXPECT_EQ(runs[1]["loss"], 5.0);
  EXPECT_EQ(runs[1]["model"], "nano");
}

TEST_F(Watching, CurvesAreReadOnlyWhenTheDatabaseChanged) {
  const int64_t a = begin("a", 1000), b = begin("b", 10);
  WatchPages pages(file_);
  auto both = [&](const std::string& version) {
    return "/api/curves?points=100&run=" + std::to_string(a) + "&run=" + std::to_string(b) + "&version=" + version;
  };
  Json first = json(pages, both(""));
  ASSERT_EQ(first["curves"].size(), 2u);
  const Json long_run = first["curves"][0], short_run = first["curves"][1];
  EXPECT_EQ(long_run["run"], a);
  EXPECT_EQ(long_run["rows"], 1000);
  EXPECT_EQ(long_run["rows_per_point"], 16);
  EXPECT_EQ(long_run["step"].size(), 63u);
  EXPECT_EQ(long_run["loss_low"].size(), 63u);
  EXPECT_EQ(long_run["val_loss"].back(), 6.0);
  EXPECT_FALSE(long_run.contains("watts")) << "no row has it";
  EXPECT_EQ(short_run["step"], Json({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
  EXPECT_FALSE(short_run.contains("loss_low")) << "a point is one row";
  const std::string version = first["version"];
  HttpResponse same = get(pages, both(version));
  EXPECT_EQ(same.status, 204);
  EXPECT_TRUE(same.body.empty());
  EXPECT_EQ(get(pages, both("of an earlier server")).status, 200);

  add(b, 2, 4);
  Json more = json(pages, "/api/curves?points=100&version=" + version + "&run=" + std::to_string(b) +
                              ":1:10:" + short_run["writer"].get<std::string>());
  EXPECT_NE(more["version"], version);
  EXPECT_EQ(more["curves"][0]["index"], Json({9, 10, 11})) << "the last known point and the new ones";
  EXPECT_EQ(more["curves"][0]["loss"], Json({5.0, 4.0, 4.0}));
}

TEST_F(Watching, SamplesAppearAsTheyAreWritten) {
  const int64_t id = begin("a", 1);
  WatchPages pages(file_);
  const std::string address = "/api/samples?run=" + std::to_string(id);
  EXPECT_EQ(json(pages, address)["text"], "");
  std::filesystem::create_directory(folder_ / "a");
  folder_.write("a/samples.txt", "--- step 10\nOnce \xFF\n");
  Json first = json(pages, address);
  EXPECT_EQ(first["text"], "--- step 10\nOnce \xEF\xBF\xBD\n");
  EXPECT_EQ(first["size"], 19);
  std::ofstream(folder_ / "a/samples.txt", std::ios::app) << "--- step 20\nupon\n";
  EXPECT_EQ(json(pages, address + "&from=19")["text"], "--- step 20\nupon\n");
  folder_.write("a/samples.txt", "--- step 1\n");
  EXPECT_EQ(json(pages, address + "&from=36")["text"], "--- step 1\n") << "a resumed run writes the file again";
  std::filesystem::remove(folder_ / "a/samples.txt");
  std::filesystem::create_symlink("/etc/passwd", folder_ / "a/samples.txt");
  EXPECT_EQ(get(pages, address).status, 500);
  EXPECT_EQ(get(pages, address).body.find("root:"), std::string::npos);
}

TEST_F(Watching, ReportsAndComparesRuns) {
  const std::string a = std::to_string(begin("first", 30)), b = std::to_string(begin("second", 30, 3));
  WatchPages pages(file_);
  HttpResponse report = get(pages, "/report?run=" + a + "&run=" + b);
  ASSERT_EQ(report.status, 200) << report.body;
  EXPECT_NE(report.body.find("<svg"), std::string::npos);
  EXPECT_EQ(report.body.find("<script"), std::string::npos);
  HttpResponse compared = get(pages, "/compare?run=" + a + "&run=" + b);
  ASSERT_EQ(compared.status, 200) << compared.body;
  EXPECT_NE(compared.body.find("loss"), std::string::npos) << compared.body;
  EXPECT_EQ(get(pages, "/compare?run=" + a).status, 400);
  EXPECT_EQ(get(pages, "/report").status, 400);
  EXPECT_EQ(get(pages, "/report?run=x").status, 400);
  EXPECT_EQ(get(pages, "/report?run=999").status, 500);
  EXPECT_NE(get(pages, "/report?run=999").body.find("no run 999"), std::string::npos);
}

TEST_F(Watching, WritesNothing) {
  begin("a", 100);
  WatchPages pages(file_);
  const int64_t before = store_.version();
  for (const char* address : {"/", "/api/runs", "/api/curves?run=1", "/report?run=1"})
    EXPECT_EQ(get(pages, address).status, 200);
  EXPECT_EQ(store_.version(), before);
  EXPECT_THROW(WatchPages(folder_ / "absent.db"), Error);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "absent.db"));
}

}  // namespace crest::test
