// crest train on several data folders.
#include <fmt/format.h>

#include "cli/ranks.h"
#include "cli/train_harness.h"

using namespace crest::test;

namespace {

// data: 400 words; more: 150 other words. Both in bytes.
class MixtureFolder : public TrainFolder {
 public:
  MixtureFolder() {
    write("more.txt", sample_text(550).substr(sample_text(400).size()));
    RunResult r = run_crest({"data", "prepare", "more.txt", "--tokenizer", "bytes", "--out", "more"}, options());
    EXPECT_EQ(r.code, 0) << r.err;
  }
  RunResult mix(const std::string& out, const std::vector<std::string>& more) const {
    std::vector<std::string> flags = {"--json", "--val-every", "4", "--precision", "fp32", "--save-every", "0"};
    flags.insert(flags.end(), more.begin(), more.end());
    return train(out, 12, flags);
  }
};

const std::vector<std::string> two_sources = {"--data", "data:0.7", "--data", "more:0.3"};

std::vector<std::string> with(std::vector<std::string> flags, const std::vector<std::string>& more) {
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

}  // namespace

TEST(Mixture, IsStatedRecordedAndContinuesBitForBit) {
  MixtureFolder f;
  RunResult straight = f.mix("straight", two_sources);
  ASSERT_EQ(straight.code, 0) << straight.err;
  EXPECT_TRUE(contains(straight.err, "data     70% data (")) << straight.err;
  EXPECT_TRUE(contains(straight.err, ", 30% more (")) << straight.err;
  EXPECT_TRUE(contains(straight.err, "passes   ")) << straight.err;
  const std::string config = f.read("straight/config.toml");
  EXPECT_TRUE(
      contains(config, fmt::format("data = [\"{}/data:0.7\", \"{}/more:0.3\"]", f.path().string(), f.path().string())))
      << config;
  const auto result = straight.json();
  ASSERT_EQ(result["sources"].size(), 2u);
  EXPECT_EQ(result["sources"][1]["source"], "more");
  EXPECT_EQ(result["sources"][1]["share"], 0.3);
  // 24 samples of bytes in windows of 32: the passes are counted by the windows of each.
  double windows = 0;
  for (auto& source : result["sources"]) windows += 24 * source["share"].get<double>() / source["epochs"].get<double>();
  EXPECT_NEAR(result["epochs"].get<double>(), 24 / windows, 1e-9);
  int validations = 0;
  for (auto& row : f.log("straight")) {
    if (!row.contains("val_loss")) continue;
    ++validations;
    const double mean = 0.7 * row["val_losses"]["data"].get<double>() + 0.3 * row["val_losses"]["more"].get<double>();
    EXPECT_NEAR(row["val_loss"].get<double>(), mean, 1e-12);
    EXPECT_NE(row["val_losses"]["data"], row["val_losses"]["more"]);
  }
  EXPECT_EQ(validations, 4);
  EXPECT_EQ(result["sources"][0]["val_loss"], f.log("straight").back()["val_losses"]["data"]);

  // The first part reads ahead in two threads, and the second does not.
  RunResult cut = f.mix("cut", with(two_sources, {"--stop-after", "5", "--prefetch", "3", "--loader-threads", "2"}));
  ASSERT_EQ(cut.code, 0) << cut.err;
  RunResult resumed = f.resume("cut", {"--prefetch", "0"});
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_FALSE(contains(resumed.err, "different data")) << resumed.err;
  EXPECT_TRUE(f.last_state("cut") == f.last_state("straight"));
  EXPECT_EQ(f.timeless_log("cut"), f.timeless_log("straight"));
  RunResult changed = f.resume("cut", {"--data", "data:0.5", "--data", "more:0.5", "--steps", "14"});
  ASSERT_EQ(changed.code, 0) << changed.err;
  EXPECT_TRUE(contains(changed.err, "with the weights 7:3 of its sources, and continues with 1:1")) << changed.err;
  expect_error({"eval", "--run", "straight"}, 2, {"a mixture of 2 sources", "--data " + f.path().string() + "/more"},
               f.options());
}

TEST(Mixture, RanksTakeTheSameSamples) {
  NEEDS_RANKS();
  MixtureFolder f;
  const std::vector<std::string> flags = {"--packing", "documents", "--threads", "2"};
  RunResult threads = f.mix("threads", with(with(two_sources, flags), {"--data-parallel", "2"}));
  ASSERT_EQ(threads.code, 0) << threads.err;
  f.write("mix.toml",
          "data = [\"data:7\", \"more:3\"]\nmodel = \"tiny.toml\"\nbatch = 2\nsteps = 12\nval_every = 4\n"
          "precision = \"fp32\"\nsave_every = 0\nout = \"processes\"\n");
  RunResult processes = run_crest(with({"train", "--config", "mix.toml", "--ranks", "2"}, flags), f.options());
  ASSERT_EQ(processes.code, 0) << processes.err;
  EXPECT_TRUE(f.last_state("threads") == f.last_state("processes")) << "a list in TOML, with other units";
  EXPECT_EQ(f.timeless_log("threads"), f.timeless_log("processes"));
}

TEST(Mixture, BadInputIsOneClearError) {
  MixtureFolder f;
  ASSERT_EQ(run_crest({"data", "prepare", "text.txt", "--tokenizer", "bpe:300", "--out", "bpe"}, f.options()).code, 0);
  auto error = [&](const std::vector<std::string>& data, int code, const std::vector<std::string>& said) {
    std::vector<std::string> flags = {"train", "--model", "tiny.toml", "--steps", "1"};
    for (auto& value : data) flags.insert(flags.end(), {"--data", value});
    expect_error(flags, code, said, f.options());
  };
  error({"data:0.5", "bpe:0.5"}, 1, {"different tokenizers", "bpe", "data/tokenizer.json"});
  error({"data", "more"}, 2, {"'data' has no weight", "--data data/web:0.7"});
  error({"data:1", "more:0"}, 2, {"the weight of 'more' is 0"});
  error({"data:1", "nowhere:1"}, 1, {"no such data folder", "nowhere"});
  error({"data:1", "-"}, 2, {"standard input cannot be part of a mixture"});
  EXPECT_FALSE(f.exists("runs")) << "nothing begins";
}
