// Opening libraries at run time: missing ones are named, with the searched places.
#include "backend/cuda/loader.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "contains.h"
#include "core/error.h"
#include "core/temporary_folder.h"

namespace crest::cuda {
namespace {

using crest::test::contains;

namespace fs = std::filesystem;

class Loader : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder_ / "python/nvidia/one/lib");
    fs::create_directories(folder_ / "python/nvidia/two/lib");
    setenv("CREST_LIBRARIES", ("/nonexistent:" + folder_.string()).c_str(), 1);
  }
  void TearDown() override { unsetenv("CREST_LIBRARIES"); }
  TemporaryFolder temporary_;
  fs::path folder_ = temporary_.path();
};

TEST_F(Loader, GivenFoldersComeFirstAndMissingOnesAreSkipped) {
  auto folders = library_folders();
  ASSERT_FALSE(folders.empty());
  EXPECT_EQ(folders[0], folder_.string());
}

TEST_F(Loader, AMissingLibraryNamesItselfItsVersionAndThePlaces) {
  Library l = open_library("crestmissing", 42);
  EXPECT_EQ(l.handle, nullptr);
  EXPECT_TRUE(contains(l.problem, "libcrestmissing.so.42")) << l.problem;
  EXPECT_TRUE(contains(l.problem, "major version 42")) << l.problem;
  EXPECT_TRUE(contains(l.problem, folder_.string())) << l.problem;
  EXPECT_TRUE(contains(l.problem, "system's folders")) << l.problem;
  EXPECT_TRUE(contains(l.problem, "CREST_LIBRARIES")) << l.problem;
  EXPECT_THROW(symbol(l, "anything"), Error);
}

TEST_F(Loader, ManyWheelsAreToldAsOnePlace) {
  std::string wheels = (folder_ / "python/nvidia/").string();
  setenv("CREST_LIBRARIES", (wheels + "one/lib:" + wheels + "two/lib").c_str(), 1);
  Library l = open_library("crestmissing", 42);
  EXPECT_TRUE(contains(l.problem, wheels + "*/lib")) << l.problem;
  EXPECT_FALSE(contains(l.problem, wheels + "two/lib")) << l.problem;
}

TEST_F(Loader, ADamagedLibraryIsNamedWithTheReason) {
  std::ofstream(folder_ / "libcrestdamaged.so.1") << "not a library";
  Library l = open_library("crestdamaged", 1);
  EXPECT_EQ(l.handle, nullptr);
  EXPECT_TRUE(contains(l.problem, (folder_ / "libcrestdamaged.so.1").string())) << l.problem;
}

// The program's environment need not be active.
TEST_F(Loader, ThePackagesNextToTheProgramAreFound) {
  fs::path packages = folder_ / "env/lib/python3.11/site-packages", lib = packages / "nvidia/cu13/lib";
  fs::create_directories(lib);
  fs::create_directories(packages / "crest/bin");
  std::vector<std::string> expected = {lib.string()};
  EXPECT_EQ(folders_beside(folder_ / "env/bin/crest"), expected);
  EXPECT_TRUE(folders_beside(packages / "crest/bin/crest").empty());  // an unpacked archive of anybody
  std::ofstream(packages / "crest/__init__.py") << "";
  EXPECT_EQ(folders_beside(packages / "crest/bin/crest"), expected);
  EXPECT_TRUE(folders_beside("").empty());
}

// In a separate process, since opened libraries stay open.
TEST_F(Loader, ANamedLibraryIsTakenFromThereOrNotAtAll) {
  Library system = open_library("m", 6);
  if (!system.handle) GTEST_SKIP() << "this system has no libm.so.6";
  fs::path mine = folder_ / "libm.so.6";
  fs::create_symlink(fs::canonical(system.path), mine);
  auto child = [&] {
    auto path_with = [](const fs::path& named) {
      choose_libraries({{}, {{"m", named.string()}}});
      return open_library("m", 6);
    };
    if (path_with(folder_).path != mine.string() || path_with(mine).path != mine.string()) _exit(1);
    fs::path empty = folder_ / "python";
    Library absent = path_with(empty);
    _exit(!absent.handle && contains(absent.problem, (empty / "libm.so.6").string()) ? 0 : 2);
  };
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(child(), testing::ExitedWithCode(0), "");
}

TEST_F(Loader, TheSystemsLibrariesAreFoundAndMissingFunctionsNamed) {
  Library l = open_library("m", 6);
  if (!l.handle) GTEST_SKIP() << "this system has no libm.so.6";
  EXPECT_TRUE(contains(l.path, "libm.so.6")) << l.path;
  auto cosine = reinterpret_cast<double (*)(double)>(symbol(l, "cos"));
  EXPECT_EQ(cosine(0.0), 1.0);
  try {
    symbol(l, "no_such_function");
    FAIL() << "a missing function was not noticed";
  } catch (const Error& e) {
    EXPECT_TRUE(contains(e.problem(), "no_such_function"));
    EXPECT_EQ(e.where(), l.path);
  }
}

// In a separate process, since opened libraries stay open.
TEST_F(Loader, PreferredFoldersComeBeforeTheEnvironmentAndBeforeTheFirstLibrary) {
  auto child = [&] {
    auto must = [](bool good) {
      if (!good) _exit(1);
    };
    fs::path mine = folder_ / "python/nvidia/one/lib";
    choose_libraries({{mine.string()}, {}});
    auto folders = library_folders();
    must(folders.size() >= 2 && folders[0] == mine.string() && folders[1] == folder_.string());
    must(contains(library("crestmissing", 3).problem, (folder_ / "python/nvidia/*/lib").string()));
    choose_libraries({{mine.string()}, {}});  // the same again is no change
    try {
      choose_libraries({{folder_.string()}, {}});
    } catch (const Error& e) {
      must(e.code() == Exit::usage && contains(e.where(), "--libraries"));
      _exit(0);
    }
    _exit(2);
  };
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(child(), testing::ExitedWithCode(0), "");
}

TEST_F(Loader, IsOpenedOncePerProcess) { EXPECT_EQ(&library("crestmissing", 1), &library("crestmissing", 1)); }

}  // namespace
}  // namespace crest::cuda
