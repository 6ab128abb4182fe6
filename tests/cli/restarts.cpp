// --restarts: a run with lost ranks ends as if nothing had happened, or gives the reason why it
// ends. Also: weights that differ between ranks.
#include <fcntl.h>
#include <sys/stat.h>

#include <random>

#include "cli/ranks.h"
#include "core/sha256.h"

namespace crest::test {

namespace {

const Flags recipe = {"--precision", "fp32", "--threads", "2", "--val-every", "0", "--schedule", "constant"};

size_t count_of(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++n;
  return n;
}

int64_t last_step(const TrainFolder& f) {
  std::string log = f.read("run/log.jsonl");
  size_t at = log.rfind("{\"step\": ", log.rfind('\n'));
  return at == std::string::npos ? 0 : std::atoll(log.c_str() + at + 9);
}

RunResult train(const TrainFolder& f, const Flags& flags, std::function<void(const RunningProcess&)> act) {
  RunOptions options = f.options();
  options.while_running = std::move(act);
  Flags all = {"train", "--data", "data", "--model", "tiny.toml", "--batch", "2", "--out", "run", "--steps", endless};
  return run_crest(all + recipe + flags, options);
}

std::vector<pid_t> ranks_of(const RunningProcess& launcher, size_t count) {
  std::vector<pid_t> ranks;
  wait_until([&] { return (ranks = children_of(launcher)).size() == count || launcher.ended(); });
  return ranks;
}

// CREST_RANK_LOSSES: of each kind.
int losses_of(int otherwise) {
  const char* text = std::getenv("CREST_RANK_LOSSES");
  return text ? std::atoi(text) : otherwise;
}

}  // namespace

TEST(Restarts, ContinueFromTheLastCheckpointAsOneRun) {
  NEEDS_RANKS();
  for (size_t ranks : {1u, 2u}) {
    SCOPED_TRACE(ranks);
    TrainFolder f;
    Flags flags = {"--ranks", std::to_string(ranks), "--save-every", "10", "--stop-after", "60"};
    int port = 0;
    std::vector<pid_t> all;
    RunResult r = train(f, flags + Flags{"--restarts", "2", "--json"}, [&](const RunningProcess& launcher) {
      f.wait_for_rows(launcher, "run", 25);
      all = ranks_of(launcher, ranks);
      port = port_in_environment_of(all.at(0));
      kill(all.back(), SIGKILL);
    });
    ASSERT_EQ(r.code, 0) << r.err;
    expect_nothing_left(all, port);
    std::string lost = "rank " + std::to_string(ranks - 1) + " was ended by signal 9";
    EXPECT_EQ(count_of(r.err, "crest: restart 1 of 2 from step "), 1u) << r.err;
    EXPECT_EQ(count_of(r.err, "restart "), 1u) << r.err;
    EXPECT_TRUE(contains(r.err, lost)) << r.err;
    EXPECT_EQ(count_of(r.err, "device  "), 1u) << "described once\n" << r.err;
    EXPECT_EQ(r.json()["step"], 60) << "--stop-after is that of the command";
    ASSERT_EQ(f.train("straight", std::stoi(endless), recipe + flags).code, 0);
    EXPECT_EQ(f.timeless_log("run"), f.timeless_log("straight"));
    EXPECT_TRUE(f.last_state("run") == f.last_state("straight")) << "weights, moments or position differ";
    auto runs = run_crest({"runs", "list", "--json"}, f.options()).json();
    ASSERT_EQ(runs.size(), 2u) << "one for each folder";
    for (auto& run : runs) EXPECT_EQ(run["status"], "done");
  }
}

TEST(Restarts, AreNotForErrorsOrSignals) {
  NEEDS_RANKS();
  for (bool signal : {true, false}) {
    SCOPED_TRACE(signal);
    TrainFolder f;
    RunResult r = train(f, {"--ranks", "2", "--restarts", "2"}, [&](const RunningProcess& launcher) {
      f.wait_for_rows(launcher, "run", 5);
      if (signal) kill(launcher, SIGINT);
      for (auto& e : std::filesystem::directory_iterator(f.path() / "data"))
        if (std::string n = e.path().filename(); !signal && n.starts_with("train-") && n.ends_with(".bin"))
          std::filesystem::resize_file(e.path(), 1100);
    });
    EXPECT_EQ(r.code, signal ? 130 : 1) << r.err;
    EXPECT_FALSE(contains(r.err, "restart ")) << r.err;
  }
}

// The ranks fail each time in their first step. It takes long enough to be interrupted.
TEST(Restarts, EndWhereAFailureRepeats) {
  NEEDS_RANKS();
  TrainFolder f;
  auto log_begun = [&] {
    struct stat log {};
    return stat((f / "run/log.jsonl").c_str(), &log) == 0 ? log.st_ctim.tv_sec * 1e9 + double(log.st_ctim.tv_nsec) : 0;
  };
  Flags flags = {"--model", "nano", "--batch", "16", "--ranks", "2", "--restarts", "9"};
  RunResult r = train(f, flags, [&](const RunningProcess& launcher) {
    double killed = 0;
    for (int i = 0; i < 2; ++i) {
      std::vector<pid_t> ranks;
      bool begun = launcher.wait("a first step",
                                 [&] { return (ranks = children_of(launcher)).size() == 2 && log_begun() > killed; });
      if (!begun) return void(kill(launcher, SIGKILL));
      killed = log_begun();
      kill(ranks[1], SIGKILL);
    }
  });
  EXPECT_EQ(r.code, 1) << r.err;
  EXPECT_EQ(count_of(r.err, "crest: restart 1 of 9 from the beginning (no checkpoint): rank 1 was ended by signal 9"),
            1u)
      << r.err;
  EXPECT_EQ(count_of(r.err, "crest: restart "), 1u) << r.err;
  EXPECT_TRUE(contains(r.err, "It is not started again: it failed in step 1 twice without a new checkpoint.")) << r.err;
  expect_one_error(r);
}

// Rank 0 died after it had created the folder, and before its launcher knew. The next rank 0 finds
// the folder.
TEST(Restarts, TakeTheEmptyFolderOfARank0ThatDied) {
  TrainFolder f;
  std::filesystem::create_directory(f.path() / "run");
  RunResult foreign = f.train("run", 2);
  EXPECT_EQ(foreign.code, 1) << foreign.err;
  EXPECT_TRUE(contains(foreign.err, "'run' exists")) << foreign.err;
  int launcher = open("/dev/null", O_WRONLY);  // its destination; ranks inherit it
  RunOptions options = f.options();
  options.environment.push_back({"CREST_RANK_REPORT", std::to_string(launcher)});
  options.environment.push_back({"CREST_RANK_RESTART", "0 0.5"});
  RunResult again = run_crest({"train", "--data", "data", "--model", "tiny.toml", "--batch", "2", "--out", "run",
                               "--steps", "2", "--val-every", "0", "--threads", "1"},
                              options);
  close(launcher);
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(f.log_rows("run"), 2u);
}

// Any rank, at any time, is killed or stopped. Each loss is reported, and the run ends as without
// losses.
TEST(LostRanks, OneAfterTheOther) {
  NEEDS_RANKS();
  const int each = losses_of(3);  // the first four: each rank killed and stopped
  TrainFolder f;
  std::mt19937 random(7);
  std::vector<std::string> said;
  int port = 0;
  std::vector<pid_t> ranks;
  Flags flags = {"--ranks", "2", "--watchdog", each > 3 ? "2" : "1.5", "--save-every", "10"};
  RunResult r = train(f, flags + Flags{"--restarts", "1000"}, [&](const RunningProcess& launcher) {
    int64_t before = 0;
    for (int i = 0; i < 2 * each && !launcher.ended(); ++i) {
      int64_t until = before + 1 + int64_t(random() % 15);
      if (!launcher.wait("step " + std::to_string(until), [&] { return last_step(f) >= until; })) return;
      ranks = ranks_of(launcher, 2);
      size_t rank = random() % 2;
      bool stop = i % 2;
      before = std::max(before, last_step(f));
      kill(ranks.at(rank), stop ? SIGSTOP : SIGKILL);
      said.push_back("rank " + std::to_string(rank) + (stop ? " has not answered for " : " was ended by signal 9"));
      std::string line = "restart " + std::to_string(i + 1) + " of 1000 ";
      if (!launcher.wait_for_text(line)) return;
    }
    launcher.wait("more steps", [&] { return last_step(f) > before + 10; });
    ranks = ranks_of(launcher, 2);
    port = port_in_environment_of(ranks.at(0));
    kill(launcher, SIGINT);
  });
  EXPECT_EQ(r.code, 130) << r.err;
  expect_nothing_left(ranks, port);
  ASSERT_EQ(said.size(), size_t(2 * each));
  std::istringstream lines(r.err);
  size_t named = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("crest: restart ")) continue;
    ASSERT_LT(named, said.size());
    EXPECT_TRUE(contains(line, said[named++])) << line;
  }
  EXPECT_EQ(named, said.size());
  int64_t steps = last_step(f);
  ASSERT_EQ(f.train("straight", std::stoi(endless), recipe + flags + Flags{"--stop-after", std::to_string(steps)}).code,
            0);
  EXPECT_EQ(f.timeless_log("run"), f.timeless_log("straight"));
  EXPECT_TRUE(f.last_state("run") == f.last_state("straight")) << "weights, moments or position differ";
  printf("%d kills and %d stops of a rank in %d steps, all named, the run as without them\n", each, each, int(steps));
}

namespace {

// Flips a bit at the first place of `bytes` in the writable memory of a process. Returns "" when
// done.
std::string flip_bit(pid_t pid, const std::string& bytes) {
  std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
  int memory = open(("/proc/" + std::to_string(pid) + "/mem").c_str(), O_RDWR | O_CLOEXEC);
  if (memory < 0) return "the memory of another process may not be written here";
  int places = 0;
  for (std::string line; std::getline(maps, line);) {
    size_t begin = 0, end = 0;
    char access[5] = "";
    if (sscanf(line.c_str(), "%zx-%zx %4s", &begin, &end, access) != 3 || access[1] != 'w') continue;
    std::string text(end - begin, '\0');
    if (pread(memory, text.data(), text.size(), off_t(begin)) != ssize_t(text.size())) continue;
    for (size_t at = 0; (at = text.find(bytes, at)) != std::string::npos; at += bytes.size()) {
      char byte = char(text[at] ^ 1);
      if (pwrite(memory, &byte, 1, off_t(begin + at)) != 1) return close(memory), "no write";
      ++places;
    }
  }
  close(memory);
  return places ? "" : "not found";
}

}  // namespace

// The learning rate is too small to change a weight: the checkpoint of the first step equals a
// rank's memory.
TEST(SilentCorruption, EndsTheRunWithRankAndTensor) {
  NEEDS_RANKS();
  TrainFolder f;
  Flags flags = {"--ranks", "2", "--lr", "1e-30", "--check-ranks", "20", "--save-every", "1000000"};
  ASSERT_EQ(f.train("first", 1, recipe + flags).code, 0);
  std::string file = f.read("first/checkpoints/step-000001/model.safetensors");
  uint64_t header = 0;
  ASSERT_GT(file.size(), 8u);
  memcpy(&header, file.data(), 8);
  auto tensors = nlohmann::json::parse(file.substr(8, header));
  std::string name = "transformer.wpe.weight";
  ASSERT_TRUE(tensors.contains(name)) << tensors.dump();
  std::string problem;
  RunResult r = train(f, flags + Flags{"--restarts", "0"}, [&](const RunningProcess& launcher) {
    f.wait_for_rows(launcher, "run", 5);
    auto ranks = ranks_of(launcher, 2);
    problem = flip_bit(ranks.at(1), file.substr(8 + header + tensors[name]["data_offsets"][0].get<size_t>(), 64));
    if (!problem.empty()) kill(launcher, SIGINT);
  });
  if (problem.starts_with("the memory")) GTEST_SKIP() << problem;
  ASSERT_EQ(problem, "");
  EXPECT_EQ(r.code, 1) << r.err;
  EXPECT_TRUE(contains(r.err, "rank 1 holds other values of wpe.weight than rank 0")) << r.err;
  EXPECT_TRUE(contains(error_of(r), "step ")) << r.err;
  EXPECT_EQ(last_step(f) % 20, 0) << "at the next comparison";
  EXPECT_TRUE(f.checkpoints("run").empty()) << "nothing is saved of weights that may be wrong";
  expect_one_error(r);
}

}  // namespace crest::test
