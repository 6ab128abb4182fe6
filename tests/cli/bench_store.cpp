// crest bench: its records, noise floors, and continued grids.
#include <cmath>

#include "run.h"
#include "slowness.h"
#include "store/noise_floor.h"
#include "store/store.h"

using namespace crest::test;
using crest::RunRecord;
using crest::Store;
using Json = nlohmann::ordered_json;

namespace {

class BenchStore : public testing::Test {
 protected:
  TempFolder folder_;
  std::string model_ = folder_.write("tiny.toml", tiny_model);
  std::string file_ = folder_ / "runs.db";

  std::vector<std::string> command(std::vector<std::string> flags) const {
    std::vector<std::string> all = {"bench", "--model", model_, "--no-mfu", "--threads", "1", "--store", file_};
    all.insert(all.end(), flags.begin(), flags.end());
    return all;
  }
  RunResult bench(std::vector<std::string> flags) {
    RunResult r = run_crest(command(std::move(flags)), {.folder = folder_.path().string()});
    EXPECT_EQ(r.code, 0) << r.err;
    return r;
  }
  // Whole records, oldest first.
  std::vector<RunRecord> records() const {
    Store store(file_);
    std::vector<RunRecord> all;
    for (auto& r : store.list()) all.insert(all.begin(), store.load(r.id));
    return all;
  }
};

Json ordered(const RunResult& r) { return Json::parse(r.out); }

}  // namespace

TEST_F(BenchStore, EveryMeasurementIsARecord) {
  RunResult r = bench({"--batch", "1,2", "--samples", "4", "--name", "my cells", "--json"});
  Json rows = ordered(r);
  auto all = records();
  ASSERT_EQ(all.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    const RunRecord& run = all[i];
    EXPECT_EQ(run.kind, "bench");
    EXPECT_EQ(run.status, "done");
    EXPECT_EQ(run.name, "my cells");
    EXPECT_EQ(run.phase, "step");
    EXPECT_EQ(run.result, rows[i]) << "the row that was printed";
    EXPECT_EQ(run.recipe, rows[i]["recipe"]);
    EXPECT_EQ(run.device["kind"], "cpu");
    EXPECT_NE(run.command.find("crest bench --model"), std::string::npos) << run.command;
    EXPECT_NE(run.command.find("'my cells'"), std::string::npos) << run.command;
    ASSERT_EQ(run.samples.size(), 4u);
    EXPECT_EQ(run.samples[3].round, 3);
    double sum = 0;
    for (auto& s : run.samples) sum += s.ms;
    EXPECT_NEAR(sum / 4, run.result["step_ms_mean"].get<double>(), 1e-9);
    EXPECT_TRUE(run.environment["libraries"].contains("oneDNN"));
    EXPECT_TRUE(run.environment["conditions"].contains("other_load"));
    EXPECT_TRUE(run.environment_after["conditions"].contains("cpu_steal_seconds"));
  }
  EXPECT_EQ(all[0].grid, all[1].grid);
  EXPECT_FALSE(all[0].grid.empty());
  EXPECT_NE(all[0].key, all[1].key);
}

TEST_F(BenchStore, DocumentsSayWhatTheStepIsMadeOf) {
  bench({"--batch", "2", "--grad-accumulation", "2", "--samples", "2", "--flops-convention", "executed"});
  const RunRecord run = records().at(0);
  EXPECT_TRUE(run.grid.empty()) << "a single cell has no grid";
  const Json &plan = run.documents.at("plan"), &program = run.documents.at("program");
  EXPECT_EQ(plan["memory"]["planned_bytes"], run.result["memory"]["planned_bytes"]);
  EXPECT_EQ(plan["memory"]["by_category"], run.result["memory"]["by_category"]);
  EXPECT_FALSE(plan["memory"]["largest_blocks"].empty());
  EXPECT_EQ(plan["model"]["layers"], 2);
  EXPECT_EQ(program["calls"].size(), 3u) << "two micro steps and the update";
  double flops = 0;
  for (auto& row : program["instrs"]) {
    for (const char* key : {"program", "index", "op", "parts", "kernel", "phase", "lane", "op_class", "scopes", "layer",
                            "type", "arithmetic", "calls", "flops", "bytes"})
      ASSERT_TRUE(row.contains(key)) << key;
    flops += row["flops"].get<double>();
  }
  double tflops = run.result["model_tflops"], seconds = run.result["step_ms_median"].get<double>() / 1e3;
  EXPECT_NEAR(flops / (tflops * 1e12 * seconds), 1, 1e-9) << "the sum of the rows is what is executed";
}

TEST_F(BenchStore, KeysAreEqualForRepetitionsOnly) {
  bench({"--batch", "2", "--samples", "2"});
  bench({"--batch", "2", "--samples", "3", "--seed", "7"});
  bench({"--batch", "2", "--samples", "2", "--flush-cache"});
  bench({"--batch", "2", "--samples", "2", "--phase", "forward"});
  bench({"--batch", "2", "--samples", "2", "--threads", "2"});  // with the 1 of all commands here: two measurements
  folder_.write("tiny.toml", std::string(tiny_model) + "dropout = 0.0\n");
  bench({"--batch", "2", "--samples", "2"});
  std::string text = tiny_model;
  text.replace(text.find("layers = 2"), 10, "layers = 1");
  folder_.write("tiny.toml", text);
  bench({"--batch", "2", "--samples", "2"});
  auto all = records();
  ASSERT_EQ(all.size(), 8u);
  EXPECT_EQ(all[0].key, all[1].key);
  for (size_t i : {2u, 3u, 5u, 7u}) EXPECT_NE(all[0].key, all[i].key) << i;
  EXPECT_EQ(all[0].key, all[4].key) << "the same number of threads";
  EXPECT_EQ(all[0].key, all[6].key) << "the same model, written differently";
}

TEST_F(BenchStore, WhatDoesNotFitIsRecordedToo) {
  bench({"--batch", "1,4096", "--memory-limit", "64MiB", "--samples", "2"});
  auto all = records();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[1].status, "out_of_memory");
  EXPECT_EQ(all[1].result["error"], "out_of_memory");
  EXPECT_TRUE(all[1].documents.count("plan"));
  EXPECT_TRUE(all[1].samples.empty());
  RunResult alone = run_crest(command({"--batch", "4096", "--memory-limit", "64MiB"}));
  EXPECT_EQ(alone.code, 3);
  EXPECT_EQ(records().back().status, "out_of_memory");
  EXPECT_NE(records().back().error.find("the plan needs"), std::string::npos);
}

TEST_F(BenchStore, AComparisonIsARecordOfEachSide) {
  Json j = ordered(bench({"--batch", "1", "--ab", "--batch 2", "--samples", "6", "--json"}));
  auto all = records();
  ASSERT_EQ(all.size(), 2u);
  const RunRecord &a = all[0], &b = all[1];
  EXPECT_EQ(a.grid, b.grid);
  EXPECT_EQ(a.recipe["batch"], 1);
  EXPECT_EQ(b.recipe["batch"], 2);
  EXPECT_EQ(a.result, j["rows"][0]);
  EXPECT_EQ(b.result, j["rows"][1]);
  std::map<std::string, std::set<int>> rounds;
  for (auto* r : {&a, &b})
    for (auto& s : r->samples) EXPECT_TRUE(rounds[s.contender].insert(s.round).second);
  EXPECT_EQ(rounds.size(), 2u);
  for (const char* who : {"a", "b"}) EXPECT_EQ(rounds[who].size(), 6u) << who;
  EXPECT_EQ(b.samples.size(), 6u) << "each side has its own";
  const Json& comparison = a.documents.at("comparison");
  EXPECT_EQ(comparison["ratio"], j["comparison"]["ratio"]);
  EXPECT_EQ(comparison["runs"]["a"], a.uid);
  EXPECT_EQ(comparison["runs"]["b"], b.uid);
  EXPECT_EQ(b.documents.at("comparison"), comparison);
  EXPECT_TRUE(b.documents.count("program"));
  // From now on, A's difference from itself is known.
  Store store(file_);
  auto floor = noise_floor_of(store, a.key, a.device["name"].get<std::string>());
  ASSERT_TRUE(floor.has_value());
  EXPECT_DOUBLE_EQ(floor->relative, j["comparison"]["noise_floor"].get<double>());
  EXPECT_EQ(floor->run, a.id);
  EXPECT_FALSE(noise_floor_of(store, b.key, b.device["name"].get<std::string>()).has_value());
  EXPECT_FALSE(noise_floor_of(store, a.key, "another device").has_value());
}

TEST_F(BenchStore, AGridKnowsTheNoiseFloorOfItsMeasurements) {
  Json noise = ordered(bench({"--batch", "2", "--noise", "--samples", "8", "--json"}));
  ASSERT_EQ(records().size(), 1u);
  EXPECT_EQ(records()[0].kind, "noise");
  EXPECT_EQ(records()[0].samples.size(), 16u) << "a, and b, which is a as well";
  EXPECT_EQ(records()[0].result["noise_floor"], noise["comparison"]["noise_floor"]);
  Json rows = ordered(bench({"--batch", "1,2", "--samples", "6", "--json"}));
  EXPECT_FALSE(rows[0].contains("known_noise_floor"));
  EXPECT_EQ(rows[1]["known_noise_floor"]["relative"], noise["comparison"]["noise_floor"]);
  EXPECT_EQ(rows[1]["known_noise_floor"]["run"], records()[0].id);
  RunResult text = bench({"--batch", "1,2", "--samples", "6"});
  EXPECT_NE(text.out.find("noise floor"), std::string::npos) << text.out;
  // The same work in both measurements: a difference, if any, is reported with its comparison.
  RunResult same = bench({"--batch", "2", "--disable-pass", "lanes", "--weight-decay", "0.1,0.2", "--samples", "6"});
  EXPECT_NE(same.out.find("step: "), std::string::npos) << same.out;
  EXPECT_NE(same.out.find("95% interval "), std::string::npos) << same.out;
}

TEST_F(BenchStore, APeerHasARecordOfItsOwn) {
  bench({"--batch", "1", "--peer", "echo '{\"ms\": 1000}'", "--samples", "4"});
  auto all = records();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[1].kind, "peer");
  EXPECT_EQ(all[1].command, "echo '{\"ms\": 1000}'");
  EXPECT_EQ(all[1].grid, all[0].grid);
  ASSERT_EQ(all[1].samples.size(), 4u);
  EXPECT_DOUBLE_EQ(all[1].samples[0].ms, 1000);
  EXPECT_EQ(all[1].samples[0].contender, "peer");
  EXPECT_TRUE(all[1].documents.count("comparison"));
  EXPECT_EQ(run_crest(command({"--batch", "1", "--peer", "exit 3", "--samples", "4"})).code, 1);
  all = records();
  ASSERT_EQ(all.size(), 4u);
  for (size_t i : {2u, 3u}) {
    EXPECT_EQ(all[i].status, "failed");
    EXPECT_NE(all[i].error.find("exit code 3"), std::string::npos) << all[i].error;
  }
}

TEST_F(BenchStore, NoStoreRecordsNothing) {
  bench({"--batch", "1", "--samples", "2", "--no-store"});
  EXPECT_FALSE(std::filesystem::exists(file_));
  // Wrong usage makes no file either.
  run_crest(command({"--batch", "1,x"}));
  EXPECT_FALSE(std::filesystem::exists(file_));
}

TEST_F(BenchStore, AStoreThatCannotBeWrittenIsAnErrorBeforeAnythingIsMeasured) {
  auto refused = [&](const std::string& file, const std::vector<std::string>& said) {
    std::vector<std::string> flags = {"bench", "--model", model_, "--no-mfu", "--store", file};
    expect_error(flags, 1, said);
    EXPECT_EQ(run_crest(flags).err.find("[1/1]"), std::string::npos) << "nothing is measured";
  };
  refused(folder_ / "none/runs.db", {"none", "no such folder"});
  refused(folder_.path().string(), {folder_.path().string()});
  refused(folder_.write("text.db", std::string(4096, 'x')), {"text.db", "not a run database"});
  if (geteuid() != 0) {
    std::string file = folder_.write("readonly.db", "");
    chmod(file.c_str(), 0400);
    refused(file, {"readonly.db"});
  }
}

TEST_F(BenchStore, AGridIsContinuedWhereItStopped) {
  std::vector<std::string> flags = {"--batch", "1,2,3", "--samples", "3", "--json"};
  Json first = ordered(bench(flags));
  std::string grid = records()[0].grid;
  Store(file_).erase(records()[1].id);
  flags.push_back("--resume");
  RunResult again = bench(flags);
  Json rows = ordered(again);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0], first[0]);
  EXPECT_NE(rows[1]["step_ms_mean"], first[1]["step_ms_mean"]);
  EXPECT_EQ(rows[1]["recipe"], first[1]["recipe"]);
  EXPECT_EQ(rows[2], first[2]);
  EXPECT_EQ(again.err.find("[1/3]"), std::string::npos) << again.err;
  EXPECT_NE(again.err.find("[2/3]"), std::string::npos) << again.err;
  EXPECT_EQ(again.err.find("[3/3]"), std::string::npos) << again.err;
  auto all = records();
  ASSERT_EQ(all.size(), 3u);
  for (auto& r : all) EXPECT_EQ(r.grid, grid);
  // Another number of samples makes another grid.
  expect_error(command({"--batch", "1,2,3", "--samples", "4", "--resume"}), 1, {"no grid of these recipes", "--store"});
  expect_error(command({"--batch", "1", "--samples", "3", "--resume"}), 2, {"--resume", "one recipe"});
  expect_error(command({"--batch", "1,2", "--resume", "--no-store"}), 2, {"--resume"});
  expect_error(command({"--batch", "1", "--resume", "--noise"}), 2, {"--resume"});
}

TEST_F(BenchStore, AGridHasTwoRoundsTheSecondReversed) {
  RunResult r = bench({"--batch", "1,2,3", "--samples", "5", "--json"});
  std::vector<size_t> places;
  for (const char* said : {"[1/3]", "[2/3]", "[3/3]", "[3/3, round 2]", "[2/3, round 2]", "[1/3, round 2]"})
    places.push_back(r.err.find(said));
  EXPECT_TRUE(std::is_sorted(places.begin(), places.end())) << r.err;
  EXPECT_LT(places.back(), r.err.size()) << r.err;
  for (auto& row : ordered(r)) {
    EXPECT_EQ(row["samples"], 5);
    EXPECT_EQ(row["rounds"], 2);
    EXPECT_EQ(row["round_ms"].size(), 2u);
  }
  for (auto& record : records()) {
    EXPECT_EQ(record.status, "done");
    EXPECT_EQ(Store(file_).load(record.id).samples.size(), 5u);
  }
  Json one = ordered(bench({"--batch", "1", "--samples", "5", "--json"}));
  EXPECT_FALSE(one[0].contains("rounds"));
}

TEST_F(BenchStore, CtrlCKeepsWhatIsDone) {
  // The first measurement takes a moment, the second much longer.
  std::vector<std::string> flags;
  auto interrupted = [&](int samples) {
    flags = {"--batch", "1,64", "--samples", std::to_string(samples)};
    return run_crest(command(flags), {.while_running = [](const RunningProcess& process) {
                       process.wait_for_text("[2/2]");
                       kill(process, SIGINT);
                     }});
  };
  int samples = 60;
  RunResult r = interrupted(samples);
  while (r.code == 0) {  // both were measured before the signal came: more samples
    std::filesystem::remove(file_);
    r = interrupted(samples *= 4);
  }
  EXPECT_EQ(r.code, 130) << r.err;
  EXPECT_NE(r.err.find("after 1 of 2 recipes"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("--resume"), std::string::npos) << r.err;
  EXPECT_NE(r.out.find("tokens/s"), std::string::npos) << "the table of what is done\n" << r.out;
  auto all = records();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].status, "done");
  EXPECT_EQ(all[1].status, "interrupted");
  flags.push_back("--resume");
  RunResult rest = bench(flags);
  EXPECT_EQ(rest.err.find("[1/2]"), std::string::npos) << rest.err;
  EXPECT_EQ(records().size(), 3u);
}

TEST_F(BenchStore, LongGridsAskFirst) {
  std::string hundred = "1";
  for (int i = 2; i <= 100; ++i) hundred += "," + std::to_string(i);
  std::vector<std::string> flags = {"--batch", hundred, "--pad-vocab", hundred, "--samples", "1", "--peak", "1e11"};
  RunResult r = run_crest(command(flags));
  EXPECT_EQ(r.code, 2) << r.err;
  for (const char* said : {"10000 recipes", "up to about", "--yes"})
    EXPECT_NE(r.err.find(said), std::string::npos) << said << " in\n" << r.err;
  EXPECT_EQ(r.err.find("[1/"), std::string::npos) << "nothing is measured";
  EXPECT_LT(r.cpu_seconds, 20 * slowness());
  flags[3] += ",101";
  expect_error(command(flags), 2, {"more than 10000 recipes"});
  // Few, long measurements.
  expect_error(command({"--batch", "1,2", "--samples", "1000000", "--grad-accumulation", "64", "--peak", "1e11"}), 2,
               {"2 recipes take up to about", "--yes"});
}
