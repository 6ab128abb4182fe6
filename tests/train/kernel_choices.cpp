// A continued run uses its earlier kernels: choices go into checkpoints, and come back before
// anything is timed. The test's kernel chooses by a fake clock, like a GPU's kernel.
#include "backend/choices.h"
#include "train/run_fixture.h"
#include "train/run_state.h"

using namespace crest;
using namespace crest::test;

namespace {

// The choosing kernel: its clock's answer, its device, and its choice.
struct Chooser {
  std::string scope = "device A, library 1", best = "fast";
  std::vector<std::string> timed, used;
} chooser;

void choose(const KernelCall& c) {
  std::string problem = c.out_value(0).shape.text();
  auto known = c.choices->find(chooser.scope, problem);
  if (!known) chooser.timed.push_back(problem);
  chooser.used.push_back(known ? *known : chooser.best);
  c.choices->use(chooser.scope, problem, chooser.used.back());
}

class KernelChoices : public RunTest {
 protected:
  // Runs and returns the messages.
  std::string train(int64_t stop_after, bool resume, bool chooses = true) {
    TrainOptions o = options();
    o.steps = 6, o.stop_after = stop_after, o.resume = resume;
    chooser.timed.clear(), chooser.used.clear();
    ChangedKernels changed("adamw", [&](Kernel& k) { k.tune = chooses ? choose : nullptr; });
    ::testing::internal::CaptureStderr();
    bool interrupted = run_training(o).interrupted;
    std::string told = ::testing::internal::GetCapturedStderr();
    EXPECT_FALSE(interrupted);
    return told;
  }
  Checkpoint checkpoint() const {
    return newest_checkpoint(folder / "run/checkpoints", [](const std::string& m) { ADD_FAILURE() << m; });
  }
  std::map<std::string, std::string> saved() const {
    auto table = parse_choices(*checkpoint().file("kernel_choices.json"), "checkpoint");
    return table[chooser.scope];
  }
  void TearDown() override { chooser = {}; }
};

}  // namespace

TEST_F(KernelChoices, AreUsedAgainWhenARunIsContinued) {
  train(2, false);
  ASSERT_FALSE(chooser.timed.empty());
  EXPECT_EQ(chooser.used.front(), "fast");
  auto before = saved();
  EXPECT_FALSE(before.empty());

  chooser.best = "now another one is faster";
  std::string told = train(2, true);
  EXPECT_TRUE(chooser.timed.empty());
  EXPECT_EQ(chooser.used.front(), "fast");
  EXPECT_EQ(told.find("bit for bit"), std::string::npos) << told;
  EXPECT_EQ(saved(), before) << "and they are saved again";
}

TEST_F(KernelChoices, OfAnotherDeviceAreNotUsedWhichIsTold) {
  train(2, false);
  chooser.scope = "device B, library 1";
  std::string told = train(2, true);
  EXPECT_FALSE(chooser.timed.empty());
  EXPECT_TRUE(contains(told, "device A, library 1") && contains(told, "device B, library 1")) << told;
  EXPECT_TRUE(contains(told, "not bit for bit")) << told;
  EXPECT_EQ(train(2, true).find("bit for bit"), std::string::npos) << "the choices are those of device B now";
}

TEST_F(KernelChoices, ACheckpointWithoutThem) {
  train(2, false, false);
  Device device = options().device;
  bool others_choose = device.kind == "cuda" && !device.emulated;
  if (!others_choose) {
    EXPECT_EQ(checkpoint().file("kernel_choices.json"), nullptr);
  }
  std::string told = train(2, true, false);
  EXPECT_EQ(told.find("bit for bit"), std::string::npos) << "nothing was chosen before, and nothing is now: " << told;
  told = train(1, true);
  EXPECT_TRUE(contains(told, "not bit for bit")) << told;
  EXPECT_FALSE(saved().empty());
  told = train(1, true, false);
  EXPECT_EQ(contains(told, "now none are chosen so"), !others_choose) << told;
}

TEST_F(KernelChoices, ThatCannotBeReadAreMadeAnew) {
  TinyModel model(3);
  CheckpointContents contents = model.contents();
  contents.files["kernel_choices.json"] = "{\"format\": 99}";
  save_checkpoint(contents, folder / "other", 0);
  std::string told;
  Choices::Table none =
      kernel_choices(Checkpoint::open(folder / "other/step-000003"), [&](const std::string& m) { told += m; });
  EXPECT_TRUE(none.empty());
  EXPECT_TRUE(contains(told, "kernels are chosen again") && contains(told, "kernel_choices.json")) << told;
}
