// Paths of a model.
#include <atomic>
#include <filesystem>
#include <thread>

#include "inference/saved_model.h"

using namespace crest;
using namespace crest::test;
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

// A run with --keep 1: at every moment there is a checkpoint, but a listed one may be gone when it
// is read. There are more steps than saves while one model is opened, so no step comes twice.
TEST(OpenModel, ACheckpointIsFoundWhileOthersComeAndGo) {
  TemporaryFolder folder;
  const std::string root = folder / "run/checkpoints/", aside = folder / "aside/";
  constexpr int steps = 8;
  fs::create_directory(aside);
  for (int step = steps; step > 0; --step) {
    make_checkpoint(folder / "run", step, byte_recipe());
    if (step > 1) fs::rename(root + checkpoint_name(step), aside + checkpoint_name(step));
  }
  std::atomic<bool> over = false;
  std::atomic<int> saves = 0;  // due saves: a few while one model is opened
  std::thread saving([&] {
    for (int step = 1; !over;) {
      if (saves == 0) {
        std::this_thread::yield();
        continue;
      }
      const std::string old = checkpoint_name(step), name = checkpoint_name(step % steps + 1);
      fs::rename(aside + name, root + name);
      fs::rename(root + old, aside + old);
      step = step % steps + 1, --saves;
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
