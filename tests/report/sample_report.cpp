// Reports over the sample runs; with CREST_SAMPLE_REPORT=FOLDER they are written there, to be
// looked at.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "core/io.h"
#include "report/report.h"
#include "report/sample_runs.h"
#include "report/xml.h"

using namespace crest;

namespace {

void write(const std::string& name, const std::vector<RunRecord>& runs) {
  Report report = make_report(runs);
  std::string html = to_html(report.page);
  EXPECT_TRUE(test::well_formed(html.substr(html.find("<html"))));
  MarkdownFiles md = to_markdown(report.page, name + "_files");
  EXPECT_FALSE(md.figures.empty());
  for (auto& [file, svg] : md.figures) {
    EXPECT_TRUE(test::well_formed(svg)) << file;
    EXPECT_NE(md.text.find(name + "_files/" + file), std::string::npos) << file;
  }
  const char* folder = std::getenv("CREST_SAMPLE_REPORT");
  if (!folder) return;
  std::filesystem::create_directories(folder);
  write_file_atomic(std::string(folder) + "/" + name + ".html", html);
  write_file_atomic(std::string(folder) + "/" + name + ".md", md.text);
  std::filesystem::create_directories(std::string(folder) + "/" + name + "_files");
  for (auto& [file, svg] : md.figures) write_file_atomic(std::string(folder) + "/" + name + "_files/" + file, svg);
}

}  // namespace

TEST(SampleReport, OfAGridWithProfilesAndATraining) { write("grid", test::sample_runs()); }
TEST(SampleReport, OfALadder) { write("ladder", test::sample_ladder()); }
TEST(SampleReport, OfASweep) { write("sweep", test::sample_sweep()); }
TEST(SampleReport, OfOneTraining) { write("training", {test::sample_training()}); }
