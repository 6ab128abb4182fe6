// Attacks and accidents with files and streams: no silent loss, no hang, and no change outside the
// run's folder.
#include <sys/stat.h>

#include "cli/train_harness.h"
#include "core/text.h"

using namespace crest::test;

TEST(Streams, OutputThatIsLostIsAnError) {
  TrainFolder f;
  ASSERT_EQ(f.train("run", 2).code, 0);
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"--help"},
        {"--version"},
        {"train", "--help"},
        {"help", "settings"},
        {"runs", "list"},
        {"runs", "list", "--json"},
        {"data", "info", "data", "--json"},
        {"eval", "--run", "run", "--data", "data", "--json"},
        {"plan", "--model", "nano", "--json"},
        {"devices", "--json"},
        {"completions", "bash"},
        {"bench", "--model", "tiny.toml", "--samples", "1", "--warmup", "0", "--json", "--no-store"}}) {
    RunOptions o = f.options();
    o.output = "/dev/full";
    expect_error(command, 1, {"standard output"}, o);
  }
}

TEST(Streams, AClosedStandardErrorStopsNothing) {
  TrainFolder f;
  RunOptions o = f.options();
  o.closed_error = true;
  EXPECT_EQ(run_crest({"data", "prepare", "text.txt", "--tokenizer", "bytes", "--out", "again"}, o).code, 0);
  EXPECT_EQ(f.read("again/train-000000.bin"), f.read("data/train-000000.bin"));
  EXPECT_EQ(run_crest({"train", "--data", "data", "--model", "tiny.toml", "--batch", "2", "--steps", "2", "--out",
                       "run", "--threads", "1"},
                      o)
                .code,
            0);
  EXPECT_EQ(run_crest({"sample", "--run", "run", "--max-tokens", "4", "--threads", "1"}, o).code, 0);
  EXPECT_EQ(run_crest({"bench", "--model", "tiny.toml", "--samples", "1", "--warmup", "0", "--no-store"}, o).code, 0);
}

// The error says whether the command was done, was interrupted, or stopped at the failing output.
TEST(Streams, OfLostOutputTheErrorSaysWhatIsTrue) {
  TrainFolder f;
  RunOptions o = f.options();
  o.output = "/dev/full";
  RunResult done = run_crest({"data", "info", "data"}, o);
  EXPECT_TRUE(contains(done.err, "The command finished, but its output is lost.")) << done.err;
  EXPECT_FALSE(contains(done.err, "stopped")) << done.err;
  RunResult stopped = run_crest({"help", "settings"}, o);  // more than the buffer holds
  EXPECT_EQ(stopped.code, 1);
  EXPECT_TRUE(contains(stopped.err, "No space left on device\n  The command stopped there")) << stopped.err;
  EXPECT_FALSE(contains(stopped.err, "is lost")) << stopped.err;
  o.while_running = [&](const RunningProcess& process) {
    if (f.wait_for_rows(process, "run", 1)) kill(process, SIGTERM);
  };
  RunResult interrupted = run_crest({"train", "--data", "data", "--model", "tiny.toml", "--batch", "2", "--steps",
                                     endless, "--out", "run", "--threads", "1", "--val-every", "0", "--json"},
                                    o);
  EXPECT_EQ(interrupted.code, 130);
  EXPECT_TRUE(contains(interrupted.err, "The command was interrupted, and its output is lost.")) << interrupted.err;
  EXPECT_EQ(f.checkpoints("run").size(), 1u) << "it has saved";
}

// ulimit -f: the system would end the process with a signal.
TEST(Streams, AFileOverTheLimitIsAnErrorThatNamesIt) {
  TrainFolder f;
  RunOptions o = f.options();
  o.largest_file = 64 << 10;
  expect_error({"train", "--data", "data", "--model", "tiny.toml", "--batch", "2", "--steps", "2", "--out", "run",
                "--threads", "1"},
               1, {"File too large", "run/checkpoints"}, o);
}

TEST(RunFolder, ACopyGoesOnWithItsOwnModel) {
  TrainFolder f;
  ASSERT_EQ(f.train("run", 2).code, 0);
  std::filesystem::copy(f.path() / "run", f.path() / "copy", std::filesystem::copy_options::recursive);
  std::string wider = byte_model;
  wider.replace(wider.find("layers = 2"), 10, "layers = 3");
  f.write("tiny.toml", wider);
  ASSERT_EQ(f.train("run", 2, {"--overwrite"}).code, 0);
  RunResult r = f.resume("copy", {"--steps", "4"});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_NE(f.read("copy/model.toml").find("layers = 2"), std::string::npos);
  EXPECT_NE(f.read("run/model.toml").find("layers = 3"), std::string::npos);
}

// A folder left by the first milliseconds of a run can be overwritten. Other folders cannot.
TEST(RunFolder, OfARunThatHadHardlyBegunIsOverwritten) {
  TrainFolder f;
  std::filesystem::create_directories(f.path() / "empty");
  f.write("begun/config.toml.tmp", "half a li");
  f.write("named/config.toml", "# crest train --config config.toml repeats this run\n");
  f.write("foreign/notes.txt", "mine");
  f.write("worse/config.toml.tmp", "");
  f.write("worse/thesis.txt", "mine");
  for (const char* name : {"empty", "begun", "named"}) {
    RunResult r = f.train(name, 2, {"--overwrite"});
    EXPECT_EQ(r.code, 0) << name << r.err;
  }
  for (const char* name : {"foreign", "worse"}) {
    RunResult r = f.train(name, 2, {"--overwrite"});
    EXPECT_EQ(r.code, 1) << name;
    EXPECT_NE(r.err.find("is not a run folder"), std::string::npos) << r.err;
  }
  EXPECT_EQ(f.read("foreign/notes.txt"), "mine");
  EXPECT_EQ(f.read("worse/thesis.txt"), "mine");
  expect_error({"train", "--resume", "foreign"}, 1, {"no config.toml"}, f.options());
}

// If the folder is removed under a run, the run ends with an error. It leaves no checkpoint without
// a run around it.
TEST(RunFolder, ThatIsRemovedWhileItTrainsEndsTheRun) {
  TrainFolder f;
  RunOptions o = f.options();
  o.while_running = [&](const RunningProcess& process) {
    process.wait("a row of the log", [&] { return f.log_rows("run") > 0; });
    std::filesystem::rename(f.path() / "run", f.path() / "elsewhere");
  };
  RunResult r = run_crest({"train", "--data", "data", "--model", "tiny.toml", "--batch", "2", "--steps", endless,
                           "--out", "run", "--threads", "1", "--save-every", "20", "--val-every", "0"},
                          o);
  EXPECT_EQ(r.code, 1);
  EXPECT_NE(r.err.find("was removed or moved during training"), std::string::npos) << r.err;
  EXPECT_FALSE(std::filesystem::exists(f.path() / "run"));
}

// Pipes in place of files give an error, or an older checkpoint and a warning. Crest never waits
// without end.
TEST(RunFolder, NamedPipesInItAreTold) {
  TrainFolder f;
  ASSERT_EQ(f.train("run", 2).code, 0);
  auto checkpoint = "checkpoints/" + f.checkpoints("run").back() + "/";
  for (const std::string& name : {std::string("log.jsonl"), std::string("config.toml"), checkpoint + "manifest.json",
                                  checkpoint + "state.json", checkpoint + "model.safetensors"}) {
    std::filesystem::remove_all(f.path() / "copy");
    std::filesystem::copy(f.path() / "run", f.path() / "copy", std::filesystem::copy_options::recursive);
    std::filesystem::remove(f.path() / "copy" / name);
    ASSERT_EQ(mkfifo((f / ("copy/" + name)).c_str(), 0600), 0);
    RunOptions o = f.options();
    o.timeout_seconds = 60;
    RunResult r = run_crest({"train", "--resume", "copy", "--steps", "4"}, o);
    bool older = r.code == 0 && r.err.find("warning: skipped copy/" + checkpoint) != std::string::npos;
    EXPECT_TRUE(older || r.err.find("crest: error: ") != std::string::npos) << name << r.err;
    EXPECT_TRUE(r.err.find("pipe") != std::string::npos || r.err.find("regular file") != std::string::npos)
        << name << r.err;
  }
}

// A printed command, pasted, opens the file, with any characters in its name.
TEST(PrintedCommands, OpenWhatTheyName) {
  TempFolder f;
  f.write("text.txt", sample_text(20));
  RunOptions o;
  o.folder = f.path().string();
  for (std::string name :
       {"new\nline", "tab\there", "esc\x1b[2J", "rtl\xE2\x80\xAEtxt.exe", "it's a \"\\\" $HOME `id`", "--out", "~"}) {
    RunResult r = run_crest({"data", "prepare", "text.txt", "--tokenizer", "bytes", "--out=./" + name + "/data"}, o);
    ASSERT_EQ(r.code, 0) << r.err;
    const std::string mark = "Next: crest train --data ";
    const size_t begin = r.out.find(mark);
    ASSERT_NE(begin, std::string::npos) << r.out;
    const std::string word = r.out.substr(begin + mark.size(), r.out.find('\n', begin) - begin - mark.size());
    EXPECT_EQ(crest::printable(word, SIZE_MAX), word);
    f.write("paste.sh", "cd '" + o.folder + "' && test -s " + word + "/meta.json");
    EXPECT_EQ(std::system(("bash '" + f / "paste.sh" + "'").c_str()), 0) << word;
  }
}

// A link in the place of a temporary file is replaced, not followed.
TEST(RunFolder, LinksAreNotFollowed) {
  TrainFolder f;
  ASSERT_EQ(f.train("run", 2).code, 0);
  for (const char* name : {"config.toml.tmp", "log.jsonl.tmp"}) {
    f.write("victim", "precious");
    std::filesystem::create_symlink(f.path() / "victim", f.path() / "run" / name);
    RunResult r = f.resume("run", {"--steps", "4"});
    EXPECT_EQ(f.read("victim"), "precious") << name << r.err;
    std::filesystem::remove(f.path() / "run" / name);
  }
}

// Two trainings starting in one folder at the same time: one trains.
TEST(RunFolder, HasOneTrainingAtATime) {
  TrainFolder f;
  for (int round = 0; round < 5; ++round) {
    std::vector<int> codes(2);
    std::vector<std::thread> both;
    for (int i = 0; i < 2; ++i)
      both.emplace_back([&, i] { codes[size_t(i)] = f.train("race" + std::to_string(round), 2).code; });
    for (auto& t : both) t.join();
    EXPECT_EQ(codes[0] + codes[1], 1) << "exit codes " << codes[0] << " and " << codes[1];
    EXPECT_FALSE(f.last_state("race" + std::to_string(round)).empty());
  }
}

// Trainings without --out started at the same time each get a separate run.
TEST(RunFolder, WithoutANameEachTrainingHasItsOwn) {
  TrainFolder f;
  constexpr int many = 3;
  std::vector<RunResult> results(many);
  std::vector<std::thread> all;
  for (auto& r : results)
    all.emplace_back([&] {
      r = run_crest({"train", "--data", "data/", "--model", "tiny.toml", "--batch", "2", "--steps", "1", "--threads",
                     "1", "--no-store"},
                    f.options());
    });
  for (auto& t : all) t.join();
  for (auto& r : results) EXPECT_EQ(r.code, 0) << r.err;
  for (const char* name : {"runs/data", "runs/data-2", "runs/data-3"}) EXPECT_FALSE(f.last_state(name).empty()) << name;
  // A training that cannot begin leaves no folder.
  EXPECT_EQ(run_crest({"train", "--data", "data", "--model", "tiny.toml", "--seq", "99"}, f.options()).code, 2);
  expect_error({"train", "--data", "data", "--model", "nano", "--vocab", "257", "--context", "2048", "--seq", "2048",
                "--batch", "1"},
               1, {"needs at least 2049"}, f.options());
  EXPECT_FALSE(f.exists("runs/data-4"));
}

// A run killed before it wrote its settings: --resume says so, and how to start again.
TEST(RunFolder, OfARunThatHadNotBegunIsToldByResume) {
  TrainFolder f;
  f.write("named/config.toml", "# crest train --config config.toml repeats this run\n");
  f.write("begun/config.toml.tmp", "half a li");
  for (const char* name : {"named", "begun"}) {
    expect_error({"train", "--resume", name}, 1, {name, "before its first step", "--overwrite"}, f.options());
    EXPECT_EQ(f.train(name, 2, {"--overwrite"}).code, 0) << "as the error advises";
  }
}

// With any file name, a run works, or is refused before it starts.
TEST(RunFolder, OfAnyNameGoesOn) {
  TrainFolder f;
  std::string controls, ascii;
  for (int c = 1; c < 0x80; ++c)
    if (c != '/') (c < 0x20 || c == 0x7f ? controls : ascii) += char(c);
  for (const std::string& name :
       {"a" + controls, ascii, std::string("k\xc3\xa4se \xe6\x97\xa5\xe6\x9c\xac \xf0\x9f\x99\x82"),
        std::string("\xc2\x85 \xe2\x80\xae \xef\xbb\xbf \xef\xbf\xbe")}) {
    std::filesystem::create_directory(f.path() / name);
    std::filesystem::copy(f.path() / "data", f.path() / name / "data");
    RunResult r = f.train("./" + name + "/run", 2, {"--data", "./" + name + "/data"});
    ASSERT_EQ(r.code, 0) << r.err;
    r = f.resume("./" + name + "/run", {"--steps", "3"});
    EXPECT_EQ(r.code, 0) << r.err;
    EXPECT_NE(r.err.find("done at step 3 of 3"), std::string::npos) << r.err;
  }
  const std::string bad = "b\xff\x80";
  std::filesystem::copy(f.path() / "data", f.path() / bad);
  auto refused = [&](const std::vector<std::string>& more) {
    std::vector<std::string> command = {"train", "--model", "tiny.toml", "--batch", "2", "--steps", "2"};
    command.insert(command.end(), more.begin(), more.end());
    expect_error(command, 2, {"b\\xff\\x80", "not UTF-8"}, f.options());
  };
  refused({"--data", "data", "--out", "runs/" + bad});
  refused({"--data", bad});
  EXPECT_FALSE(f.exists("runs"));
  // A bad name for a run that exists already.
  ASSERT_EQ(f.train("good", 2).code, 0);
  std::filesystem::rename(f.path() / "good", f.path() / (bad + "-run"));
  std::string config = f.read(bad + "-run/config.toml");
  expect_error({"train", "--resume", bad + "-run"}, 2, {"b\\xff\\x80", "not UTF-8"}, f.options());
  EXPECT_EQ(f.read(bad + "-run/config.toml"), config);
}

// Values that would end the process in OpenMP, or make OpenMP print its own message.
TEST(Variables, OmpNumThreadsThatCannotBeUsedIsTold) {
  TrainFolder f;
  auto run = [&](const std::string& value) {
    RunOptions o = f.options();
    o.environment.push_back({"OMP_NUM_THREADS", value});
    RunResult r = run_crest({"train", "--data", "data", "--model", "tiny.toml", "--batch", "2", "--steps", "1", "--out",
                             "run", "--overwrite", "--threads", "1", "--no-store"},
                            o);
    EXPECT_EQ(r.code, 0) << value << r.err;
    size_t notes = 0;
    for (size_t at = 0; (at = r.err.find("crest: note: OMP_NUM_THREADS", at)) != std::string::npos; ++at) ++notes;
    return notes;
  };
  for (const char* value : {"100000", "0", "-1", "many", "2,"}) EXPECT_EQ(run(value), 1u) << value;
  for (const char* value : {"1", "2", "2,3"}) EXPECT_EQ(run(value), 0u) << value;
}
