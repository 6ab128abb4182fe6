// Saves in the background: training goes on meanwhile, and the saved state is the state at the
// beginning of the save.
#include <atomic>
#include <map>

#include "core/error.h"
#include "train/run_fixture.h"
#include "wait.h"

using namespace crest;
using namespace crest::test;

namespace {

// Steps of the run so far, for the system calls below, plain functions.
std::atomic<int64_t> taken;
bool overlapped;

// Waits until the run has taken this many steps. A run that waits for the save never takes them.
bool wait_for_step(int64_t step) {
  return test::wait_until([&] { return taken >= step; });
}

// The step of this save into the test's folder; -1: a save into another folder.
int64_t saved_step(const std::string& path) {
  const std::string prefix = ".tmp-step-";
  size_t at = path.find(prefix);
  return at == std::string::npos ? -1 : std::stoll(path.substr(at + prefix.size()));
}

class BackgroundSave : public RunTest {
 protected:
  TrainOptions options(SaveMode mode) const {
    TrainOptions o = RunTest::options();
    o.save_mode = mode;
    o.save_every = 1;
    o.on_step = [](const StepRow& row) { taken = row.step; };
    taken = 0;
    return o;
  }
  std::string root() const { return folder / "run/checkpoints"; }
};

}  // namespace

TEST_F(BackgroundSave, TrainingGoesOnMeanwhile) {
  TrainOptions o = options(SaveMode::background);
  o.save_every = 2;
  Syscalls calls = real_syscalls;
  calls.mkdirat = [](int folder, const char* path, mode_t mode) {
    if (contains(path, ".tmp-step-000002")) overlapped = wait_for_step(3);
    return ::mkdirat(folder, path, mode);
  };
  ScopedSyscalls scope(&calls);
  overlapped = false;
  ASSERT_FALSE(run_training(o).interrupted);
  EXPECT_TRUE(overlapped);
  EXPECT_EQ(newest(), "step-000004");
}

TEST_F(BackgroundSave, SavesWhatARunThatWaitsSaves) {
  std::map<SaveMode, std::vector<std::string>> manifests;
  for (SaveMode mode : {SaveMode::waiting, SaveMode::background}) {
    TrainOptions o = options(mode);
    o.steps = 6, o.keep = 0, o.overwrite = true;
    o.device.deterministic = true;
    ASSERT_FALSE(run_training(o).interrupted);
    for (auto& saved : list_checkpoints(root())) {
      Checkpoint::open(root() + "/" + saved.name).verify();
      manifests[mode].push_back(read_file(root() + "/" + saved.name + "/manifest.json", 1 << 20));
    }
    EXPECT_EQ(manifests[mode].size(), 6u);
  }
  EXPECT_EQ(manifests[SaveMode::waiting], manifests[SaveMode::background]);
}

// No save has ended when the next one is due.
TEST_F(BackgroundSave, OldOnesGoThoughEverySaveIsSlow) {
  TrainOptions o = options(SaveMode::background);
  o.steps = 12, o.keep = 2;
  size_t most = 0;
  o.on_step = [&](const StepRow& row) {
    most = std::max(most, list_checkpoints(root()).size());
    taken = row.step;
  };
  Syscalls calls = real_syscalls;
  calls.mkdirat = [](int folder, const char* path, mode_t mode) {
    if (int64_t step = saved_step(path); step >= 0) wait_for_step(std::min<int64_t>(12, step + 1));
    return ::mkdirat(folder, path, mode);
  };
  ScopedSyscalls scope(&calls);
  ASSERT_FALSE(run_training(o).interrupted);
  EXPECT_EQ(list_checkpoints(root()).size(), 2u);
  EXPECT_EQ(newest(), "step-000012");
  EXPECT_LE(most, 4u) << "two, one not confirmed by a step, one under way";
}

TEST_F(BackgroundSave, AnErrorEndsTheRunBeforeTheNextSave) {
  TrainOptions o = options(SaveMode::background);
  o.steps = 1000, o.save_every = 2;
  Syscalls calls = real_syscalls;
  calls.mkdirat = [](int folder, const char* path, mode_t mode) {
    return contains(path, ".tmp-") ? (errno = ENOSPC, -1) : ::mkdirat(folder, path, mode);
  };
  ScopedSyscalls scope(&calls);
  std::string error = error_of([&] { run_training(o); });
  EXPECT_TRUE(contains(error, "No space left on device")) << error;
  EXPECT_LE(taken, 4) << "the next save waits for this one at the latest";
}

TEST_F(BackgroundSave, EndsWellWhenTheRunDoesNot) {
  for (bool fails : {false, true}) {
    SCOPED_TRACE(fails);
    TrainOptions o = options(SaveMode::background);
    o.steps = 8, o.save_every = 2, o.overwrite = true;
    o.on_step = [](const StepRow& row) {
      taken = row.step;
      if (row.step == 3) fail("unspecified launch failure", "adamw");
    };
    Syscalls calls = real_syscalls;
    calls.mkdirat = [](int folder, const char* path, mode_t mode) {
      if (saved_step(path) >= 0) wait_for_step(3);  // the failing one
      return ::mkdirat(folder, path, mode);
    };
    if (fails)
      calls.mkdirat = [](int folder, const char* path, mode_t mode) {
        if (saved_step(path) < 0) return ::mkdirat(folder, path, mode);
        wait_for_step(3);
        return errno = ENOSPC, -1;
      };
    ScopedSyscalls scope(&calls);
    ::testing::internal::CaptureStderr();
    std::string error = error_of([&] { run_training(o); });
    std::string told = ::testing::internal::GetCapturedStderr();
    EXPECT_TRUE(contains(error, "unspecified launch failure")) << error;
    EXPECT_EQ(newest(), fails ? "none" : "step-000002");
    EXPECT_EQ(contains(told, "the last checkpoint was not saved") && contains(told, "No space left"), fails) << told;
  }
}

// The save of a bad step ends after five bad steps have stopped the run. It must not become the
// run's newest checkpoint.
TEST_F(BackgroundSave, OfBadWeightsDoesNotOutliveThem) {
  ASSERT_FALSE(run_training(options(SaveMode::waiting)).interrupted);
  TrainOptions o = options(SaveMode::background);
  o.resume = true, o.steps = 40, o.lr = 1e30, o.recipe.clip = 0, o.keep = 1;
  Syscalls calls = real_syscalls;
  calls.mkdirat = [](int folder, const char* path, mode_t mode) {
    if (int64_t step = saved_step(path); step >= 0) wait_for_step(step + 1);  // the last of them is the fifth bad one
    return ::mkdirat(folder, path, mode);
  };
  ScopedSyscalls scope(&calls);
  std::string error = error_of([&] { run_training(o); });
  EXPECT_TRUE(contains(error, "5 steps in a row")) << error;
  EXPECT_EQ(newest(), "step-000004");
}
