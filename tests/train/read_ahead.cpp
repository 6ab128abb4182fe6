// Training from batches read ahead by threads, and runs without files.
#include "train/read_ahead.h"

#include "data/dataset.h"
#include "frames.h"
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

// The rows of the folder's samples in the run's order. val: also its validation rows.
struct StreamedRun : ReadAheadRun {
  std::string frames(const TrainOptions& o, uint64_t rows, bool val = true) const {
    const int64_t seq = o.recipe.seq_length();
    const Dataset data = Dataset::open(folder / "data");
    auto row = [&](const Loader& loader, uint64_t g) {
      std::vector<int32_t> tokens(size_t(seq) + 1), targets(tokens.size());
      loader.sample(g, tokens.data(), targets.data());
      tokens.back() = targets[size_t(seq) - 1];
      return tokens;
    };
    std::string text;
    if (val) {
      const Loader held(data.val(), seq, o.seed, SampleOrder::sequential);
      for (uint64_t g = 0; g < held.samples_per_epoch(); ++g) text += frame("VAL1", int32_t(seq) + 1, row(held, g));
    }
    const Loader loader(data.train(), seq, o.seed);
    for (uint64_t g = 0; g < rows; ++g) text += frame("TOK1", int32_t(seq) + 1, row(loader, g));
    return text;
  }
  struct Curves {
    std::vector<double> train, validation;
    bool operator==(const Curves&) const = default;
  };
  static Curves run(TrainOptions o) {
    Curves curves;
    o.on_validation = [&](const ValidationRow& r) { curves.validation.push_back(r.val_loss); };
    curves.train = losses(o);
    return curves;
  }
  static Curves run(TrainOptions o, const std::string& frames, bool open = false) {
    StreamOf stream(frames, open);
    o.data = {data_stream}, o.data_descriptor = stream.descriptor();
    return run(o);
  }
  TrainOptions accumulating() const {
    TrainOptions o = options();
    o.recipe.grad_accumulation = 2, o.val_every = 2;
    return o;
  }
};

TEST_F(StreamedRun, GivesTheLossesOfAFolderWithTheSameRows) {
  TrainOptions o = accumulating();
  o.out = "";
  const Curves expected = run(o);
  ASSERT_EQ(expected.train.size(), 4u);
  ASSERT_EQ(expected.validation.size(), 3u);
  const std::string rows = frames(o, 17);
  for (int prefetch : {0, 3}) {
    o.prefetch = prefetch;
    EXPECT_EQ(run(o, rows), expected) << prefetch;
  }
  // The run ends at its last step, though the writer goes on.
  const Curves without = run(o, frames(o, 16, false), true);
  EXPECT_EQ(without.train, expected.train);
  EXPECT_TRUE(without.validation.empty());
}

TEST_F(StreamedRun, ContinuesBehindTheRowsOfItsStepsAfterTheStreamEnded) {
  TrainOptions o = accumulating();
  const std::vector<double> expected = losses(o);
  o.overwrite = true, o.prefetch = 1;
  Curves found = run(o, frames(o, 11));  // two steps of four rows, and three rows
  EXPECT_EQ(found.train.size(), 2u);
  EXPECT_EQ(newest(), "step-000002");
  o.overwrite = false, o.resume = true;
  EXPECT_THROW(run(o, frames(o, 7)), Error);  // shorter than what the run has used
  EXPECT_TRUE(run(o, frames(o, 8)).train.empty());
  for (double loss : run(o, frames(o, 16)).train) found.train.push_back(loss);
  EXPECT_EQ(found.train, expected);
}

TEST_F(StreamedRun, AFaultEndsTheRunAfterItsLastWholeStep) {
  TrainOptions o = accumulating();
  const std::string rows = frames(o, 11);
  EXPECT_THROW(run(o, rows.substr(0, rows.size() - 2)), Error);
  EXPECT_EQ(newest(), "step-000002");
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
