// Trainings of the lab: runs of crest train, recorded and judged.
#include "cli/train_harness.h"

namespace crest::test {

namespace {

const char* head = "name = \"mine\"\ntitle = \"Training\"\nkind = \"train\"\nshow = [\"loss\", \"wait_ms\"]\n";
const char* claim =
    "[[claim]]\ntext = \"It learns\"\nsubject = \"Crest\"\nsource = \"me\"\n"
    "check = \"max(loss) < min(first_loss)\"\n";

struct LabTrainFolder : TrainFolder {
  RunResult lab(const std::string& file, const std::string& recipe, const std::vector<std::string>& more = {}) const {
    write(file, head + ("[recipe]\nmodel = \"tiny.toml\"\nbatch = 2\nthreads = 1\n" + recipe) + claim);
    std::vector<std::string> words = {"lab", "run", file, "--json"};
    words.insert(words.end(), more.begin(), more.end());
    return run_crest(words, options());
  }
  void error(const std::string& recipe, const std::vector<std::string>& said) const {
    RunResult r = lab("bad.toml", recipe);
    EXPECT_EQ(r.code, 2) << recipe << r.err;
    for (auto& s : said) EXPECT_NE(r.err.find(s), std::string::npos) << recipe << s << "\n" << r.err;
  }
  nlohmann::json shown(const nlohmann::json& row) const {
    return run_crest({"runs", "show", row["run"], "--json"}, options()).json();
  }
};

std::vector<double> losses(const nlohmann::json& log) {
  std::vector<double> list;
  for (auto& row : log)
    if (row.contains("loss") && row["loss"].is_number()) list.push_back(row["loss"]);
  return list;
}

}  // namespace

TEST(LabTrain, LossesAreThoseOfCrestTrain) {
  LabTrainFolder folder;
  ASSERT_EQ(folder.train("run", 12, {"--lr", "5e-3", "--optimizer", "lion", "--warmup", "2"}).code, 0);
  std::vector<double> expected = losses(folder.log("run"));
  ASSERT_EQ(expected.size(), 12u);
  RunResult r = folder.lab("mine.toml",
                           "data = [\"data\", \"text.txt\"]\nsteps = 12\nlr = 5e-3\noptimizer = \"lion\"\n"
                           "warmup = 2\nprefetch = [0, 2]\nloader_threads = 2\n");
  ASSERT_EQ(r.code, 0) << r.err;
  auto result = r.json()[0];
  ASSERT_EQ(result["rows"].size(), 4u);
  EXPECT_EQ(result["claims"][0]["verdict"], "upheld");
  for (auto& row : result["rows"]) {
    auto record = folder.shown(row);
    EXPECT_EQ(record["kind"], "train");
    EXPECT_EQ(losses(record["log"]), expected) << row["keys"];
    EXPECT_EQ(record["samples"].size(), 9u) << "the first three steps are not timed";
    EXPECT_EQ(row["columns"]["loss"], expected.back());
    EXPECT_EQ(row["columns"]["first_loss"], expected.front());
    EXPECT_EQ(row["columns"]["val_loss"], record["log"].back()["val_loss"]);
    EXPECT_GT(row["columns"]["tokens_per_second"]["value"], 0);
    EXPECT_GE(row["columns"]["held_bytes"], row["columns"]["planned_bytes"]);
  }
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "runs")) << "a cell leaves no run behind";
}

TEST(LabTrain, GeneratedTextWhereNoneIsNamed) {
  LabTrainFolder folder;
  RunResult r = folder.lab("mine.toml", "steps = 30\nlr = 5e-3\n");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.json()[0]["claims"][0]["verdict"], "upheld") << r.out;
  // --data is for measurements without their own.
  RunResult other = folder.lab("mine.toml", "steps = 30\nlr = 5e-3\n", {"--data", "data"});
  ASSERT_EQ(other.code, 0) << other.err;
  EXPECT_EQ(other.json()[0]["rows"][0]["keys"]["data"], "data");
  EXPECT_NE(other.json()[0]["rows"][0]["columns"]["loss"], r.json()[0]["rows"][0]["columns"]["loss"]);
  // The same tokens as shards of llm.c, which have no tokenizer.
  std::filesystem::create_directory(folder.path() / "shards");
  for (const char* split : {"train", "val"})
    folder.write("shards/fineweb_" + std::string(split) + "_000000.bin",
                 folder.read("data/" + std::string(split) + "-000000.bin"));
  RunResult shards = folder.lab("mine.toml", "steps = 30\nlr = 5e-3\n", {"--data", "shards"});
  ASSERT_EQ(shards.code, 0) << shards.err;
  EXPECT_EQ(shards.json()[0]["rows"][0]["columns"]["loss"], other.json()[0]["rows"][0]["columns"]["loss"]);
}

TEST(LabTrain, AHalfTrainedMeasurementIsRepeated) {
  LabTrainFolder folder;
  RunOptions options = folder.options();
  folder.write("long.toml", head +
                                std::string("[recipe]\nmodel = \"tiny.toml\"\nbatch = 2\nthreads = 1\n"
                                            "data = \"data\"\nsteps = [5, ") +
                                endless + "]\n" + claim);
  options.while_running = [&](const RunningProcess& process) {
    process.wait("the second cell", [&] {
      RunResult list = run_crest({"runs", "list", "--kind", "train", "--json"}, folder.options());
      return list.code == 0 && list.json().size() >= 2;
    });
    kill(process, SIGINT);
  };
  RunResult r = run_crest({"lab", "run", "long.toml"}, options);
  EXPECT_EQ(r.code, 130) << r.err;
  auto rows = run_crest({"runs", "list", "--kind", "train", "--json"}, folder.options()).json();
  ASSERT_EQ(rows.size(), 2u);
  std::set<std::string> states = {rows[0]["status"], rows[1]["status"]};
  EXPECT_EQ(states, (std::set<std::string>{"done", "interrupted"}));
  RunResult again =
      run_crest({"lab", "run", "long.toml", "--resume", "--budget", "0.001s", "--json"}, folder.options());
  EXPECT_NE(again.err.find("1 measurements of run"), std::string::npos) << again.err;
  EXPECT_EQ(again.json()[0]["cells_left"], 1) << again.out;
}

// A preset brings its rate and schedule along, keys change parts of a model, and until_loss ends a
// training.
TEST(LabTrain, PresetsPartsAndALossToReach) {
  LabTrainFolder folder;
  auto row = [&](const std::string& keys) {
    folder.write("preset.toml", head +
                                    ("[recipe]\nlayers = 1\nwidth = 32\nff = 64\nseq = 16\nbatch = 2\nthreads = 1\n"
                                     "precision = \"fp32\"\ndata = \"data\"\n" +
                                     keys) +
                                    claim);
    RunResult r = run_crest({"lab", "run", "preset.toml", "--json"}, folder.options());
    EXPECT_EQ(r.code, 0) << r.err;
    return r.json()[0]["rows"][0];
  };
  auto rates = [&](const nlohmann::json& row) {
    std::vector<double> list;
    for (auto& step : folder.shown(row)["log"])
      if (step.contains("lr")) list.push_back(step["lr"]);
    return list;
  };
  const std::string modern = "model = \"modern-nano\"\nsteps = 20\nwarmup = 2\nval_every = 5\n";
  const auto preset = row(modern);
  EXPECT_DOUBLE_EQ(rates(preset)[3], 0.0036);
  EXPECT_LT(rates(preset).back(), 0.0036 / 10) << "its schedule ends at 0";
  EXPECT_DOUBLE_EQ(rates(row(modern + "lr = 1e-3\n"))[3], 1e-3) << "a given rate counts";
  EXPECT_EQ(preset["columns"]["trained_tokens"], 20 * 2 * 16);

  const auto easy = row(modern + "until_loss = 100\n"), hard = row(modern + "until_loss = 1e-3\n");
  EXPECT_EQ(easy["columns"]["until_tokens"], 5 * 2 * 16);
  EXPECT_EQ(easy["columns"]["trained_tokens"], 5 * 2 * 16);
  EXPECT_GT(easy["columns"]["until_ms"]["value"], 0);
  EXPECT_EQ(hard["columns"]["until_tokens"]["unknown"], "the validation loss stays above 0.001");
  EXPECT_EQ(hard["columns"]["trained_tokens"], 20 * 2 * 16);

  // The preset's model part by part.
  const auto parts =
      row("model = \"nano\"\nbias = false\ntied = false\nnorm_weight = false\nnorm = \"rms\"\nnorm_eps = 1e-6\n"
          "position = \"rope\"\nactivation = \"relu2\"\nqk_norm = \"head\"\nembedding_norm = true\n"
          "zero_projections = true\nlogit_cap = 15\noptimizer = \"muon\"\nlr = 0.0036\nmin_lr = 0\n"
          "schedule = \"wsd\"\ndecay_share = 0.65\ndecay_shape = \"linear\"\nsteps = 20\nwarmup = 2\nval_every = 5\n");
  EXPECT_EQ(parts["columns"]["val_loss"], preset["columns"]["val_loss"]);
}

TEST(LabTrain, WhatDivergesOrDoesNotFitIsAMeasurement) {
  LabTrainFolder folder;
  RunResult r = folder.lab("mine.toml",
                           "data = \"data\"\nsteps = 40\noptimizer = \"sgd\"\nschedule = \"constant\"\n"
                           "clip = 0\nlr = [1e-3, 1e30]\n");
  ASSERT_EQ(r.code, 0) << r.err;
  auto rows = r.json()[0]["rows"];
  EXPECT_EQ(rows[0]["keys"]["status"], "done");
  EXPECT_EQ(rows[1]["keys"]["status"], "failed") << rows[1];
  EXPECT_NE(rows[1]["absent"].get<std::string>().find("not finite"), std::string::npos) << rows[1];
  EXPECT_EQ(folder.shown(rows[1])["status"], "failed");
  EXPECT_FALSE(folder.shown(rows[1])["log"].empty());
  r = folder.lab("large.toml", "data = \"data\"\nmemory_limit = \"1kB\"\n");
  EXPECT_EQ(r.json()[0]["rows"][0]["keys"]["status"], "out_of_memory");
}

TEST(LabTrain, BadSettingsAreToldWithTheirPlace) {
  LabTrainFolder folder;
  folder.error("stepps = 3\n", {"bad.toml (line 9, column 10)", "Did you mean 'steps'?"});
  folder.error("steps = 0\n", {"bad.toml (line 9, column 9)", "--steps"});
  folder.error("lr = -1\n", {"bad.toml (line 9", "--lr"});
  folder.error("samples = 3\n", {"bad.toml (line 9", "'samples'", "train"});
  folder.error("schedule = \"cosinus\"\n", {"cosinus", "cosine"});
  folder.error("tokenizer = \"bytes\"\n", {"bad.toml", "tokenizer"});
  folder.error("loader_delay_ms = \"long\"\n", {"bad.toml (line 9", "loader_delay_ms"});
  RunResult r = folder.lab("bad.toml", "data = \"nowhere\"\n");
  EXPECT_EQ(r.code, 1);
  EXPECT_NE(r.err.find("nowhere"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("bad.toml"), std::string::npos) << r.err;
  r = folder.lab("bad.toml", "steps = 3\n", {"--data", "nowhere"});
  EXPECT_EQ(r.code, 1);
  EXPECT_NE(r.err.find("nowhere"), std::string::npos) << r.err;
}

}  // namespace crest::test
