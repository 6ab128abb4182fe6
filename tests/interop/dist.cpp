// The release archive runs after unpacking in another place, with an empty environment and only
// glibc, libstdc++ and libgcc_s from the system. Its symbols are no newer than Ubuntu 22.04's.
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

TEST(Dist, AWheelRunsInAnEnvironmentThatIsNotActivated) {
  for (const char* tool : {"python3 -m pip", "python3 -m venv -h", "ldd", "objdump", "strip", "nm"})
    if (std::system((std::string("command ") + tool + " --help > /dev/null 2>&1").c_str()) != 0)
      GTEST_SKIP() << tool << " is not there";
  TempFolder folder;
  std::string tests = CREST_TEST_DIR, out = folder / "out", wheel = folder / "wheel";
  std::string make =
      "WHEEL_LEVEL=0 python3 '" + tests + "/../scripts/wheel.py' '" + crest_binary() + "' '" + wheel + "'";
  std::string check = "sh '" + tests + "/tools/check_wheel.sh' '" + wheel + "'/*.whl";
  std::string command = "(. '" + tests + "/tools/limits.sh'; " + make + " && " + check + ") > '" + out + "' 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0) << folder.read("out");
}
