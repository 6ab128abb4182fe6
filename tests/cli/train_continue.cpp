// crest train --resume and --overwrite: precedence of settings, and refusals.
#include <CLI/CLI.hpp>

#include "cli/options.h"
#include "cli/train_harness.h"
#include "stats/samples.h"
#include "train/flag_layers.h"
#include "train/training_settings.h"

using namespace crest::test;

namespace {

using Flags = std::vector<std::string>;

// The training settings of a command line ("" for settings without a value), and the derived ones
// among them.
struct Parsed {
  crest::GivenSettings given;
  std::vector<std::string> derived;
  std::string operator[](const char* name) { return given[name].empty() ? "" : given[name].back(); }
};

Parsed parse(const Flags& flags) {
  Parsed p;
  std::string run;
  CLI::App app{"", "test"};
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  crest::add_settings(app, crest::training_settings(), p.given);
  app.add_option(crest::derived_flag, p.derived)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
  app.add_option("--resume", run);
  crest::add_config_option(app);
  std::vector<const char*> argv;
  for (auto& f : flags) argv.push_back(f.c_str());
  crest::parse_command_line(app, int(argv.size()), argv.data());
  return p;
}

}  // namespace

TEST(Layers, FlagsCountMoreThanConfigAndConfigMoreThanTheRun) {
  TempFolder f;
  f.write("run/config.toml", "data = \"d\"\nlr = 1e-3\nschedule = \"linear\"\nkeep = 5\nseed = 7\n");
  std::string run = f / "run", more = f.write("more.toml", "lr = 5e-4\nkeep = 2\n"),
              last = f.write("last.toml", "keep = 1\n");
  for (const Flags& flags : {Flags{"--resume", run, "--config", more, "--keep", "3"},
                             Flags{"--keep=3", "--config=" + more, "--resume=" + run}}) {
    Parsed p = parse(flags);
    EXPECT_EQ(p["lr"], "0.0005");
    EXPECT_EQ(p["keep"], "3");
    EXPECT_EQ(p["schedule"], "linear");
    EXPECT_EQ(p["seed"], "7");
  }
  EXPECT_EQ(parse({"--config", more, "--config", last})["keep"], "1");
  EXPECT_EQ(parse({"--config", more, "--config", last})["lr"], "0.0005");
  f.write("named.toml", "resume = \"" + run + "\"\nkeep = 4\n");
  Parsed named = parse({"--config", f / "named.toml"});
  EXPECT_EQ(named["keep"], "4");
  EXPECT_EQ(named["schedule"], "linear") << "of the run that the file names";
}

TEST(Layers, DerivedValuesFollowWhatIsOverridden) {
  TempFolder f;
  f.write("run/config.toml",
          "data = \"d\"\nsteps = 30\nlr = 1e-3\nmin_lr = 1e-4\nwarmup = 3\nval_every = 3\n"
          "derived = [\"lr\", \"min_lr\", \"warmup\", \"val_every\"]\n");
  std::string run = f / "run";
  Parsed same = parse({"--resume", run, "--steps", "30", "--keep", "2"});
  EXPECT_EQ(same["min-lr"], "0.0001");
  EXPECT_EQ(same["warmup"], "3");
  EXPECT_EQ(same.derived.size(), 4u);
  Parsed rate = parse({"--resume", run, "--lr", "1e-4"});
  EXPECT_EQ(rate["min-lr"], "") << "a tenth of another peak";
  EXPECT_EQ(rate["warmup"], "3");
  EXPECT_EQ(rate.derived, (Flags{"warmup", "val_every"})) << "--lr is given now";
  Parsed steps = parse({"--resume", run, "--steps", "300", "--warmup", "9"});
  EXPECT_EQ(steps["min-lr"], "0.0001");
  EXPECT_EQ(steps["warmup"], "9");
  EXPECT_EQ(steps["val-every"], "");
  // A file of an earlier version has no list of derived settings: all settings count as given.
  f.write("run/config.toml", "data = \"d\"\nsteps = 30\nlr = 1e-3\nmin_lr = 1e-4\n");
  EXPECT_EQ(parse({"--resume", run, "--lr", "1e-2"})["min-lr"], "0.0001");
}

TEST(ResumeSettings, FollowThePrecedenceAndAreNoted) {
  TrainFolder f;
  ASSERT_EQ(f.train("run", 4, {"--val-every", "0", "--schedule", "linear", "--weight-decay", "0.5"}).code, 0);
  EXPECT_TRUE(contains(f.read("run/config.toml"), "derived = [\"lr\", \"min_lr\", \"warmup\", \"save_every\"]"))
      << f.read("run/config.toml");
  f.write("more.toml", "steps = 8\nlr = 5e-4\n");
  RunResult r = f.resume("run", {"--config", "more.toml"});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(contains(r.err, "note     --lr was") && contains(r.err, "the run continues with 0.0005")) << r.err;
  EXPECT_TRUE(contains(r.err, "schedule 8 steps, lr 0.0005 linear to 5e-05")) << r.err;
  EXPECT_EQ(f.log("run").back()["step"], 8);
  // --lr below the former minimum, and fewer steps than the former warm-up.
  r = f.resume("run", {"--steps", "10", "--lr", "1e-5", "--json"});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(contains(r.err, "lr 1e-05 linear to 1e-06")) << r.err;
  // The time of a step is a figure of the whole run, not of its last command.
  crest::Samples ms;
  for (auto& row : f.log("run"))
    if (row.contains("step_ms") && row["step"] > 2) ms.add(row["step_ms"]);
  ASSERT_EQ(ms.count(), 8u);
  EXPECT_NEAR(r.json()["step_ms_median"].get<double>(), ms.median(), 0.0015);
  std::string config = f.read("run/config.toml");
  EXPECT_TRUE(contains(config, "derived = [\"min_lr\", \"warmup\", \"save_every\"]")) << config;
}

// Files of runs of earlier versions name the tokenizer of the text, or have it empty.
TEST(ResumeSettings, OfOlderRunsRepeatAndContinueThem) {
  TrainFolder f;
  ASSERT_EQ(f.train("run", 2).code, 0);
  f.write("run/config.toml", f.read("run/config.toml") + "tokenizer = \"bytes\"\nchat_template = \"\"\n");
  RunResult r = run_crest({"train", "--config", "run/config.toml", "--out", "again"}, f.options());
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(contains(r.err, "tokenizer of run/config.toml is ignored")) << r.err;
  EXPECT_EQ(f.log("again").back()["loss"], f.log("run").back()["loss"]);
  r = f.resume("run", {"--steps", "3"});
  EXPECT_EQ(r.code, 0) << r.err;
}

TEST(ResumeSettings, ThatTheRunLacksAreRefused) {
  TrainFolder f;
  ASSERT_EQ(f.train("run", 2).code, 0);
  std::string config = f.read("run/config.toml");
  auto refused = [&](const Flags& flags, int code, const Flags& said) {
    Flags all = {"train"};
    all.insert(all.end(), flags.begin(), flags.end());
    expect_error(all, code, said, f.options());
    EXPECT_EQ(f.read("run/config.toml"), config);
  };
  refused({"--resume", "run", "--steps", "4", "--init", "nothing"}, 2, {"the run has no init", "Leave out --init"});
  refused({"--resume", "run", "--tokenizer", "bpe:300"}, 2, {"--tokenizer", "the data has its own"});
  refused({"--data", "data", "--chat-template", "nope"}, 2, {"--chat-template", "the data has its own"});
  refused({"--data", "data", "--stop-after", "0"}, 2, {"'0' is out of range", "at least 1"});
  refused({"--resume", "run/checkpoints/step-000002"}, 1, {"is a checkpoint, not a run", "--resume run."});
  // A config file without settings is an error. It does not mean "the run has not begun".
  f.write("run/config.toml", config = "# crest train --config config.toml repeats this run\n");
  refused({"--resume", "run"}, 1, {"lost the run's settings", "cp run/checkpoints/step-000002/config.toml"});
  f.write("run/config.toml", config = "data = \"data\"\nlr = \"fa");
  refused({"--resume", "run"}, 1, {"not valid TOML", "cp run/checkpoints/step-000002/config.toml"});
  std::filesystem::rename(f.path() / "run/config.toml", f.path() / "config.toml");
  expect_error({"train", "--resume", "run"}, 1, {"lost its config.toml", "cp run/checkpoints/step-000002/config.toml"},
               f.options());
  f.write("run/config.toml", config = "data = \"data\"\nlr = \"fast\"\n");
  refused({"--resume", "run"}, 2, {"run/config.toml, key lr", "'fast'"});
}

TEST(Overwrite, NeverRemovesWhatTheCommandReads) {
  TrainFolder f;
  ASSERT_EQ(f.train("run", 2).code, 0);
  f.write("run/text.txt", sample_text(400));
  std::string state = f.last_state("run");
  for (const Flags& reads :
       {Flags{"run/text.txt", "--model", "tiny.toml"}, Flags{"text.txt", "--model", "run/model.toml"},
        Flags{"--config", "run/config.toml"}, Flags{"--data", "data", "--init", "run"}}) {
    Flags all = {"train", "--out", "run", "--overwrite", "--steps", "1"};
    all.insert(all.end(), reads.begin(), reads.end());
    expect_error(all, 2, {"--overwrite: this would remove", "Choose another --out"}, f.options());
    EXPECT_TRUE(f.exists("run/text.txt"));
    EXPECT_TRUE(f.last_state("run") == state);
  }
}
