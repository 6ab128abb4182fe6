// Crest's messages about machines with an unusable GPU: no GPU is needed.
#include "backend/cuda/discover.h"
#include "contains.h"

#include <gtest/gtest.h>

namespace crest::cuda {
namespace {

using crest::test::contains;

TEST(Discover, NoDriver) {
  Found f = judge({.driver = 0, .runtime = 13000, .error = "CUDA driver version is insufficient"});
  EXPECT_TRUE(contains(f.problem, "no NVIDIA driver") && contains(f.problem, "libcuda.so.1")) << f.problem;
  EXPECT_TRUE(contains(f.advice, "Install the NVIDIA driver") && contains(f.advice, "--device cpu")) << f.advice;
  EXPECT_FALSE(f.outdated);
}

TEST(Discover, ADriverThatIsTooOldIsNamedWithWhatIsNeeded) {
  Found f = judge({.driver = 12020, .runtime = 13010, .error = "CUDA driver version is insufficient"});
  EXPECT_TRUE(contains(f.problem, "12.2") && contains(f.problem, "13.0")) << f.problem;
  EXPECT_TRUE(contains(f.advice, "Update the driver")) << f.advice;
  EXPECT_TRUE(f.outdated);
}

TEST(Discover, NoGpu) {
  for (DriverAnswer a : {DriverAnswer{.driver = 13000, .runtime = 13000, .error = "no CUDA-capable device is detected"},
                         DriverAnswer{.driver = 13000, .runtime = 13000}}) {
    Found f = judge(a);
    EXPECT_TRUE(contains(f.problem, "no GPU") && contains(f.problem, a.error)) << f.problem;
    EXPECT_TRUE(contains(f.advice, "CUDA_VISIBLE_DEVICES")) << f.advice;
  }
}

TEST(Discover, AGoodAnswerIsNoProblem) {
  // A driver runs builds of all minor versions of its major version, and older builds.
  for (int runtime : {12080, 13000, 13020})
    EXPECT_EQ(judge({.driver = 13000, .runtime = runtime, .devices = 1}).problem, "") << runtime;
}

TEST(Discover, AGpuThatThisBuildHasNoKernelsFor) {
  for (int sm : {80, 86, 89, 90, 100, 120}) EXPECT_EQ(no_code_for(sm, "80,89,90a"), "") << sm;
  for (int sm : {70, 75}) {
    std::string why = no_code_for(sm, "80,89,90a");
    EXPECT_TRUE(contains(why, std::to_string(sm / 10) + ".") && contains(why, "8.0, 8.9, 9.0")) << why;
  }
  EXPECT_EQ(no_code_for(103, "80,90"), "") << "the PTX of the oldest one";
  EXPECT_NE(no_code_for(100, "90a"), "") << "it has no PTX";
  EXPECT_NE(no_code_for(90, "100"), "");
  EXPECT_NE(no_code_for(80, "90a"), "");
}

TEST(Discover, AGpuThatRunsPtxIsTold) {
  const char* archs = "80,89,90a,100,120";
  for (int sm : {80, 86, 89, 90, 100, 103, 120, 121}) EXPECT_EQ(ptx_note(sm, archs), "") << sm;
  EXPECT_TRUE(contains(ptx_note(110, archs), "no kernels for compute capability 11.0"));
  EXPECT_TRUE(contains(ptx_note(90, "80,89"), "9.0"));
  EXPECT_TRUE(contains(ptx_note(103, "80,90a"), "10.3"));
  EXPECT_EQ(ptx_note(75, archs), "") << "it is refused";
}

TEST(Discover, MissingLibrariesAreALineEach) {
  Library missing{nullptr, "", "no usable libcudnn.so.9 (library cudnn, major version 9): not there. Looked in /a."};
  int something = 0;
  Library there{&something, "/a/libnvrtc.so.13", ""};
  std::string note = note_of({{"cuDNN", missing, "attention is slower"}, {"NVRTC", there, "x"}, {"Y", missing, "y"}});
  EXPECT_TRUE(contains(note, "cuDNN is missing: attention is slower. no usable libcudnn.so.9")) << note;
  EXPECT_FALSE(contains(note, "NVRTC")) << note;
  EXPECT_EQ(std::count(note.begin(), note.end(), '\n'), 1) << note;
  EXPECT_EQ(note_of({{"NVRTC", there, "x"}}), "");
}

TEST(Discover, EveryLibraryIsOpenOrSaysWhyNot) {
  for (auto& l : used_libraries()) {
    SCOPED_TRACE(l.name);
    EXPECT_NE(l.library.handle == nullptr, l.library.problem.empty());
    if (!l.library.handle) {
      EXPECT_TRUE(contains(l.library.problem, "major version")) << l.library.problem;
      EXPECT_TRUE(contains(l.library.problem, "Looked in")) << l.library.problem;
      EXPECT_TRUE(contains(l.library.problem, "--libraries")) << l.library.problem;
    }
  }
}

}  // namespace
}  // namespace crest::cuda
