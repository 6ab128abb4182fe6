// crest train: the record of a run in the run store.
#include <set>

#include "store/store.h"
#include "train_harness.h"

using namespace crest::test;
using crest::RunRecord;
using crest::Store;
using Json = nlohmann::ordered_json;

namespace {

class TrainRecords : public testing::Test {
 protected:
  TrainFolder folder_;
  std::string file_ = folder_ / "runs.db";

  RunResult train(int steps, std::vector<std::string> more = {}) {
    more.insert(more.end(), {"--store", file_});
    return folder_.train("run", steps, more);
  }
  // Trains until act() sends a signal; it is called once the store has `rows` rows of the first
  // run.
  RunResult train_until(size_t rows, const std::function<void(const RunningProcess&)>& act,
                        std::vector<std::string> more = {}) {
    RunOptions o = folder_.options();
    o.while_running = [&](const RunningProcess& process) {
      process.wait(std::to_string(rows) + " recorded rows", [&] { return recorded_rows() >= rows; });
      act(process);
    };
    std::vector<std::string> a = {"train", "--data",  "data",  "--model",   "tiny.toml", "--batch", "2",  "--out",
                                  "run",   "--steps", endless, "--threads", "1",         "--store", file_};
    a.insert(a.end(), more.begin(), more.end());
    return run_crest(a, o);
  }
  size_t recorded_rows() const {
    if (!std::filesystem::exists(file_)) return 0;
    try {
      Store store(file_, Store::Mode::read);
      auto runs = store.list();
      return runs.empty() ? 0 : store.load(runs.back().id).log.size();
    } catch (const std::exception&) {  // it is being made
      return 0;
    }
  }
  std::vector<RunRecord> records() const {
    Store store(file_);
    std::vector<RunRecord> all;
    for (auto& r : store.list()) all.insert(all.begin(), store.load(r.id));
    return all;
  }
  // The record's log equals log.jsonl.
  void expect_log(const RunRecord& record) const {
    auto rows = folder_.log("run");
    std::stable_sort(rows.begin(), rows.end(), [](auto& a, auto& b) { return a["step"] < b["step"]; });
    ASSERT_EQ(record.log.size(), rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(record.log[i].step, rows[i]["step"]);
      if (rows[i].contains("val_loss"))
        EXPECT_DOUBLE_EQ(record.log[i].val_loss, rows[i]["val_loss"].get<double>());
      else
        EXPECT_DOUBLE_EQ(record.log[i].loss, rows[i]["loss"].get<double>());
    }
  }
};

}  // namespace

TEST_F(TrainRecords, ARunIsRecorded) {
  RunResult r = train(12, {"--val-every", "4", "--json", "--name", "first try"});
  ASSERT_EQ(r.code, 0) << r.err;
  auto all = records();
  ASSERT_EQ(all.size(), 1u);
  const RunRecord& run = all[0];
  EXPECT_EQ(run.kind, "train");
  EXPECT_EQ(run.status, "done");
  EXPECT_EQ(run.name, "first try");
  EXPECT_EQ(run.phase, "");
  EXPECT_EQ(run.folder, std::filesystem::canonical(folder_ / "run").string());
  EXPECT_EQ(run.recipe["model"], "tiny");
  EXPECT_EQ(run.recipe["batch"], 2);
  EXPECT_EQ(run.result, Json::parse(r.out));
  EXPECT_EQ(run.result["step"], 12);
  EXPECT_TRUE(run.environment["libraries"].contains("oneDNN"));
  EXPECT_TRUE(run.environment_after["conditions"].contains("other_load"));
  expect_log(run);
  EXPECT_EQ(Json::parse(folder_.read("run/environment.json"))["libraries"], run.environment["libraries"]);
}

TEST_F(TrainRecords, AnInterruptedRunContinuesItsRecord) {
  RunResult r = train_until(20, [](auto& process) { kill(process, SIGINT); });
  EXPECT_EQ(r.code, 130) << r.err;
  auto all = records();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].status, "interrupted");
  EXPECT_EQ(all[0].result["interrupted"], true);
  expect_log(all[0]);
  // The run knows its record, also if another run was recorded in between.
  ASSERT_EQ(folder_.train("other", 2, {"--store", file_}).code, 0);
  r = folder_.resume("run", {"--stop-after", "3"});
  ASSERT_EQ(r.code, 0) << r.err;
  all = records();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].status, "done");
  EXPECT_EQ(all[0].kind, "train");
  EXPECT_GT(all[0].log.size(), 20u);
  expect_log(all[0]);
}

TEST_F(TrainRecords, AKilledRunKeepsWhatItHadWritten) {
  RunResult r = train_until(20, [](auto& process) { kill(process, SIGKILL); }, {"--save-every", "5"});
  EXPECT_EQ(r.code, 128 + SIGKILL);
  auto all = records();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].status, "lost");
  EXPECT_GE(all[0].log.size(), 20u);
  r = folder_.resume("run", {"--stop-after", "2"});
  ASSERT_EQ(r.code, 0) << r.err;
  all = records();
  ASSERT_EQ(all.size(), 1u) << "the same record";
  EXPECT_EQ(all[0].status, "done");
  expect_log(all[0]);
}

TEST_F(TrainRecords, ARunThatTheStoreDoesNotKnowGetsAWholeRecord) {
  ASSERT_EQ(train(6, {"--no-store"}).code, 0);
  EXPECT_FALSE(std::filesystem::exists(file_));
  RunResult r = folder_.resume("run", {"--steps", "8", "--store", file_, "--no-store=false"});
  ASSERT_EQ(r.code, 0) << r.err;
  ASSERT_EQ(records().size(), 1u);
  expect_log(records()[0]);
}

// Two trainings with one different training setting: the record says so, lists find them by it,
// compare names it.
TEST_F(TrainRecords, TrainingSettingsAreDifferences) {
  auto run = [&](const std::string& name, std::vector<std::string> more) {
    more.insert(more.end(), {"--store", file_});
    ASSERT_EQ(folder_.train(name, 4, more).code, 0);
  };
  run("a", {"--lr", "0.001"});
  run("b", {"--lr", "0.002"});
  run("c", {"--lr", "0.001", "--seed", "7", "--weight-decay", "0.3"});
  auto differences = [&](const char* a, const char* b) {
    std::set<std::string> keys;
    Json compared = Json::parse(run_crest({"compare", a, b, "--json", "--store", file_}, folder_.options()).out);
    for (auto& d : compared["differences"])
      if (d["section"] == "recipe") keys.insert(d["key"]);
    return keys;
  };
  EXPECT_EQ(differences("1", "2"), (std::set<std::string>{"lr", "min_lr"}));
  EXPECT_EQ(differences("2", "1"), (std::set<std::string>{"lr", "min_lr"}));
  EXPECT_EQ(differences("1", "3"), (std::set<std::string>{"seed", "weight_decay"}));
  std::vector<RunRecord> all = records();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].key, all[1].key) << "the same measurement";
  EXPECT_FALSE(all[0].recipe["data_hash"].get<std::string>().empty());
  EXPECT_EQ(all[0].recipe["data_hash"], all[1].recipe["data_hash"]);
  RunResult found =
      run_crest({"runs", "list", "--csv", "--where", "lr=2e-3", "--columns", "id,lr,seed", "--store", file_});
  EXPECT_EQ(found.out, "id,lr,seed\n2,0.002,1337\n") << found.err;
  expect_error({"runs", "list", "--where", "lrr=1", "--store", file_}, 2, {"lrr", "Did you mean 'lr'?"});
  expect_error({"runs", "list", "--columns", "id,lrr", "--store", file_}, 2, {"lrr", "Did you mean 'lr'?"});
}

TEST_F(TrainRecords, AFailedRunSaysWhy) {
  RunResult r = train(40, {"--lr", "1e30", "--warmup", "0", "--schedule", "constant", "--clip", "0"});
  EXPECT_EQ(r.code, 1) << r.err;
  ASSERT_EQ(records().size(), 1u);
  EXPECT_EQ(records()[0].status, "failed");
  EXPECT_NE(records()[0].error.find("not finite"), std::string::npos) << records()[0].error;
}

TEST_F(TrainRecords, AStoreThatFailsDuringTrainingCostsOneWarning) {
  int64_t warned_at = 0;
  RunResult r = train_until(5,
                            [&](auto& process) {
                              Store(file_).erase(records().at(0).id);
                              process.wait_for_text("stopped recording");
                              warned_at = int64_t(folder_.log_rows("run"));
                              folder_.wait_for_rows(process, "run", size_t(warned_at) + 100);  // it trains on
                              kill(process, SIGINT);
                            },
                            {"--val-every", "0"});
  EXPECT_EQ(r.code, 130) << r.err;
  size_t at = r.err.find("stopped recording");
  EXPECT_NE(at, std::string::npos) << r.err;
  EXPECT_EQ(r.err.find("stopped recording", at + 1), std::string::npos) << r.err;
  EXPECT_GE(folder_.log("run").back()["step"], warned_at + 100);
}

TEST_F(TrainRecords, AStoreThatCannotBeOpenedIsAnErrorBeforeTraining) {
  expect_error({"train", "--data", "data", "--model", "tiny.toml", "--out", "run", "--store", "none/runs.db"}, 1,
               {"none", "no such folder"}, folder_.options());
  EXPECT_FALSE(folder_.exists("run")) << "the same command works once the store is right";
}
