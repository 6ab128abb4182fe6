// What a path of a model may name.
#include <atomic>
#include <filesystem>
#include <thread>

#include "inference/saved_model.h"

using namespace crest;
using namespace crest::testing;
namespace fs = std::filesystem;

TEST(OpenModel, AFileThatIsNoModelIsNamed) {
  TemporaryFolder folder;
  write_text(folder / "text.txt", "some text");
  expect_error([&] { open_model(folder / "text.txt"); }, {"text.txt: is not a model", "Give a run"});
  // Also where a model is next to it.
  make_checkpoint(folder / "run", 1, byte_recipe());
  fs::copy(folder / "run/checkpoints/step-000001/model.toml", folder / "model.toml");
  expect_error([&] { open_model(folder / "text.txt"); }, {"text.txt: is not a model"});
}

// A run with --keep 1: at every moment there is a checkpoint, but the one that was listed may be
// gone when it is read.
TEST(OpenModel, ACheckpointIsFoundWhileOthersComeAndGo) {
  TemporaryFolder folder;
  const std::string root = folder / "run/checkpoints/", aside = folder / "aside/";
  for (int step : {1, 2}) make_checkpoint(folder / "run", step, byte_recipe());
  fs::create_directory(aside);
  fs::rename(root + "step-000002", aside + "step-000002");
  std::atomic<bool> over = false;
  std::atomic<int> saves = 0;  // that are due: a few while one model is opened
  std::thread saving([&] {
    for (int step = 2; !over;) {
      if (saves == 0) {
        std::this_thread::yield();
        continue;
      }
      const std::string name = checkpoint_name(step), other = checkpoint_name(3 - step);
      fs::rename(aside + name, root + name);
      fs::rename(root + other, aside + other);
      step = 3 - step, --saves;
    }
  });
  int failed = 0;
  std::string said;
  for (int i = 0; i < 200; ++i) try {
      saves = 3;
      open_model(folder / "run");
    } catch (const Error& e) {
      ++failed, said = e.what();
    }
  over = true;
  saving.join();
  EXPECT_EQ(failed, 0) << said;
}
