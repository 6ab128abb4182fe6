// Where crest looks for libraries. An empty entry stands for the current folder: whoever can write
// there would decide what crest runs.
#include <gtest/gtest.h>

#include <sstream>

#include "crest_binary.h"
#include "host/external.h"

using namespace crest;

TEST(LibraryPath, NamesNoFolderButItsOwn) {
  CommandOutput headers = run_command(std::string("readelf -d '") + crest::test::crest_binary() + "'");
  ASSERT_NE(headers.out.find("(NEEDED)"), std::string::npos) << headers.out << headers.err;
  std::istringstream lines(headers.out);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("PATH)") == std::string::npos) continue;
    size_t begin = line.find('['), end = line.find(']');
    ASSERT_TRUE(begin != std::string::npos && end != std::string::npos) << line;
    std::istringstream entries(line.substr(begin + 1, end - begin - 1) + ":");
    for (std::string entry; std::getline(entries, entry, ':');) EXPECT_TRUE(entry.starts_with("$ORIGIN/")) << line;
  }
}
