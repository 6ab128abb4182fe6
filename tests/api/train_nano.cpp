// The program of train/trainer.h: trains nano on a text, continues the run, and samples from it. It
// is linked with the parts base, step, devices and trainer alone.
#include "train/trainer.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <numeric>

#include "checkpoint/checkpoint.h"
#include "core/error.h"
#include "core/io.h"
#include "memory_folder.h"

using namespace crest;

namespace {

class Api : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("CREST_CACHE", (folder / "cache").c_str(), 1);
    std::string text;
    for (int i = 0; i < 400; ++i) text += fmt::format("word {} follows word {}.\n", i % 10, (i + 9) % 10);
    write_file_atomic(folder / "text.txt", text);
  }
  // On one thread of the CPU, without lines on standard error.
  TrainRequest request() {
    TrainRequest r = new_run({{"model", "nano"},
                              {"batch", "4"},
                              {"seq", "32"},
                              {"steps", "20"},
                              {"val-every", "0"},
                              {"device", "cpu"},
                              {"threads", "1"}});
    r.texts = {folder / "text.txt"};
    return listen(r);
  }
  TrainRequest& listen(TrainRequest& r) {
    r.train.quiet = true;
    r.train.on_step = [this](const StepRow& row) { rows.push_back(row); };
    return r;
  }
  std::string run() const { return folder / "run"; }

  MemoryFolder folder;
  std::vector<StepRow> rows;
};

double mean_loss(const std::vector<StepRow>& rows, size_t first, size_t count) {
  return std::accumulate(rows.begin() + std::ptrdiff_t(first), rows.begin() + std::ptrdiff_t(first + count), 0.0,
                         [](double sum, const StepRow& row) { return sum + row.loss; }) /
         double(count);
}

}  // namespace

TEST_F(Api, TrainsContinuesAndSamples) {
  TrainRequest first = request();
  first.train.out = run();
  EXPECT_FALSE(train(first).interrupted);
  ASSERT_EQ(rows.size(), 20u);
  EXPECT_NEAR(rows[0].loss, std::log(257), 0.5) << "a guess among the bytes";
  EXPECT_LT(mean_loss(rows, 15, 5), mean_loss(rows, 0, 5) - 1);

  TrainRequest more = continued_run(run(), {{"steps", "30"}});
  train(listen(more));
  ASSERT_EQ(rows.size(), 30u);
  EXPECT_EQ(rows.back().step, 30);
  EXPECT_LT(mean_loss(rows, 25, 5), mean_loss(rows, 15, 5));
  ASSERT_TRUE(find_checkpoint(run() + "/checkpoints"));
  EXPECT_EQ(find_checkpoint(run() + "/checkpoints")->step(), 30);

  SampleOptions sample;
  sample.run = run(), sample.prompt = "word ", sample.max_tokens = 16;
  std::string text = sample_text(sample, first.device);
  EXPECT_FALSE(text.empty());
  EXPECT_LE(text.size(), 16u) << "tokens are bytes";
  EXPECT_EQ(sample_text(sample, first.device), text) << "the same seed";
}

// A run in two parts has the bits of an uninterrupted one, and so has the schedule.
TEST_F(Api, ContinuesBitForBit) {
  TrainRequest whole = request();
  whole.train.out = folder / "whole";
  train(whole);
  std::vector<StepRow> all = std::move(rows);
  rows.clear();

  TrainRequest part = request();
  part.train.out = run(), part.train.stop_after = 8;
  train(part);
  ASSERT_EQ(rows.size(), 8u);
  TrainRequest rest = continued_run(run());
  train(listen(rest));
  ASSERT_EQ(rows.size(), all.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].loss, all[i].loss) << i;
    EXPECT_EQ(rows[i].lr, all[i].lr) << i;
  }
}

TEST_F(Api, RefusesWhatTheCommandRefuses) {
  auto problem = [](auto&& work) -> std::string {
    try {
      work();
    } catch (const Error& e) {
      return e.problem();
    }
    return "";
  };
  EXPECT_EQ(problem([] { new_run({{"modle", "nano"}}); }), "unknown setting 'modle'");
  EXPECT_NE(problem([] { new_run({{"batch", "many"}}); }), "");
  EXPECT_EQ(problem([] { train(new_run({{"model", "nano"}, {"device", "cpu"}})); }), "no data given");
  EXPECT_EQ(problem([&] { continued_run(run()); }), "no such run");

  TrainRequest first = request();
  first.train.out = run(), first.train.stop_after = 1;
  train(first);
  EXPECT_EQ(problem([&] { train(continued_run(run(), {{"seed", "7"}})); }), "the run has seed 1337, but 7 was given");
}
