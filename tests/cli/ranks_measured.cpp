// crest bench and profile in several processes, and their refusals.
#include "cli/ranks.h"

namespace crest::test {

// The times of every rank add up to its step, and compare shows the cost of the second rank.
TEST(Ranks, ProfilesSayWhatEachDid) {
  NEEDS_RANKS();
  TrainFolder f;
  Flags flags = {"profile",
                 "--model",
                 "tiny.toml",
                 "--batch",
                 "4",
                 "--threads",
                 "2",
                 "--samples",
                 "6",
                 "--rates",
                 "bandwidth=1e10,fp32=1e11,bf16=1e12",
                 "--store",
                 "store.db"};
  Flags two = {"--ranks", "2", "--reduce", "bucket", "--bucket", "20kB"};
  RunResult r = run_crest(flags + two + Flags{"--json", "--name", "two"}, f.options());
  ASSERT_EQ(r.code, 0) << r.err;
  auto p = r.json();
  ASSERT_EQ(p["ranks"].size(), 2u) << "one document, of rank 0";
  auto profiled = p["profiled_ms"].get<std::vector<double>>();
  std::sort(profiled.begin(), profiled.end());
  double middle = (profiled[1] + profiled[2] + profiled[3] + profiled[4]) / 4;  // the middle half, as the docs say
  for (auto& rank : p["ranks"]) {
    SCOPED_TRACE(rank.dump());
    double sum = 0;
    for (const char* part : {"compute_ms", "exposed_ms", "host_ms", "idle_ms"}) sum += rank[part].get<double>();
    for (auto& ms : rank["waiting_ms"]) sum += ms.get<double>();
    EXPECT_EQ(rank["waiting_ms"].size(), 2u);
    EXPECT_EQ(rank["waiting_ms"][rank["rank"].get<size_t>()], 0) << "nobody waits for itself";
    EXPECT_GT(rank["exposed_ms"].get<double>() + rank["hidden_ms"].get<double>(), 0);
    if (rank["rank"] == 0) {
      EXPECT_NEAR(sum / middle, 1, 0.02);
    }
    EXPECT_NEAR(rank["offset_ms"].get<double>(), 0, 5) << "one machine has one clock";
  }
  RunResult text = run_crest(flags + two + Flags{"--no-store"}, f.options());
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_TRUE(contains(text.out, "waiting for")) << text.out;
  ASSERT_EQ(run_crest(flags + Flags{"--name", "one"}, f.options()).code, 0);
  RunResult c = run_crest({"compare", "one", "two", "--store", "store.db", "--json"}, f.options());
  ASSERT_EQ(c.code, 0) << c.err;
  auto scaling = c.json()["scaling"];
  EXPECT_EQ(scaling["more_ranks"], 2);
  double lost = 0;
  for (auto& row : scaling["rows"]) lost += row["ms"].get<double>();
  EXPECT_NEAR(lost, scaling["lost_ms"].get<double>(), 1e-6);
  RunResult report =
      run_crest({"report", "one", "two", "--store", "store.db", "-o", "r.md", "--no-figures"}, f.options());
  ASSERT_EQ(report.code, 0) << report.err;
  EXPECT_TRUE(contains(f.read("r.md"), "Scaling over ranks"));
}

TEST(Ranks, BenchMeasuresAllOfThem) {
  NEEDS_RANKS();
  TrainFolder f;
  Flags flags = {"bench", "--model", "tiny.toml", "--batch",   "1,2", "--phase",  "all",   "--threads",
                 "2",     "--ranks", "2",         "--samples", "2",   "--no-mfu", "--json"};
  RunResult r = run_crest(flags, f.options());
  ASSERT_EQ(r.code, 0) << r.err;
  auto rows = r.json();
  ASSERT_EQ(rows.size(), 6u) << "one document, of rank 0";
  for (auto& row : rows) {
    EXPECT_EQ(row["recipe"]["ranks"], 2);
    double tokens = 2 * row["recipe"]["batch"].get<double>() * 32;
    EXPECT_NEAR(row["tokens_per_second"].get<double>() * row["step_ms_median"].get<double>() / 1e3, tokens, 1e-6);
    EXPECT_EQ(row["memory"]["planned_bytes"], row["memory"]["measured_peak_bytes"]) << "of one rank";
  }
  expect_error({"bench", "--model", "tiny.toml", "--ranks", "2", "--noise"}, 2, {"--ranks"}, f.options());
  expect_error({"bench", "--model", "tiny.toml", "--ranks", "1,2"}, 2,
               {"--ranks 1,2 is a list", "once for each number"}, f.options());
}

// All parts of the step and of each stage are there.
static void expect_explained(const nlohmann::json& p) {
  SCOPED_TRACE(p.dump());
  double sum = 0;
  for (const char* part : {"ideal_ms", "warm_up_ms", "drain_ms", "imbalance_ms", "transfers_ms", "other_ms", "rest_ms"})
    sum += p[part].get<double>();
  EXPECT_NEAR(sum, p["step_ms"].get<double>(), 1e-6);
  EXPECT_GT(p["ideal_ms"], 0);
  EXPECT_GT(p["rest_ms"], 0);
  ASSERT_EQ(p["stages"].size(), 2u);
  for (auto& stage : p["stages"]) {
    double own = 0;
    for (auto& ms : stage["waiting_ms"]) own += ms.get<double>();
    for (const char* part : {"compute_ms", "transfer_ms", "rest_ms"}) {
      EXPECT_GE(stage[part], 0) << part;
      own += stage[part].get<double>();
    }
    EXPECT_NEAR(own, stage["step_ms"].get<double>(), 1e-6);
  }
  EXPECT_EQ(p["stages"][0]["parts"].size(), 2u);
  EXPECT_EQ(p["stages"][1]["parts"].size(), 1u) << "both passes of the last stage are one";
  EXPECT_EQ(p["stages"][0]["waiting_ms"]["warm_up"], 0) << "the first stage waits for nobody";
  EXPECT_LE(p["bubble"]["measured_low"], p["bubble"]["measured"]);
}

TEST(Ranks, StagesExplainTheirBubble) {
  NEEDS_RANKS();
  TrainFolder f;
  const Flags flags = {"--model",    "tiny.toml",           "--batch", "2",         "--threads", "2",         "--mesh",
                       "pipeline=2", "--grad-accumulation", "4",       "--samples", "2",         "--no-store"};
  RunResult bench = run_crest(Flags{"bench", "--no-mfu", "--json"} + flags, f.options());
  ASSERT_EQ(bench.code, 0) << bench.err;
  expect_explained(bench.json()[0]["pipeline"]);
  RunResult profile = run_crest(Flags{"profile", "--rates", "bandwidth=1e10,fp32=1e11,bf16=1e12"} + flags, f.options());
  ASSERT_EQ(profile.code, 0) << profile.err;
  for (const char* text : {"imbalance", "simulated with the measured passes", "planned by FLOPs"})
    EXPECT_TRUE(contains(profile.out, text)) << profile.out;
  // Training measures its fourth to sixth step.
  const Flags stages = {"--mesh", "pipeline=2", "--grad-accumulation", "4", "--overwrite", "--json"};
  expect_explained(f.train("staged", 7, stages).json()["pipeline"]);
  EXPECT_FALSE(f.train("staged", 5, stages).json().contains("pipeline"));
}

// Visible only to the processes themselves: one of them has less memory than the plan needs.
TEST(Ranks, ThatDoNotFitSayWhatWould) {
  NEEDS_RANKS();
  TrainFolder f;
  RunResult r = f.train("run", 1, {"--ranks", "2", "--memory-limit", "1MiB"});
  EXPECT_EQ(r.code, 3) << r.err;
  EXPECT_TRUE(contains(r.err, "for each of 2 ranks")) << r.err;
  expect_one_error(r);
}

TEST(Ranks, BadNumbersAreRefused) {
  NEEDS_RANKS();
  TrainFolder f;
  Flags train = {"train", "--data", "data", "--model", "tiny.toml", "--out", "run", "--steps", "1"};
  expect_error(train + Flags{"--ranks", "0"}, 2, {"--ranks"}, f.options());
  expect_error(train + Flags{"--ranks", "2", "--data-parallel", "2"}, 2, {"--ranks 2 and --data-parallel 2"},
               f.options());
  RunOptions o = f.options();
  for (auto& v : rank_variables(0, free_port())) o.environment.push_back(v);
  expect_error(train + Flags{"--ranks", "3"}, 2, {"--ranks 3, but torchrun started 2 processes"}, o);
  expect_error(train + Flags{"--mesh", "tensor=4"}, 2, {"--mesh tensor=4, but torchrun started 2", "a mesh of 2 ranks"},
               o);
  expect_error(train + Flags{"--restarts", "3"}, 2, {"--restarts 3, but torchrun started the processes"}, o);
}

}  // namespace crest::test
