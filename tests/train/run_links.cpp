// Symbolic links in a run's folder: Crest never writes or deletes through one. A run, or its
// checkpoints, may be in another place.
#include <filesystem>

#include "train/run_files.h"
#include "train/run_fixture.h"

using namespace crest;
using namespace crest::test;

namespace {

namespace fs = std::filesystem;

class RunLinks : public RunTest {
 protected:
  TrainOptions options() const {
    TrainOptions o = RunTest::options();
    o.save_every = 4;
    return o;
  }
  void plant(const std::string& name) const {
    fs::create_directories(folder / name);
    write_file_synced(folder / name + "/precious", "x");
  }
  size_t precious() const {
    size_t found = 0;
    for (auto& entry : fs::recursive_directory_iterator(folder.path())) found += entry.path().filename() == "precious";
    return found;
  }
  std::string resumed(int64_t steps) const {
    TrainOptions o = options();
    o.resume = true, o.steps = steps, o.save_every = 1, o.keep = 1;
    return error_of([&] { run_training(o); });
  }
  size_t saved() const { return list_checkpoints(folder / "run/checkpoints").size(); }
};

}  // namespace

TEST_F(RunLinks, InPlaceOfAFileAreRefused) {
  TrainOptions o = options();
  const std::string victim = folder / "victim";
  write_file_synced(victim, "mine");
  const std::string guessed = folder / "run/loss.svg." + std::to_string(getpid()) + ".tmp";
  o.sample_every = 2;
  o.on_step = [&](const StepRow& row) {
    if (row.step == 1) fs::create_symlink(victim, guessed), fs::create_symlink(victim, folder / "run/samples.txt");
  };
  std::string error = error_of([&] { run_training(o); });
  EXPECT_TRUE(contains(error, "run/samples.txt") && contains(error, "symbolic link")) << error;
  fs::remove(folder / "run/samples.txt");
  o.on_step = {}, o.out = folder / "whole";
  ASSERT_FALSE(run_training(o).interrupted);
  fs::rename(folder / "whole", folder / "kept");
  for (auto& entry : fs::directory_iterator(folder / "kept")) {
    const std::string name = entry.path().filename().string();
    if (name == "checkpoints") continue;
    fs::remove_all(folder / "run");
    fs::copy(folder / "kept", folder / "run", fs::copy_options::recursive);
    fs::remove_all(folder / "run/" + name);
    fs::create_symlink(entry.is_directory() ? folder / "data" : victim, folder / "run/" + name);
    error = resumed(6);
    EXPECT_TRUE(contains(error, "run/" + name) && contains(error, "symbolic link")) << error;
  }
  EXPECT_EQ(read_file(victim, 100), "mine");
  for (auto& entry : fs::directory_iterator(folder / "data"))
    EXPECT_FALSE(contains(entry.path().filename().string(), "events")) << entry.path();
}

TEST_F(RunLinks, CheckpointsElsewhereWorkAndNothingIsDeletedThere) {
  ASSERT_FALSE(run_training(options()).interrupted);
  fs::rename(folder / "run/checkpoints", folder / "elsewhere");
  fs::create_symlink(folder / "elsewhere", folder / "run/checkpoints");
  for (const char* name : {".tmp-step-000005", ".trash-x", "step-000001", "step-000006"})
    plant("elsewhere/" + std::string(name));
  EXPECT_EQ(resumed(7), "");
  EXPECT_EQ(precious(), 4u);
  EXPECT_EQ(saved(), 5u) << "1 and 4 to 7, whatever --keep says";
  TrainOptions again = options();
  again.overwrite = true;
  ASSERT_FALSE(run_training(again).interrupted) << "the link is the run's, what it names is not";
  EXPECT_EQ(precious(), 4u);
  EXPECT_FALSE(fs::is_symlink(folder / "run/checkpoints"));
}

TEST_F(RunLinks, ARunElsewhereWorksAndNothingIsDeletedThere) {
  fs::create_directory(folder / "elsewhere");
  fs::create_symlink(folder / "elsewhere", folder / "run");
  TrainOptions o = options();
  o.overwrite = true;
  ASSERT_FALSE(run_training(o).interrupted) << "the folder is empty";
  plant("elsewhere/checkpoints/.tmp-step-000005");
  EXPECT_EQ(resumed(6), "");
  EXPECT_EQ(precious(), 1u);
  EXPECT_EQ(saved(), 3u);
  const std::string error = error_of([&] { run_training(o); });
  EXPECT_TRUE(contains(error, "symbolic link") && contains(error, "--out " + (folder / "elsewhere"))) << error;
  EXPECT_EQ(saved(), 3u);
  o.out = folder / "elsewhere";
  EXPECT_FALSE(run_training(o).interrupted);
}

// Two runs with their checkpoints in one folder would overwrite each other.
TEST_F(RunLinks, OneProcessAtATimeSavesInAFolder) {
  ASSERT_FALSE(run_training(options()).interrupted);
  Folder other = Folder::open(folder / "run/checkpoints");
  ASSERT_EQ(other.lock(), Folder::Lock::held);
  EXPECT_TRUE(contains(resumed(5), "another process is saving"));
}
