// crest calibrate and crest tune for several ranks: here in processes, elsewhere by prediction.
#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "cli/ranks.h"
#include "core/io.h"
#include "tune/tiny_calibration.h"

namespace crest::test {

namespace {

// Two ranks with a thread each; the calibration is of one thread.
const Flags tiny_ranks = {"--model=nano", "--vocab=256",       "--seq=16",         "--precision=fp32", "--threads=2",
                          "--ranks=2",    "--attention=flash", "--recompute=none", "--loss-chunk=auto"};

std::string calibration_in(const TempFolder& folder) {
  std::string path = (folder.path() / "here.json").string();
  save(tiny_calibration(), path);
  return path;
}

std::vector<std::string> flags_of(const std::string& command) {
  EXPECT_EQ(command.rfind("crest train TEXT ", 0), 0u) << command;
  std::vector<std::string> words;
  std::istringstream in(command.substr(17));
  for (std::string flag; in >> flag;) words.push_back(flag);
  return words;
}

bool has(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

}  // namespace

TEST(CalibrateRanks, PlansArePredictedWithWhatWasMeasured) {
  NEEDS_RANKS();
  TempFolder folder;
  std::string file = calibration_in(folder);
  Flags plan = Flags{"plan", "--json", "--for=step", "--calibration=" + file} + tiny_ranks;
  expect_error(plan, 2, {"--calibration", "crest calibrate --ranks"});
  Flags calibrate = {"calibrate", "--add", "--out=" + file, "--threads=2", "--max-seconds=0.01"};
  RunResult r = run_crest(calibrate + Flags{"--ranks=2"});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(contains(r.out, "all-reduce of fp32") && contains(r.out, "crest plan --ranks 2")) << r.out;
  Calibration known = load_calibration(file);
  EXPECT_EQ(known.threads, 1) << "of a rank";
  EXPECT_EQ(known.times.steps(), tiny_calibration().times.steps()) << "no step was measured";
  EXPECT_TRUE(known.collectives.covers(2, false));
  for (auto& t : known.collectives.tables()) {
    EXPECT_EQ(t.ranks, 2);
    EXPECT_EQ(t.library.rfind("gloo ", 0), 0u) << t.library;
    EXPECT_TRUE(t.date.starts_with("20") && t.date.ends_with("Z")) << t.date;
    EXPECT_FALSE(t.crest_version.empty());
    EXPECT_GE(t.points.size(), 4u);
  }
  RunResult planned = run_crest(plan);
  ASSERT_EQ(planned.code, 0) << planned.err;
  auto time = planned.json()["time"];
  ASSERT_TRUE(time.is_object()) << planned.out;
  EXPECT_EQ(time["collectives"]["source"], "measured");
  EXPECT_GT(time["collectives_ms"], 0);
  EXPECT_GT(time["step_ms"].get<double>(), time["collectives_ms"].get<double>());
  Flags text = plan;
  text.erase(text.begin() + 1);
  RunResult said = run_crest(text);
  EXPECT_TRUE(contains(said.out, "2 ranks of one host") && contains(said.out, "as measured between 2 ranks (gloo "))
      << said.out;

  // Measuring the steps anew keeps the measurements between ranks.
  expect_error({"calibrate", "--out=" + file, "--threads=1", "--memory-limit=1MB"}, 3,
               {"the collectives of " + known.collectives.tables()[0].date + " stay"});
  expect_error(calibrate + Flags{"--ranks=1"}, 2, {"--ranks", "from 2 to"});
  expect_error(calibrate + Flags{"--ranks=2,x"}, 2, {"--ranks", "'x'"});
  expect_error(calibrate + Flags{"--ranks=2,4"}, 2, {"--ranks", "share its threads"});
  RunOptions launched;
  launched.environment = rank_variables(0, free_port());
  expect_error(calibrate + Flags{"--ranks=2"}, 2, {"torchrun", "without a launcher"}, launched);
}

TEST(TuneRanks, MeasuresInProcessesAndPrintsACommandThatRuns) {
  NEEDS_RANKS();
  TempFolder folder;
  Flags flags = Flags{"tune",        "--json",           "--max-seconds=0.02",
                      "--measure=2", "--global-batch=4", "--calibration=" + calibration_in(folder)} +
                tiny_ranks;
  RunResult r = run_crest(flags);
  ASSERT_EQ(r.code, 0) << r.err;
  auto json = r.json();
  EXPECT_EQ(json["basis"], "measured");
  EXPECT_EQ(json["measured"], 2);
  EXPECT_GT(json["best"]["final_ms"], 0);
  ASSERT_TRUE(json["finals"].is_object());
  std::vector<std::string> shards;
  for (auto& c : json["candidates"]) {
    EXPECT_EQ(c["tokens_per_step"], 4 * 16) << "the global batch stays";
    EXPECT_GT(c["predicted_ms"], 0) << c;
    shards.push_back(c["changes"].value("shard", "none"));
  }
  for (const char* shard : {"none", "optimizer", "gradients", "weights"})
    EXPECT_TRUE(has(shards, shard)) << shard << " was not tried";
  std::vector<std::string> command = flags_of(json["command"]);
  EXPECT_TRUE(has(command, "--ranks=2")) << json["command"];
  RunResult plan = run_crest(Flags{"plan", "--json"} + command);
  ASSERT_EQ(plan.code, 0) << plan.err;
  EXPECT_EQ(plan.json()["memory"]["planned_bytes"], json["best"]["planned_bytes"]);
  EXPECT_EQ(plan.json()["tokens_per_step"], 4 * 16);

  expect_error(flags + Flags{"--global-batch=5"}, 2, {"--global-batch", "cannot share"});
  expect_error(flags + Flags{"--vary=ranks=1,2"}, 2, {"--vary", "share its threads"});
  expect_error({"calibrate", "--device=cpu", "--ranks=9"}, 2, {"--ranks", "9 ranks are not predicted", "at most 8"});
  expect_error(flags + Flags{"--data-parallel=2"}, 2, {"--data-parallel"});
  RunOptions launched;
  launched.environment = rank_variables(0, free_port());
  expect_error(flags, 2, {"torchrun", "without a launcher"}, launched);
}

// CREST_UPDATE_GOLDENS=1 writes it anew; read the difference before you commit it.
TEST(TuneRanks, PredictsEightH100) {
  RunResult r = run_crest({"tune", "--device=h100", "--model=gpt2-1558M", "--precision=bf16", "--ranks=8",
                           "--global-batch=256", "--attention=flash", "--pad-vocab=128", "--loss-chunk=auto",
                           "--recompute=pointwise", "--search-seconds=0"});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.err.find("measuring"), std::string::npos) << r.err;
  std::string text = r.out;  // without its own seconds
  size_t from = text.find(", none measured, in "), to = text.find("; *", from);
  ASSERT_NE(to, std::string::npos) << text;
  text.erase(from + 15, to - from - 15);
  std::string file = std::string(CREST_TEST_DIR) + "/cli/fixtures/tune_8_h100.txt";
  if (getenv("CREST_UPDATE_GOLDENS")) write_file_atomic(file, text);
  EXPECT_EQ(text, read_file(file, 1 << 20));
}

// Four ranks cannot share six sequences. A step with another batch is no candidate.
TEST(TuneRanks, KeepsTheGlobalBatchThatSomeNumbersCannotShare) {
  auto json = run_crest({"tune", "--json", "--device=h100", "--model=gpt2-124M", "--ranks=1,4", "--global-batch=6",
                         "--recompute=none", "--attention=flash", "--pad-vocab=128", "--loss-chunk=auto"})
                  .json();
  EXPECT_GT(json["not_allowed"], 0);
  for (auto& c : json["candidates"]) EXPECT_EQ(c["tokens_per_step"], 6 * 1024) << c["changes"];
}

// Ranks along the pipeline axis share no sequences. Every stage has to fit.
TEST(TuneRanks, StagesKeepTheGlobalBatch) {
  RunResult r = run_crest({"tune", "--json", "--device=h100", "--model=gpt2-124M", "--mesh=pipeline=2",
                           "--global-batch=8", "--recompute=none", "--attention=flash", "--pad-vocab=128",
                           "--loss-chunk=auto", "--vary=schedule-pipeline=1f1b,interleaved:2"});
  ASSERT_EQ(r.code, 0) << r.err;
  auto json = r.json();
  bool interleaved = false;
  for (auto& c : json["candidates"]) {
    EXPECT_EQ(c["tokens_per_step"], 8 * 1024) << c["changes"];
    EXPECT_GT(c["predicted_ms"], 0) << c["changes"];
    interleaved |= c["changes"].contains("schedule-pipeline");
  }
  EXPECT_TRUE(interleaved) << "four stages have a cut of their own";
}

// The order of the list does not matter. The search starts with a number of ranks that can share
// the batch.
TEST(TuneRanks, StartsWithANumberThatCanShareTheGlobalBatch) {
  Flags flags = {"tune",
                 "--json",
                 "--device=h100",
                 "--model=gpt2-124M",
                 "--recompute=none",
                 "--attention=flash",
                 "--pad-vocab=128",
                 "--loss-chunk=auto"};
  for (const char* list : {"--ranks=4,2", "--ranks=2,4,4"}) {
    RunResult r = run_crest(flags + Flags{list, "--global-batch=6"});
    ASSERT_EQ(r.code, 0) << list << "\n" << r.err;
    for (auto& c : r.json()["candidates"]) EXPECT_EQ(c["tokens_per_step"], 6 * 1024) << list << c["changes"];
  }
  expect_error(flags + Flags{"--ranks=4,8", "--global-batch=6"}, 2,
               {"--global-batch", "4 ranks cannot share", "--ranks"});
  expect_error(flags + Flags{"--ranks=2,x"}, 2, {"--ranks", "'x'"});
}

TEST(TuneRanks, ComparesNumbersOfGpusThatAreNotHere) {
  Flags flags = {"tune",
                 "--json",
                 "--device=h100",
                 "--model=gpt2-124M",
                 "--global-batch=64",
                 "--recompute=none",
                 "--attention=flash",
                 "--pad-vocab=128",
                 "--loss-chunk=auto"};
  RunResult r = run_crest(flags + Flags{"--ranks=1,2,8"});
  ASSERT_EQ(r.code, 0) << r.err;
  auto json = r.json();
  EXPECT_EQ(json["basis"], "predicted");
  EXPECT_EQ(json["measured"], 0);
  EXPECT_EQ(json["best"]["changes"]["ranks"], "8");
  for (auto& c : json["candidates"]) {
    EXPECT_EQ(c["tokens_per_step"], 64 * 1024);
    EXPECT_TRUE(c["measured_ms"].is_null());
    // One rank has nothing to share.
    EXPECT_TRUE(c["changes"].contains("ranks") || !c["changes"].contains("shard")) << c;
  }
  // The prediction equals crest plan's for the command.
  RunResult plan = run_crest(Flags{"plan", "--json", "--for=step", "--device=h100"} + flags_of(json["command"]));
  ASSERT_EQ(plan.code, 0) << plan.err;
  EXPECT_NEAR(plan.json()["time"]["step_ms"].get<double>() / json["best"]["predicted_ms"].get<double>(), 1, 1e-6);

  RunResult one = run_crest(flags);
  EXPECT_EQ(one.json()["basis"], "predicted") << one.err;
  expect_error(flags + Flags{"--measure=3"}, 2, {"--measure", "this machine does not have"});
  expect_error({"tune", "--device=l40s", "--model=gpt2-124M", "--batch=4", "--ranks=16"}, 2, {"16 ranks", "network"});
  expect_error(flags + Flags{"--ranks=8", "--memory-limit=1GiB"}, 3,
               {"none of the combinations fits 1.00 GiB, the memory of a rank", "closest", "offload", "more --ranks"});
}

// Without shards, the state of 1558M does not fit into 16 GiB. In host memory it does.
TEST(TuneRanks, MovesStateToTheHostWhereNothingElseFits) {
  Flags flags = {"tune",         "--json",           "--device=h100",     "--model=gpt2-1558M", "--batch=1",
                 "--seq=256",    "--recompute=full", "--attention=flash", "--pad-vocab=128",    "--loss-chunk=auto",
                 "--shard=none", "--ranks=2"};
  RunResult r = run_crest(flags + Flags{"--memory-limit=16GiB"});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.json()["best"]["changes"]["offload"], "optimizer");
  EXPECT_TRUE(r.json()["start"].is_null());
  RunResult more = run_crest(flags + Flags{"--memory-limit=60GiB"});
  EXPECT_FALSE(more.json()["best"]["changes"].contains("offload")) << "only where nothing fits without";
}

}  // namespace crest::test
