// Kept, refused and reported by a run when it is continued or replaced.
#include <sys/wait.h>

#include "core/error.h"
#include "train/run_files.h"
#include "train/run_fixture.h"
#include "train/run_schedule.h"

using namespace crest;
using namespace crest::test;

namespace {

class ContinuedRun : public RunTest {
 protected:
  std::vector<std::string> checkpoints() const {
    std::vector<std::string> names;
    for (auto& saved : list_checkpoints(folder / "run/checkpoints")) names.push_back(saved.name);
    return names;
  }
};

class DivergedRun : public ContinuedRun {
 protected:
  // The first step ruins the weights: every later gradient is NaN or infinite.
  TrainOptions wild() const {
    TrainOptions o = options();
    o.steps = 30, o.lr = 1e30, o.warmup = 0, o.recipe.clip = 0, o.save_every = 1, o.keep = 0;
    return o;
  }
};

// Root may read everything, so this runs as another user. Returns the result of `act`.
template <class Act>
std::string as_nobody(const std::string& file, Act act) {
  pid_t pid = fork();
  if (pid == 0) {
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(99);
    std::ofstream(file) << act();
    _exit(0);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
  return read_file(file, 1 << 20);
}

}  // namespace

// A checkpoint is good if its weights gave finite gradients, not because it was saved.
TEST_F(DivergedRun, NoCheckpointOfItIsCalledGood) {
  std::string error = error_of([&] { run_training(wild()); });
  EXPECT_TRUE(contains(error, "step 6") && contains(error, "5 steps in a row")) << error;
  EXPECT_TRUE(contains(error, "no checkpoint is good") && contains(error, "--overwrite")) << error;
  EXPECT_FALSE(contains(error, "last good checkpoint")) << error;
  EXPECT_EQ(checkpoints().size(), 5u) << "they are all that is left";
  TrainOptions again = wild();
  again.resume = true;
  EXPECT_EQ(error_of([&] { run_training(again); }), error) << "continued, it ends as it did";
}

// Interrupted or not, the run ends at the fifth bad step, and knows the steps before the
// interruption.
TEST_F(DivergedRun, BadStepsAreCountedAcrossACut) {
  TrainOptions cut = wild();
  cut.save_every = 0, cut.stop_after = 4;
  ASSERT_FALSE(run_training(cut).interrupted);
  cut.resume = true, cut.stop_after = 0;
  std::string error = error_of([&] { run_training(cut); });
  EXPECT_TRUE(contains(error, "step 6") && contains(error, "no checkpoint is good")) << error;
}

TEST_F(DivergedRun, TheLastGoodCheckpointIsTheOneBefore) {
  TrainOptions good = options();
  good.save_every = 1;
  ASSERT_FALSE(run_training(good).interrupted);
  TrainOptions more = wild();
  more.resume = true;
  std::string error = error_of([&] { run_training(more); });
  EXPECT_TRUE(contains(error, "the last good checkpoint is " + (folder / "run/checkpoints/step-000004"))) << error;
  EXPECT_EQ(newest(), "step-000004");
}

TEST_F(ContinuedRun, ModelFileThatChangedIsTold) {
  ASSERT_FALSE(run_training(options()).interrupted);
  TrainOptions more = options();
  more.resume = true, more.steps = 6;
  more.recipe.model.norm_eps = 0.1;
  std::string error = error_of([&] { run_training(more); });
  EXPECT_TRUE(contains(error, "another model") && contains(error, "norm_eps = 0.1")) << error;
  EXPECT_TRUE(contains(error, "step-000004/model.toml")) << error;
  more.recipe.model = options().recipe.model;
  more.recipe.model.dropout = 0.1;  // this may change
  EXPECT_FALSE(run_training(more).interrupted);
}

TEST_F(ContinuedRun, SettingsOfItsFileAreNamedNotFlags) {
  ASSERT_FALSE(run_training(options()).interrupted);
  TrainOptions more = options();
  more.resume = true, more.seed = 5;
  std::string error = error_of([&] { run_training(more); });
  EXPECT_TRUE(contains(error, "run/config.toml") && contains(error, "Set seed = 1337 there")) << error;
  EXPECT_FALSE(contains(error, "--seed")) << error;
}

// Initial weights in the folder to replace: refused before anything is removed.
TEST_F(ContinuedRun, IsNotReplacedByOneThatReadsIt) {
  ASSERT_FALSE(run_training(options()).interrupted);
  std::filesystem::create_directory_symlink(folder / "run", folder / "link");
  std::filesystem::rename(folder / "data", folder / "run/data");
  std::filesystem::create_directory_symlink(folder / "run/data", folder / "data");
  for (auto& [init, data] : std::vector<std::pair<std::string, std::string>>{
           {"run", "data"}, {"link/checkpoints/step-000004", "data"}, {"", "run/data"}, {"", "data"}}) {
    SCOPED_TRACE(init + " " + data);
    TrainOptions o = options();
    o.overwrite = true, o.data = {folder / data};
    if (!init.empty()) o.init = folder / init;
    std::string error = error_of([&] { run_training(o); });
    EXPECT_TRUE(contains(error, "this would remove") && contains(error, init.empty() ? "--data" : "--")) << error;
    EXPECT_EQ(newest(), "step-000004");
  }
}

TEST_F(ContinuedRun, InitialWeightsMustBeFinite) {
  ASSERT_FALSE(run_training(options()).interrupted);
  std::filesystem::copy(folder / "run/checkpoints/step-000004", folder / "init");
  std::filesystem::remove(folder / "init/manifest.json");
  std::string file = folder / "init/model.safetensors", bytes = read_file(file, 1 << 30);
  bytes.replace(bytes.size() - 4, 4, 4, '\xff');  // the last weight
  std::ofstream(file) << bytes;
  TrainOptions o = options();
  o.init = folder / "init", o.out = folder / "other";
  std::string error = error_of([&] { run_training(o); });
  EXPECT_TRUE(contains(error, "has NaN or infinity") && contains(error, folder / "init")) << error;
  EXPECT_FALSE(path_exists(folder / "other"));
}

TEST_F(ContinuedRun, ALogThatCannotBeReadIsKept) {
  std::filesystem::create_directories(folder / "run");
  std::string log = folder / "run/log.jsonl", rows = "{\"step\": 1, \"loss\": 3.5}\n";
  std::ofstream(log) << rows;
  for (const std::string& path : {std::string(folder.path()), folder / "run"})
    std::filesystem::permissions(path, std::filesystem::perms(0777));
  std::filesystem::permissions(log, std::filesystem::perms(0000));
  std::string error =
      as_nobody(folder / "error", [&] { return error_of([&] { RunFiles::open(folder / "run").continue_at(1); }); });
  EXPECT_TRUE(contains(error, "log.jsonl") && contains(error, "Permission denied")) << error;
  std::filesystem::permissions(log, std::filesystem::perms(0600));
  EXPECT_EQ(read_file(log, 1000), rows);
}

TEST_F(ContinuedRun, SamplesOfDroppedStepsGo) {
  std::filesystem::create_directories(folder / "run");
  {
    RunFiles files = RunFiles::open(folder / "run");
    files.continue_at(0);
    for (int step : {4, 8, 12}) files.add_sample(step, "text of\n" + std::to_string(step));
  }
  RunFiles::open(folder / "run").continue_at(12);
  EXPECT_TRUE(contains(read_file(folder / "run/samples.txt", 1000), "--- step 12\ntext of\n12\n"));
  RunFiles::open(folder / "run").continue_at(8);
  EXPECT_EQ(read_file(folder / "run/samples.txt", 1000), "--- step 4\ntext of\n4\n--- step 8\ntext of\n8\n");
}

// The number of steps is still unknown, so the run stores no setting computed from it.
TEST(FittedRun, StoresNothingOfAScheduleThatIsNotKnownYet) {
  TrainOptions o;
  o.max_seconds = 2;
  RunSchedule schedule(o, {}, 0, 0);
  TrainOptions before = schedule.used({});
  EXPECT_EQ(before.steps, 0);
  for (int64_t unset : {before.val_every, before.save_every, before.warmup}) EXPECT_LT(unset, 0);
  schedule.fit(12, 0.1, 1.2);
  TrainOptions after = schedule.used({});
  EXPECT_GT(after.steps, 12);
  EXPECT_EQ(after.warmup, 12);
  EXPECT_EQ(after.val_every, std::max<int64_t>(1, after.steps / 10));
}

TEST(FittedRun, TheTimeLimitHoldsBeforeTheFit) {
  TrainOptions o;
  o.max_seconds = 2;
  RunSchedule schedule(o, {}, 0, 0);
  EXPECT_FALSE(schedule.over(1.9));
  EXPECT_TRUE(schedule.over(2.1));
  schedule.fit(12, 0.1, 1.2);
  EXPECT_FALSE(schedule.over(2.2)) << "as the help says";
  EXPECT_TRUE(schedule.over(2.4));
}
