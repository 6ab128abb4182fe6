// Training from batches read ahead by threads, and runs without files.
#include "train/read_ahead.h"

#include "data/dataset.h"
#include "train/run_fixture.h"

namespace crest::test {

namespace {

struct ReadAheadRun : RunTest {
  TrainOptions wide() const {
    TrainOptions o = options();
    o.recipe.grad_accumulation = 2, o.recipe.data_parallel = 2;
    return o;
  }
  static std::vector<double> losses(TrainOptions o, double* waited = nullptr) {
    std::vector<double> list;
    o.on_step = [&](const StepRow& r) {
      list.push_back(r.loss);
      if (waited) *waited += r.wait_ms;
      EXPECT_LE(r.wait_ms, r.step_ms);
    };
    EXPECT_FALSE(run_training(o).interrupted);
    return list;
  }
};

}  // namespace

TEST_F(ReadAheadRun, GivesTheSameLossesWithRanksMicroStepsAndThreads) {
  TrainOptions o = wide();
  o.out = "";
  std::vector<double> expected = losses(o);
  ASSERT_EQ(expected.size(), 4u);
  for (ReadAhead ahead : {ReadAhead{1, 1}, ReadAhead{3, 2}}) {
    o.prefetch = ahead.batches, o.loader_threads = ahead.threads;
    EXPECT_EQ(losses(o), expected);
  }
}

TEST_F(ReadAheadRun, ContinuesWhereTheRunStopped) {
  TrainOptions o = wide();
  std::vector<double> expected = losses(o);
  o.prefetch = 2, o.overwrite = true, o.stop_after = 2;
  std::vector<double> found = losses(o);
  o.overwrite = false, o.resume = true, o.stop_after = 0;
  for (double loss : losses(o)) found.push_back(loss);
  EXPECT_EQ(found, expected);
}

TEST_F(ReadAheadRun, HidesSlowStorage) {
  // The threads' wait for a core does not grow with the delay of the storage. If reading ahead
  // hides all of the delay, the test repeats with a longer one.
  double in_step = 0, ahead = 1e9;
  for (double delay = 20; delay < 3000 && ahead >= in_step / 2; delay *= 4) {
    in_step = ahead = 0;
    TrainOptions o = options();
    o.out = "", o.loader_delay_ms = delay;
    losses(o, &in_step);
    EXPECT_GE(in_step, 4 * 2 * delay) << "four steps of two samples";
    o.prefetch = 8, o.loader_threads = 8;
    losses(o, &ahead);
  }
  EXPECT_LT(ahead, in_step / 2);
}

TEST_F(ReadAheadRun, ReadErrorsEndTheRun) {
  TrainOptions o = wide();
  o.out = "", o.prefetch = 2, o.loader_threads = 2, o.steps = 200;
  int64_t steps = 0;
  o.on_step = [&](const StepRow& r) {
    if ((steps = r.step) != 2) return;
    for (auto& file : std::filesystem::directory_iterator(folder / "data"))
      if (file.path().filename().string().starts_with("train")) std::filesystem::resize_file(file.path(), 1024 + 20);
  };
  EXPECT_THROW(run_training(o), Error);
  EXPECT_GE(steps, 2);
  EXPECT_LT(steps, 200);
}

TEST_F(ReadAheadRun, WithoutAFolderNothingIsWritten) {
  auto entries = [&] {
    std::set<std::string> list;
    for (auto& e : std::filesystem::recursive_directory_iterator(folder / ".")) list.insert(e.path().string());
    return list;
  };
  auto before = entries();
  TrainOptions o = options();
  o.out = "", o.save_every = 1, o.val_every = 2;
  std::vector<int64_t> validated;
  o.on_validation = [&](const ValidationRow& r) { validated.push_back(r.step); };
  TrainOutcome outcome = run_training(o);
  EXPECT_GT(outcome.held_bytes, 0);
  EXPECT_EQ(validated, (std::vector<int64_t>{0, 2, 4}));
  EXPECT_EQ(entries(), before);
  EXPECT_FALSE(std::filesystem::exists("/checkpoints"));
}

TEST_F(ReadAheadRun, OutOfOrderIsAnInternalError) {
  Dataset data = Dataset::open(folder / "data");
  Recipe r = options().recipe;
  Loader loader(data.train(), 8, 1);
  ReadAheadSource source(loader, r, 0, {});
  std::vector<int32_t> x(8), y(8);
  source.sample(0, x.data(), y.data());
  EXPECT_THROW(source.sample(3, x.data(), y.data()), Error);
}

}  // namespace crest::test
