// From prompt / answer lines to a tuned model: masks and packing through crest data, train, eval
// and sample.
#include "cli/train_harness.h"
#include "packed.h"

using namespace crest::test;

namespace {

// Lines of "q: word" -> the word spelled twice; `plain` beside them is a text.
std::string records(int count) {
  static const char* words[] = {"sun", "moon", "tree", "house", "river", "bird"};
  std::string lines;
  for (int i = 0; i < count; ++i) {
    std::string word = words[crest::random_bits(3, 4, uint64_t(i)) % 6];
    lines += "{\"prompt\": \"q: " + word + "\\n\", \"answer\": \"" + word + " " + word + "\"}\n";
  }
  return lines;
}

class FineTune : public testing::Test {
 protected:
  void SetUp() override {
    f.write("qa.jsonl", records(120));
    RunResult r = run_crest({"data", "prepare", "qa.jsonl", "--out", "qa"}, f.options());
    ASSERT_EQ(r.code, 0) << r.err;
    EXPECT_TRUE(contains(r.out, "add --init RUN --packing documents")) << r.out;
    ASSERT_EQ(f.train("base", 4).code, 0);
  }
  RunResult tune(const std::string& out, const std::vector<std::string>& more) {
    std::vector<std::string> flags = {"--data",  "qa", "--init",    "base", "--out", out,    "--steps",     "24",
                                      "--batch", "4",  "--threads", "1",    "--lr",  "3e-3", "--val-every", "8"};
    flags.insert(flags.begin(), "train");
    flags.insert(flags.end(), more.begin(), more.end());
    return run_crest(flags, f.options());
  }
  TrainFolder f;
};

}  // namespace

TEST_F(FineTune, LossFallsAndValidationIsThatOfEval) {
  for (std::string packing : {"stream", "documents"}) {
    SCOPED_TRACE(packing);
    RunResult r = tune(packing, {"--packing", packing, "--val-batches", "1000", "--precision", "fp32"});
    ASSERT_EQ(r.code, 0) << r.err;
    EXPECT_EQ(contains(r.err, "% filled"), packing == "documents") << r.err;
    auto log = f.log(packing);
    double first = 0, last = 0, validation = 0;
    for (auto& row : log) {
      if (row.contains("val_loss")) validation = row["val_loss"];
      if (row.contains("loss")) last = row["loss"], first = first == 0 ? last : first;
    }
    EXPECT_LT(last, 0.7 * first);
    RunResult e = run_crest({"eval", "--run", packing, "--data", "qa", "--packing", packing, "--precision", "fp32",
                             "--threads", "1", "--json"},
                            f.options());
    ASSERT_EQ(e.code, 0) << e.err;
    // Training leaves out the last part of a window, and eval reads it. So the losses are equal
    // only with documents.
    EXPECT_NEAR(e.json()["loss"].get<double>(), validation, packing == "documents" ? 1e-5 : 0.15 * validation);
    RunResult info = run_crest({"data", "info", "qa", "--json"}, f.options());
    if (packing == "documents") {
      EXPECT_EQ(e.json()["tokens"], info.json()["val_targets"]);
    }
    EXPECT_LE(e.json()["tokens"].get<int64_t>(), info.json()["val_targets"].get<int64_t>());
  }
}

TEST_F(FineTune, PackedRunsContinueBitForBit) {
  std::vector<std::string> flags = {"--packing",       "documents", "--save-every", "0", "--grad-accumulation", "2",
                                    "--data-parallel", "2",         "--prefetch",   "3", "--dropout",           "0.1"};
  ASSERT_EQ(tune("straight", flags).code, 0);
  for (const char* cut : {"1", "11"}) {
    std::string run = std::string("cut") + cut;
    auto first = flags;
    first.insert(first.end(), {"--stop-after", cut});
    ASSERT_EQ(tune(run, first).code, 0);
    RunResult r = f.resume(run);
    ASSERT_EQ(r.code, 0) << r.err;
    EXPECT_TRUE(f.last_state(run) == f.last_state("straight")) << "weights, moments or position differ";
    EXPECT_EQ(f.timeless_log(run), f.timeless_log("straight"));
  }
}

TEST_F(FineTune, ThePlanHoldsTheRowsPositions) {
  auto bytes = [&](const char* packing) {
    RunResult r =
        run_crest({"plan", "--model", "tiny.toml", "--batch", "4", "--packing", packing, "--json"}, f.options());
    EXPECT_EQ(r.code, 0) << r.err;
    return r.json();
  };
  EXPECT_NE(bytes("stream").dump(), bytes("documents").dump());
  RunResult r = run_crest({"program", "--model", "tiny.toml", "--packing", "documents"}, f.options());
  EXPECT_TRUE(contains(r.out, "%positions")) << r.out.substr(0, 2000);
  r = run_crest({"program", "--model", "tiny.toml"}, f.options());
  EXPECT_FALSE(contains(r.out, "%positions"));
}

TEST_F(FineTune, WhatCannotBePackedIsRefused) {
  expect_error({"train", "--data", "qa", "--model", "tiny.toml", "--packing", "document"}, 2,
               {"--packing", "documents"}, f.options());
  std::filesystem::create_directories(f.path() / "bare");
  std::filesystem::copy(f.path() / "data/train-000000.bin", f.path() / "bare/train-000000.bin");
  expect_error({"train", "--data", "bare", "--model", "tiny.toml", "--packing", "documents"}, 1,
               {"the data has no tokenizer", "crest data prepare"}, f.options());
  std::filesystem::remove(f.path() / "qa/train-000000.mask");
  expect_error({"train", "--data", "qa", "--model", "tiny.toml"}, 1, {"no loss masks", "meta.json"}, f.options());
}

// From a compressed file of conversations to a continued run.
TEST(FineTuneChat, TrainReadsConversations) {
  TrainFolder f;
  std::string lines;
  for (int i = 0; i < 60; ++i)
    lines +=
        "{\"messages\": [{\"role\": \"user\", \"content\": \"question\"}, {\"role\": \"assistant\", \"content\": "
        "\"answer " +
        std::to_string(i % 7) + "\"}]}\n";
  f.write("chat.jsonl.gz", gzipped(lines));
  RunResult r = run_crest({"train", "chat.jsonl.gz", "--chat-template", "alpaca", "--model", "tiny.toml", "--batch",
                           "2", "--steps", "3", "--threads", "1", "--packing", "documents"},
                          f.options());
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(contains(r.err, "60 conversations with the chat template alpaca")) << r.err;
  EXPECT_TRUE(std::filesystem::exists(f.path() / "runs/chat/config.toml")) << r.err;
  r = run_crest({"train", "--resume", "runs/chat", "--steps", "4", "--threads", "1"}, f.options());
  EXPECT_EQ(r.code, 0) << r.err;
  expect_error({"train", "chat.jsonl.gz", "--chat-template", "alpaka", "--steps", "1"}, 2,
               {"--chat-template", "'alpaka'", "alpaca"}, f.options());
}
