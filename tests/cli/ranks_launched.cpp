// Ranks started by another launcher (torchrun, mpirun, srun), and what they must agree on.
#include "cli/ranks.h"
#include "comm/socket.h"
#include "core/timer.h"
#include "data/shards.h"

namespace crest::test {

namespace {

// Two processes started by another launcher: flags and result of each.
std::pair<RunResult, RunResult> launched(const TrainFolder& f, const Flags& first, const Flags& second,
                                         const std::vector<std::pair<std::string, std::string>>& more = {},
                                         const std::vector<std::pair<std::string, std::string>>& of_second = {}) {
  std::string port = free_port();
  auto run = [&](int rank, const Flags& flags) {
    RunOptions o = f.options();
    for (auto& v : rank_variables(rank, port)) o.environment.push_back(v);
    for (auto& v : more) o.environment.push_back(v);
    if (rank == 1) o.environment.insert(o.environment.end(), of_second.begin(), of_second.end());
    const bool own_data = std::find(flags.begin(), flags.end(), "--data") != flags.end();
    return run_crest(Flags{"train", "--model", "tiny.toml", "--out", "run", "--threads", "2"} +
                         (own_data ? Flags() : Flags{"--data", "data"}) + flags,
                     o);
  };
  std::pair<RunResult, RunResult> results;
  std::thread other([&] { results.second = run(1, second); });
  results.first = run(0, first);
  other.join();
  return results;
}

}  // namespace

// Another launcher does not kill the stopped rank. The others end by their watchdogs.
TEST(LostRanks, StoppedUnderAnotherLauncher) {
  NEEDS_RANKS();
  TrainFolder f;
  Flags flags = {"--steps", endless, "--watchdog", "2", "--val-every", "0", "--batch", "2"};
  std::string port = free_port();
  RunResult first, second;
  auto options = [&](int rank) {
    RunOptions o = f.options();
    for (auto& v : rank_variables(rank, port)) o.environment.push_back(v);
    return o;
  };
  Flags all = Flags{"train", "--data", "data", "--model", "tiny.toml", "--out", "run", "--threads", "2"} + flags;
  RunOptions stopped = options(1);
  std::thread other([&] {
    stopped.while_running = [&](const RunningProcess& process) {
      f.wait_for_rows(process, "run", 5);
      kill(process, SIGSTOP);
      wait_until([&] { return first.code >= 0; }, 60);
      kill(process, SIGKILL);
    };
    second = run_crest(all, stopped);
  });
  first = run_crest(all, options(0));
  other.join();
  EXPECT_EQ(first.code, 1);
  EXPECT_TRUE(contains(first.err, "rank 1 has not answered for 2 s")) << first.err;
  expect_one_error(first);
}

// The allocation of its memory is refused.
TEST(LostRanks, OutOfMemoryEndsAll) {
  NEEDS_RANKS();
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizers have their own operator new";
#endif
  TrainFolder f;
  Flags flags = {"--steps", "3", "--batch", "2"};
  auto [first, second] = launched(f, flags, flags, {},
                                  {{"LD_PRELOAD", CREST_FAIL_ALLOCATION},
                                   {"GOMP_SPINCOUNT", "4000"},
                                   {"CREST_FAIL_LARGE", "200000"},
                                   {"CREST_FAIL_ALLOCATION", "0+"}});
  EXPECT_EQ(second.code, 3) << second.err;
  EXPECT_TRUE(contains(second.err, "out of memory")) << second.err;
  EXPECT_EQ(first.code, 1) << first.err;
  EXPECT_TRUE(contains(first.err, "rank 1 is gone")) << first.err;
  expect_one_error(first);
}

TEST(Ranks, OfAnotherLauncherTrainTogether) {
  NEEDS_RANKS();
  TrainFolder f;
  Flags model = {"--batch", "1", "--precision", "fp32", "--context", "256"};
  // Rank 0 has memory for sequences of 64 tokens, the other rank for more. All use rank 0's length.
  RunResult plan = run_crest(
      Flags{"plan", "--json", "--model", "tiny.toml", "--ranks", "2", "--threads", "2", "--seq", "64"} + model,
      f.options());
  const auto planned = plan.json()["memory"]["planned_bytes"].get<int64_t>();
  Flags flags = model + Flags{"--steps", "3"};
  auto [first, second] = launched(f, flags + Flags{"--json", "--memory-limit", std::to_string(2 * planned)}, flags,
                                  {{"CREST_SECRET", "0123456789abcdef"}});
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(second.code, 0) << second.err;
  EXPECT_EQ(first.json()["step"], 3);
  EXPECT_EQ(second.out + second.err, "") << "only rank 0 speaks";
  EXPECT_TRUE(contains(f.read("run/config.toml"), "\nseq = 64\n")) << f.read("run/config.toml");
  EXPECT_TRUE(contains(first.err, "note     sequences of 64 tokens")) << first.err;
  RunResult threads = f.train("threads", 3, model + Flags{"--seq", "64", "--data-parallel", "2", "--threads", "2"});
  ASSERT_EQ(threads.code, 0) << threads.err;
  EXPECT_EQ(weights_and_moments(f, "run", "step-000003"), weights_and_moments(f, "threads", "step-000003"));
}

// With srun's variables, with and without --ntasks-per-node, on one node and on two. The result has
// the same bits as ranks started by Crest.
TEST(Ranks, OfSrunTrainTogether) {
  NEEDS_RANKS();
  TrainFolder f;
  const Flags train = {"train", "--data",      "data", "--model",     "tiny.toml", "--batch",
                       "2",     "--out",       "srun", "--steps",     "3",         "--precision",
                       "fp32",  "--val-every", "0",    "--overwrite", "--json"};
  ASSERT_EQ(f.train("own", 3, {"--ranks", "2", "--threads", "2", "--precision", "fp32", "--val-every", "0"}).code, 0);
  std::string expected = weights_and_moments(f, "own", "step-000003");
  const std::string srun = std::string(CREST_TEST_DIR) + "/tools/srun";
  for (const Flags& how :
       std::vector<Flags>{{"-n", "2"}, {"-n", "2", "--ntasks-per-node=2", "--export=ALL"}, {"-n", "2", "-N", "2"}}) {
    SCOPED_TRACE(how.back());
    RunOptions o = f.options();
    o.launcher = Flags{srun} + how;
    o.environment.push_back({"MASTER_PORT", free_port()});
    o.environment.push_back({"CREST_SECRET", "0123456789abcdef"});
    if (how.size() > 3 && how[2] == "-N") o.environment.push_back({"MASTER_ADDR", "127.0.0.1"});  // node01 is not real
    // Ranks of a node share its threads. Other numbers of threads may give other bits.
    const bool nodes = how.size() > 3 && how[2] == "-N";
    RunResult r = run_crest(train + Flags{"--threads", nodes ? "1" : "2"}, o);
    ASSERT_EQ(r.code, 0) << r.err;
    EXPECT_EQ(r.json()["step"], 3) << "one document";
    EXPECT_TRUE(contains(r.err, "x 2 ranks")) << r.err;
    EXPECT_EQ(weights_and_moments(f, "srun", "step-000003"), expected);
  }
  RunOptions o = f.options();
  o.launcher = {srun, "-n", "2"};
  o.environment.push_back({"MASTER_PORT", free_port()});
  RunResult r = run_crest(train + Flags{"--ranks", "3"}, o);
  EXPECT_EQ(r.code, 2);
  EXPECT_TRUE(contains(r.err, "--ranks 3, but srun started 2 processes")) << r.err;
}

// One is left of a killed run.
TEST(Ranks, ShareASecretInAFile) {
  NEEDS_RANKS();
  TrainFolder f;
  f.write("secret", "of a run that was killed");
  ASSERT_EQ(chmod((f / "secret").c_str(), 0600), 0);
  Flags flags = {"--steps", "3", "--batch", "2"};
  auto [first, second] = launched(f, flags, flags, {{"CREST_SECRET_FILE", f / "secret"}});
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(second.code, 0) << second.err;
  EXPECT_FALSE(f.exists("secret")) << "removed at the end";
}

TEST(Ranks, ThatWouldComputeSomethingElseAreNamed) {
  NEEDS_RANKS();
  TrainFolder f;
  ASSERT_EQ(f.train("run", 2, {"--save-every", "0"}).code, 0);
  std::string before = f.last_state("run") + f.read("run/config.toml");
  std::filesystem::copy(f.path() / "data", f.path() / "other");
  for (const char* name : {"meta.json", "tokenizer.json"})  // nothing but shards
    for (const char* folder : {"data", "other"}) std::filesystem::remove(f.path() / folder / name);
  auto val = f.path() / "other/val-000000.bin";
  std::string shard = f.read("other/val-000000.bin");
  ShardHeader header = parse_shard_header({reinterpret_cast<const uint8_t*>(shard.data()), 1024}, shard.size(), "val");
  header.tokens -= 40;
  shard.resize(header.data_offset + header.tokens * 2);
  memcpy(shard.data() + 8, &header.tokens, 4);
  f.write("other/val-000000.bin", shard);
  struct Case {
    Flags flags;
    const char* said;
  };
  // Each of these would make rank 1 call other collectives than rank 0, or compute something else.
  for (auto& c : std::vector<Case>{{{"--check-ranks", "20"}, "rank 0 has 'check_ranks = 100', rank 1 has 'check_ranks"},
                                   {{"--disable-pass", "epilogues"}, "rank 1 has '"},
                                   {{"--data", "other"}, "rank 0 has 'split val: "}}) {
    SCOPED_TRACE(c.flags[0]);
    Flags flags = {"--steps", "3", "--batch", "2", "--overwrite"};
    auto [first, second] = launched(f, flags, flags + c.flags);
    EXPECT_EQ(first.code, 1) << first.err;
    EXPECT_NE(second.code, 0);
    EXPECT_TRUE(contains(first.err, "the ranks would not compute the same: rank 0 has '")) << first.err;
    EXPECT_TRUE(contains(first.err, c.said)) << first.err;
    expect_one_error(first);
    EXPECT_TRUE(f.last_state("run") + f.read("run/config.toml") == before) << "what was to be replaced is still there";
  }
}

TEST(Ranks, WithAnotherSecretAreNotLetIn) {
  NEEDS_RANKS();
  TrainFolder f;
  std::string port = free_port();
  auto options = [&](int rank, const std::string& secret) {
    RunOptions o = f.options();
    for (auto& v : rank_variables(rank, port)) o.environment.push_back(v);
    o.environment.push_back({"CREST_SECRET", secret});
    return o;
  };
  Flags all = {"train", "--data", "data", "--model", "tiny.toml", "--out", "run", "--steps", "2"};
  RunOptions first = options(0, "0123456789abcdef");
  RunResult second;
  first.while_running = [&](const RunningProcess& process) {
    second = run_crest(all, options(1, "0123456789abcdeF"));
    kill(process, SIGKILL);
  };
  run_crest(all, first);
  EXPECT_EQ(second.code, 2) << second.err;
  EXPECT_TRUE(contains(second.err, "rank 0 does not know the secret of this rank")) << second.err;
}

TEST(Ranks, NeedASecretWhereOthersCanReachThem) {
  NEEDS_RANKS();
  RunOptions o;
  o.environment = {{"RANK", "1"},
                   {"WORLD_SIZE", "2"},
                   {"LOCAL_RANK", "0"},
                   {"LOCAL_WORLD_SIZE", "1"},
                   {"MASTER_ADDR", "192.0.2.1"},
                   {"MASTER_PORT", "29512"}};
  Flags flags = {"train", "--data", "data"};
  expect_error(flags, 2, {"no secret is set", "export CREST_SECRET="}, o);
  o.environment.push_back({"CREST_SECRET", "short"});
  expect_error(flags, 2, {"CREST_SECRET has 5 characters"}, o);
}

}  // namespace crest::test
