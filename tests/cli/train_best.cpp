// The best checkpoint, early stopping, and lengths in passes over the data.
#include <filesystem>

#include "train_harness.h"

using namespace crest;
using namespace crest::test;

namespace {

// (step, loss) of the lowest validation loss in the log, the first of equal ones.
std::pair<int64_t, double> lowest(const TrainFolder& f, const std::string& run) {
  std::pair<int64_t, double> best{-1, 0};
  for (auto& row : f.log(run))
    if (row.contains("val_loss") && (best.first < 0 || row["val_loss"] < best.second))
      best = {row["step"], row["val_loss"]};
  return best;
}

}  // namespace

TEST(KeepBest, IsTheLowestValidationLossAndOutsideTheRotation) {
  TrainFolder f;
  // The rate is so high that the loss rises again after two steps.
  RunResult r = f.train("run", 6,
                        {"--val-every", "2", "--save-every", "4", "--keep", "1", "--keep-best", "--lr", "0.1",
                         "--warmup", "1", "--schedule", "constant", "--precision", "fp32", "--json"});
  ASSERT_EQ(r.code, 0) << r.err;
  auto [step, loss] = lowest(f, "run");
  ASSERT_TRUE(step > 0 && step < 6) << step << ": choose another rate";
  const std::string name = fmt::format("step-{:06}", step), best = f / "run/checkpoints/best";
  EXPECT_EQ(std::filesystem::read_symlink(best), name);
  EXPECT_EQ(f.checkpoints("run"), (std::vector<std::string>{name, "step-000006"}));
  EXPECT_EQ(r.json()["best_val_step"], step);
  EXPECT_EQ(r.json()["best_val_loss"], loss);
  EXPECT_TRUE(contains(r.err, fmt::format("run/checkpoints/best: step {}", step))) << r.err;
  // The link opens as a model.
  r = run_crest(
      {"eval", "--run", "run/checkpoints/best", "--data", "data", "--batches", "20", "--batch", "2", "--json"},
      f.options());
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.json()["step"], step);
  // A text in its place, too.
  std::filesystem::remove(best);
  f.write("run/checkpoints/best", name + "\n");
  r = run_crest({"sample", "--run", "run/checkpoints/best", "--prompt", "the", "--max-tokens", "1", "--json"},
                f.options());
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.json()["step"], step);
  f.write("run/checkpoints/best", "step-000099\n");
  r = run_crest({"sample", "--run", "run/checkpoints/best", "--prompt", "the"}, f.options());
  EXPECT_TRUE(r.code == 1 && contains(r.err, "no such run or model") && contains(r.err, "step-000099")) << r.err;
}

TEST(KeepBest, AfterTheBestIsGoneTheBestOfTheRest) {
  TrainFolder f;
  // The lowest loss is that of a step without a checkpoint.
  ASSERT_EQ(f.train("run", 4,
                    {"--val-every", "1", "--save-every", "0", "--lr", "0.1", "--warmup", "1", "--schedule", "constant",
                     "--precision", "fp32"})
                .code,
            0);
  const auto [step, loss] = lowest(f, "run");
  ASSERT_LT(step, 4) << "choose another rate";
  const std::string best = f / "run/checkpoints/best";
  std::filesystem::create_directory(best);
  RunResult r = f.resume("run", {"--steps", "5", "--keep-best"});
  EXPECT_TRUE(r.code == 1 && contains(r.err, "checkpoints/best: is a folder, not a link")) << r.err;
  std::filesystem::remove(best);
  r = f.resume("run", {"--steps", "6", "--keep-best", "--save-every", "0"});
  ASSERT_EQ(r.code, 0) << r.err;
  // The lowest loss among the steps from 4 on: each that is lower is saved.
  std::pair<int64_t, double> kept{-1, 0};
  for (auto& row : f.log("run"))
    if (row.contains("val_loss") && row["step"] >= 4 && (kept.first < 0 || row["val_loss"] < kept.second))
      kept = {row["step"], row["val_loss"]};
  EXPECT_GT(kept.second, loss);
  EXPECT_EQ(std::filesystem::read_symlink(best), fmt::format("step-{:06}", kept.first));
  EXPECT_TRUE(
      contains(r.err, fmt::format("checkpoints/best: step {}, validation loss {:.4f}", kept.first, kept.second)))
      << r.err;
}

TEST(Patience, EndsTheRunAndContinuesExactly) {
  TrainFolder f;
  // Only the first validation, of the new weights, is an improvement.
  const std::vector<std::string> waits = {"--val-every", "2", "--patience", "3", "--min-delta", "100", "--json"};
  RunResult r = f.train("whole", 20, waits);
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.json()["ended"], "patience");
  EXPECT_EQ(r.json()["step"], 6);
  EXPECT_TRUE(contains(r.err, "stopped; saved at step 6 of 20 (3 validations without an improvement of 100")) << r.err;
  EXPECT_EQ(f.checkpoints("whole").back(), "step-000006");

  std::vector<std::string> cut = waits;
  cut.insert(cut.end(), {"--stop-after", "5"});
  ASSERT_EQ(f.train("cut", 20, cut).code, 0);
  r = f.resume("cut", {"--json"});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.json()["ended"], "patience");
  EXPECT_EQ(f.last_state("cut"), f.last_state("whole"));
  // It ends at once until the patience is raised.
  r = f.resume("cut", {"--json"});
  EXPECT_EQ(r.json()["steps"], 0) << r.err;
  r = f.resume("cut", {"--json", "--patience", "4"});
  EXPECT_EQ(r.json()["step"], 8) << r.err;
  const std::string file = "cut/checkpoints/step-000008/state.json";
  EXPECT_EQ(nlohmann::json::parse(f.read(file))["state"]["validation"]["waited"], 4);
}

TEST(Patience, NeedsValidations) {
  TrainFolder f;
  for (const char* flag : {"--keep-best", "--patience=2"}) {
    RunResult r = f.train("run", 2, {flag, "--val-every", "0"});
    EXPECT_TRUE(r.code == 2 && contains(r.err, "no validations") && contains(r.err, "Set --val-every above 0"))
        << r.err;
  }
  RunResult r = f.train("run", 2, {"--min-delta", "0.1"});
  EXPECT_TRUE(r.code == 2 && contains(r.err, "Give --patience N, too")) << r.err;
  EXPECT_FALSE(f.exists("run"));
}

TEST(Epochs, SetTheStepsAndAreReported) {
  TrainFolder f;
  auto train = [&](const std::vector<std::string>& more) {
    std::vector<std::string> a = {"train", "--data", "data", "--model",   "tiny.toml", "--batch",
                                  "16",    "--out",  "run",  "--threads", "1",         "--json"};
    a.insert(a.end(), more.begin(), more.end());
    return run_crest(a, f.options());
  };
  RunResult r = train({"--epochs", "1", "--steps", "3"});
  EXPECT_TRUE(r.code == 2 && contains(r.err, "Give only one of them")) << r.err;
  r = run_crest({"data", "info", "data", "--json"}, f.options());
  ASSERT_EQ(r.code, 0) << r.err;
  const double rows = double((r.json()["train_tokens"].get<int64_t>() - 1) / 32), one = rows / 16;
  r = train({"--epochs", "1.5"});
  ASSERT_EQ(r.code, 0) << r.err;
  const int64_t steps = int64_t(std::ceil(1.5 * one));
  EXPECT_EQ(r.json()["step"], steps);
  EXPECT_DOUBLE_EQ(r.json()["epochs"], double(steps) / one);
  EXPECT_TRUE(contains(
      r.err, fmt::format("passes   {:.3g} over the training data; one takes {:.4g} steps", double(steps) / one, one)))
      << r.err;
  // More passes, and steps in place of them.
  r = f.resume("run", {"--json", "--epochs", "2"});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.json()["step"], int64_t(std::ceil(2 * one)));
  r = f.resume("run", {"--json", "--steps", std::to_string(int64_t(std::ceil(2 * one)) + 1)});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.json()["steps"], 1);
  // 0 passes are none: the steps of the file count.
  f.write("steps.toml", "steps = 3\n");
  r = train({"--config", "steps.toml", "--epochs", "0", "--overwrite"});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.json()["step"], 3);
}
