// The release archive runs after unpacking in another place, with an empty environment and only
// glibc from the system.
#include "cli/run.h"

using namespace crest::test;
namespace fs = std::filesystem;

TEST(Dist, RunsElsewhere) {
  fs::path build = fs::path(crest_binary()).parent_path();
  for (const char* tool : {"cmake", "ldd", "objdump", "readelf", "strip", "tar", "gzip"})
    if (std::system((std::string("command -v ") + tool + " > /dev/null").c_str()) != 0)
      GTEST_SKIP() << tool << " is not installed";
  if (!fs::exists(build / "cmake_install.cmake")) GTEST_SKIP() << build << " is no build folder";
  TempFolder folder;
  std::string script = fs::path(CREST_TEST_DIR) / "tools" / "check_dist.sh", out = folder / "out";
  std::string command = "sh '" + script + "' --once --build '" + build.string() + "' > '" + out + "' 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0) << folder.read("out");
}
