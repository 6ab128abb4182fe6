// Reports in a real browser (tests/tools/check_report.py), where there is one.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/io.h"
#include "core/temporary_folder.h"
#include "report/report.h"
#include "report/sample_runs.h"

using namespace crest;
namespace fs = std::filesystem;

namespace {

// Names as long as people make them, and longer.
std::vector<RunRecord> long_names() {
  auto runs = test::sample_runs();
  std::string name = "a name that somebody chose late at night to say all that is special about this run & <more>";
  for (auto& r : runs) {
    r.name = name + std::to_string(r.id), r.command += " --name '" + name + name + name + "'";
    r.recipe["recompute"] = r.id % 2 ? "an_unusually_long_value_of_a_setting_without_any_space_in_it" : "none";
    r.device["name"] = "A Device Whose Vendor Sells It Under A Very Long Name With Memory And Clock In It (TM)";
    r.environment["conditions"]["other_load"] = 3.0;
  }
  return runs;
}

// Runs the checker over the folder filled by `write`; its exit code, 77 without a browser.
struct Checked {
  int code = 77;
  std::string said;
};
Checked check(const std::vector<std::pair<std::string, std::string>>& pages) {
  TemporaryFolder temporary;
  fs::path folder = temporary.path();
  std::string files;
  for (auto& [name, html] : pages) {
    std::string file = (folder / (name + ".html")).string();
    write_file_atomic(file, html);
    files += " '" + file + "'";
  }
  // Selenium is more often a package of the
  // system's Python than of one earlier in PATH.
  for (std::string python : {"/usr/bin/python3", "python3"}) {
    std::string command = python + " '" + CREST_TEST_DIR + "/tools/check_report.py'" + files + " > '" +
                          (folder / "said").string() + "' 2>&1";
    int status = std::system(command.c_str());
    std::stringstream said;
    said << std::ifstream(folder / "said").rdbuf();
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (code != 77 && code != 127) return {code, said.str()};
  }
  return {};
}

const char* const no_browser =
    "no Chromium with driver and Selenium: apt-get install chromium chromium-driver python3-selenium";

std::string browser_html(const std::vector<RunRecord>& runs) { return to_html(make_report(runs).page); }

}  // namespace

TEST(Browser, FindsNothingToComplainAboutInReports) {
  Checked c = check({{"sweep", browser_html(test::sample_sweep())},
                     {"long", browser_html(long_names())},
                     {"ladder", browser_html(test::sample_ladder())}});
  if (c.code == 77) GTEST_SKIP() << no_browser;
  EXPECT_EQ(c.code, 0) << c.said;
}

TEST(Browser, FindsWhatIsWrongWithAPage) {
  Page page;
  page.title = "Broken";
  page.blocks.push_back(Figure{"Overlap",
                               "",
                               [](double width) {
                                 Svg svg(width, 100, "overlap");
                                 svg.text(20, 40, "one label");
                                 svg.text(30, 44, "over another");
                                 svg.text(width - 10, 80, "cut off at the edge");
                                 return svg;
                               },
                               {}});
  std::string html = to_html(page);
  html.insert(html.find("<main>") + 6,
              "<p style=\"width:2000px;color:#ccc\">wide</p><img src=\"http://127.0.0.1:9/x.png\"/>");
  Checked c = check({{"broken", html}});
  if (c.code == 77) GTEST_SKIP() << no_browser;
  EXPECT_EQ(c.code, 1);
  for (const char* fault : {"px wide on a screen of", "leaves the screen", "is empty", "overlap by", "is cut off",
                            "too little contrast", "refers to http://127.0.0.1", "console: "})
    EXPECT_NE(c.said.find(fault), std::string::npos) << fault << " in\n" << c.said;
}
