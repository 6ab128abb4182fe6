// crest report: from recorded runs to files.
#include <filesystem>

#include "cli/run.h"

using namespace crest::test;
namespace fs = std::filesystem;

namespace {

const std::vector<std::string> measurement = {"--model", "nano",      "--batch", "1",       "--seq",
                                              "16",      "--samples", "6",       "--no-mfu"};

RunResult in(const TempFolder& folder, std::vector<std::string> arguments) {
  return run_crest(arguments, {.folder = folder.path().string()});
}

RunResult bench_into(const TempFolder& folder, std::vector<std::string> more) {
  std::vector<std::string> arguments = {"bench"};
  arguments.insert(arguments.end(), measurement.begin(), measurement.end());
  arguments.insert(arguments.end(), more.begin(), more.end());
  RunResult r = in(folder, arguments);
  EXPECT_EQ(r.code, 0) << r.err;
  return r;
}

}  // namespace

TEST(ReportCommand, OfAGridAndOfARunWithMarkupInItsName) {
  TempFolder folder;
  bench_into(folder, {"--precision", "fp32", "--attention", "naive,flash"});
  bench_into(folder, {"--precision", "fp32", "--attention", "flash", "--fusion", "off", "--recompute", "pointwise",
                      "--name", "<b>night & day</b>"});
  RunResult r = in(folder, {"report", "--grid", "latest", "<b>night & day</b>", "-o", "report.html", "-o", "report.md",
                            "--title", "A <i>title</i>"});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_NE(r.out.find("3 recipes"), std::string::npos) << r.out;  // is the fastest, or has no clear winner
  std::string html = folder.read("report.html"), markdown = folder.read("report.md");
  EXPECT_NE(html.find("A &lt;i&gt;title&lt;/i&gt;"), std::string::npos);
  EXPECT_NE(html.find("naive attention"), std::string::npos);
  EXPECT_EQ(html.find("<b>night"), std::string::npos);
  // Only in the command to repeat it, a block of code.
  EXPECT_EQ(markdown.find("<b>night"), markdown.find("--name '<b>night") + 8);
  EXPECT_EQ(markdown.find("<b>night"), markdown.rfind("<b>night"));
  EXPECT_TRUE(fs::exists(folder / "report_files/figure-01.svg"));

  RunResult json = in(folder, {"report", "--kind", "bench", "--json"});
  ASSERT_EQ(json.code, 0) << json.err;
  auto document = json.json();
  EXPECT_EQ(document["groups"][0]["rows"].size(), 3u);
  EXPECT_EQ(document["runs"].size(), 3u);
  EXPECT_EQ(document["groups"][0]["varying"], (nlohmann::json{"attention", "fusion"}));

  // An export stands for its runs, the same as in the store.
  ASSERT_EQ(in(folder, {"runs", "export", "--all", "-o", "runs.jsonl"}).code, 0);
  auto both = in(folder, {"report", "runs.jsonl", "1", "--json"}).json();
  EXPECT_EQ(both["runs"].size(), 3u);
  EXPECT_EQ(both["summary"], document["summary"]);

  // A report replaces a report, and nothing else.
  EXPECT_EQ(in(folder, {"report", "1", "-o", "report.html"}).code, 0);
  EXPECT_EQ(in(folder, {"report", "1", "-o", "plain.md", "--no-figures"}).code, 0);
  EXPECT_FALSE(fs::exists(folder / "plain_files"));
  folder.write("notes.md", "my notes");
  RunOptions here{.folder = folder.path().string()};
  expect_error({"report", "1", "-o", "notes.md"}, 1, {"notes.md", "--overwrite"}, here);
  EXPECT_EQ(folder.read("notes.md"), "my notes");
  EXPECT_EQ(in(folder, {"report", "1", "-o", "notes.md", "--overwrite"}).code, 0);

  expect_error({"report", "-o", "r.html"}, 2, {"no runs were given", "--grid latest"}, here);
  expect_error({"report", "1"}, 2, {"no output file given", "-o report.html"}, here);
  expect_error({"report", "1", "-o", "r.pdf"}, 2, {"r.pdf", ".html or .md"}, here);
  expect_error({"report", "<b>night & dya</b>", "-o", "r.html"}, 1, {"night & day"}, here);
  expect_error({"report", "--grid", "nonsense", "-o", "r.html"}, 1, {"no grid 'nonsense'"}, here);
  expect_error({"report", "--kind", "brench", "-o", "r.html"}, 2, {"bench"}, here);
  expect_error({"report", "1", "-o", "no/such/folder/r.html"}, 1, {"no/such/folder/r.html"}, here);
  EXPECT_FALSE(fs::exists(folder / "r.html"));
}

// "Reformat my terminal.txt into a technical report": the lines of the document that asks for it.
TEST(ReportCommand, OfATableOfResultsInAText) {
  TempFolder folder;
  folder.write("terminal.txt",
               "A) Baseline FP32 (no TF32)\n"
               "B16:  dt 340 ms   48 k tok/s   39 GB\n"
               "B32:  dt 670 ms   49 k tok/s   77 GB   (OOM on H100)\n"
               "B) FP32 + TF32 enabled\n"
               "B16:  dt 133 ms   123 k tok/s  42 GB   (+2.6x throughput)\n"
               "B64:  crashed\n");
  RunResult imported = in(folder, {"runs", "import", "terminal.txt", "--json"});
  ASSERT_EQ(imported.code, 0) << imported.err;
  auto told = imported.json()[0];
  EXPECT_EQ(told["rows"], 3);
  EXPECT_EQ(told["out_of_memory"], 1);
  EXPECT_EQ(told["unreadable_lines"], 1);
  for (const char* part :
       {"3 results of 6 lines, 1 out of memory", "line 6: B64:  crashed", "crest report --grid latest"})
    EXPECT_NE(imported.err.find(part), std::string::npos) << part << imported.err;
  RunResult r = in(folder, {"report", "--grid", "latest", "-o", "report.md", "--json"});
  ASSERT_EQ(r.code, 0) << r.err;
  auto rows = r.json()["groups"][0]["rows"];
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_TRUE(rows[1]["out_of_memory"].get<bool>()) << rows;
  EXPECT_EQ(rows[2]["step_ms_median"], 133);
  const std::string page = folder.read("report.md");
  for (const char* part : {"2.56 times", "out of memory, but the text also gives a time", "line 6: B64:  crashed",
                           "only differences above 10% count", "B) FP32 + TF32 enabled"})
    EXPECT_NE(page.find(part), std::string::npos) << part << page;
  EXPECT_EQ(page.find("--variant"), std::string::npos) << page;
  // The file itself, without a store.
  TempFolder other;
  other.write("terminal.txt", folder.read("terminal.txt"));
  RunResult direct = in(other, {"report", "terminal.txt", "--json"});
  ASSERT_EQ(direct.code, 0) << direct.err;
  EXPECT_EQ(direct.json()["groups"][0]["rows"], rows);
}

TEST(ReportCommand, WithoutAStoreSaysWhatToDo) {
  TempFolder folder;
  expect_error({"report", "1", "-o", "r.html"}, 1, {"crest.db"}, {.folder = folder.path().string()});
}
