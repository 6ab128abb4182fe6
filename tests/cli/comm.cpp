// crest comm: measured values and their record, launchers, and every way to lose a rank.
#include <arpa/inet.h>
#include <sys/socket.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "cli/run.h"
#include "comm/gloo.h"
#include "comm/loopback.h"

namespace crest::test {

namespace {

#define NEEDS_GLOO()                                           \
  if (!gloo_problem().empty()) GTEST_SKIP() << gloo_problem(); \
  NEEDS_LOOPBACK()

// An address of this host with a free port. The port is bound, and released unless it must stay in
// use.
struct Port {
  Port() : fd(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in a{};
    socklen_t n = sizeof a;
    a.sin_family = AF_INET, a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&a), n), 0);
    EXPECT_EQ(listen(fd, 1), 0);
    getsockname(fd, reinterpret_cast<sockaddr*>(&a), &n);
    text = std::to_string(ntohs(a.sin_port));
  }
  ~Port() { release(); }
  void release() { close(std::exchange(fd, -1)); }
  int fd;
  std::string text;
};

using Variables = std::vector<std::pair<std::string, std::string>>;
Variables rank_variables(int rank, int size, const std::string& port) {
  return {{"RANK", std::to_string(rank)},       {"WORLD_SIZE", std::to_string(size)},
          {"LOCAL_RANK", std::to_string(rank)}, {"LOCAL_WORLD_SIZE", std::to_string(size)},
          {"MASTER_ADDR", "127.0.0.1"},         {"MASTER_PORT", port}};
}

// Process ids of a launcher's ranks, by rank.
std::vector<pid_t> children_of(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/task/" + std::to_string(pid) + "/children");
  std::vector<pid_t> children;
  for (pid_t child; in >> child;) children.push_back(child);
  std::sort(children.begin(), children.end());
  return children;
}

// A --timeout far longer than healthy ranks need to start and to answer, on this machine with its
// present load.
std::string enough_seconds(double at_least) {
  static const RunResult one_rank =
      run_crest({"comm", "broadcast", "--nproc", "1", "--sizes", "4", "--samples", "1", "--no-store"});
  EXPECT_EQ(one_rank.code, 0) << one_rank.err;
  return std::to_string(int(std::max(at_least, std::ceil(20 * one_rank.seconds))));
}

bool alive(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(in)), {});
  size_t end = text.rfind(')');
  return end != std::string::npos && text[end + 2] != 'Z';
}

// Runs three ranks for a long time, and calls `act` once they are connected and their record has
// begun. After the end of the launcher no process may be left.
RunResult run_and_disturb(const std::function<void(pid_t launcher, const std::vector<pid_t>& ranks)>& act,
                          const std::vector<std::string>& more = {}, const TempFolder& folder = TempFolder()) {
  std::vector<pid_t> ranks;
  std::vector<std::string> arguments = {"comm", "all-reduce", "--nproc", "3", "--sizes", "1MB", "--samples", "1000000"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  RunOptions options = {.folder = folder.path().string()};
  auto running = [&] {
    RunResult list = run_crest({"runs", "list", "--status", "running", "--json"}, {.folder = options.folder});
    return list.code == 0 && !list.json().empty();
  };
  options.while_running = [&](const RunningProcess& launcher) {
    bool begun = launcher.wait("the record", running);
    ranks = children_of(launcher);
    if (begun && ranks.size() == 3)
      act(launcher, ranks);
    else
      kill(launcher, SIGKILL);
  };
  RunResult r = run_crest(arguments, options);
  EXPECT_EQ(ranks.size(), 3u);
  wait_until([&] { return std::none_of(ranks.begin(), ranks.end(), alive); }, 30);
  for (pid_t rank : ranks) EXPECT_FALSE(alive(rank)) << r.err;
  return r;
}

}  // namespace

TEST(Comm, MeasuresEveryCollectiveWithSeveralRanks) {
  NEEDS_GLOO();
  TempFolder folder;
  RunResult r =
      run_crest({"comm", "all", "--world-sizes", "1,2,3", "--sizes", "4KB,100001B", "--samples", "6", "--json"},
                {.folder = folder.path().string()});
  ASSERT_EQ(r.code, 0) << r.err;
  auto j = r.json();
  EXPECT_EQ(j["backend"], "gloo");
  EXPECT_EQ(j["world_size"], 3);
  EXPECT_EQ(j["launcher"], "crest");
  ASSERT_EQ(j["rows"].size(), 3u * 6 * 2);
  ASSERT_EQ(j["groups"].size(), 3u * 6);
  for (auto& row : j["rows"]) {
    int n = row["ranks"];
    const bool whole = row["collective"] == "broadcast" || row["collective"] == "send-receive";
    double factor = row["collective"] == "all-reduce" ? 2.0 * (n - 1) / n : whole ? 1 : double(n - 1) / n;
    double algorithm = row["algorithm_gb_per_s"], bus = row["bus_gb_per_s"], ms = row["ms_median"];
    EXPECT_NEAR(algorithm, double(row["bytes"]) / ms * 1e3 / 1e9, 1e-9 * algorithm);
    EXPECT_NEAR(bus, algorithm * factor, 1e-9 * algorithm);
    EXPECT_EQ(row["samples"], 6);
    EXPECT_EQ(int64_t(row["bytes"]) % 4, 0);
  }
  for (auto& group : j["groups"]) {
    EXPECT_GT(group["startup"]["process_seconds"], 0);
    EXPECT_GT(group["startup"]["connect_seconds"], 0);
    EXPECT_GT(group["latency_ms"], 0);
    EXPECT_EQ(group["fit"]["points"], 2);
    EXPECT_EQ(group["ranks"] == 1, group["link"]["gb_per_s"].is_null());
  }
  auto runs = run_crest({"runs", "list", "--kind", "comm", "--json"}, {.folder = folder.path().string()}).json();
  ASSERT_EQ(runs.size(), 18u);
  EXPECT_EQ(runs[0]["status"], "done");
  EXPECT_EQ(runs[0]["phase"], "send-receive");
  EXPECT_EQ(runs[0]["result"]["rows"].size(), 2u);
  auto shown = run_crest({"runs", "show", "1", "--json"}, {.folder = folder.path().string()}).json();
  EXPECT_EQ(shown["samples"].size(), 12u);
}

TEST(Comm, PrintsATableAFitAndAVerdict) {
  NEEDS_GLOO();
  RunResult r =
      run_crest({"comm", "all-gather", "--sizes", "1KB..4KB", "--samples", "6", "--no-store", "--dtype", "bf16"});
  EXPECT_EQ(r.code, 0) << r.err;
  for (const char* text : {"all-gather, 2 ranks, gloo, bf16", "bus GB/s", "1.00 kB", "4.00 kB", "start-up: processes",
                           "latency: ", "fit: ", "verdict: "})
    EXPECT_NE(r.out.find(text), std::string::npos) << text << "\n" << r.out;
}

TEST(Comm, RanksOfAnotherLauncherFindEachOther) {
  NEEDS_GLOO();
  Port port;
  port.release();
  std::vector<std::string> arguments = {"comm", "broadcast", "--sizes", "1KB", "--samples", "6", "--json"};
  RunResult second;
  std::thread other([&] { second = run_crest(arguments, {.environment = rank_variables(1, 2, port.text)}); });
  RunResult first = run_crest(arguments, {.environment = rank_variables(0, 2, port.text)});
  other.join();
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(second.code, 0) << second.err;
  EXPECT_EQ(first.json()["launcher"], "torchrun");
  EXPECT_EQ(second.out, "");
}

TEST(Comm, AKilledRankEndsAllWithItsNumber) {
  NEEDS_GLOO();
  TempFolder folder;
  RunResult r =
      run_and_disturb([](pid_t, auto& ranks) { kill(ranks[2], SIGKILL); }, {"--timeout", enough_seconds(3)}, folder);
  EXPECT_EQ(r.code, 1);
  EXPECT_NE(r.err.find("crest: error: rank 2 was ended by signal 9"), std::string::npos) << r.err;
  EXPECT_EQ(r.err.find("crest: error: "), r.err.rfind("crest: error: ")) << r.err;
  auto runs = run_crest({"runs", "list", "--json"}, {.folder = folder.path().string()}).json();
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0]["status"], "failed");
  EXPECT_NE(runs[0]["error"].get<std::string>().find("rank 2 is gone"), std::string::npos) << runs[0]["error"];
}

TEST(Comm, AKilledRank0EndsAllWithItsNumber) {
  NEEDS_GLOO();
  RunResult r = run_and_disturb([](pid_t, auto& ranks) { kill(ranks[0], SIGKILL); });
  EXPECT_EQ(r.code, 1);
  EXPECT_NE(r.err.find("crest: error: rank 0 was ended by signal 9"), std::string::npos) << r.err;
}

TEST(Comm, AStoppedRankEndsAllWithItsNumber) {
  NEEDS_GLOO();
  std::string timeout = enough_seconds(1);
  RunResult r = run_and_disturb([](pid_t, auto& ranks) { kill(ranks[1], SIGSTOP); }, {"--timeout", timeout});
  EXPECT_EQ(r.code, 1);
  EXPECT_NE(r.err.find("rank 1 does not take part ("), std::string::npos) << r.err;
  // Ranks 0 and 2 time out at different moments, so one may first see the other's broken
  // connection.
  bool silent = r.err.find("nothing arrived for " + timeout + " s") != std::string::npos;
  EXPECT_TRUE(silent || r.err.find("a connection between two ranks broke") != std::string::npos) << r.err;
}

TEST(Comm, CtrlCEndsAllRanks) {
  NEEDS_GLOO();
  TempFolder folder;
  RunResult r = run_and_disturb([](pid_t launcher, auto&) { kill(launcher, SIGINT); }, {}, folder);
  EXPECT_EQ(r.code, 130) << r.err;
  EXPECT_NE(r.err.find("interrupted"), std::string::npos);
  auto runs = run_crest({"runs", "list", "--json"}, {.folder = folder.path().string()}).json();
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0]["status"], "interrupted");
}

TEST(Comm, RanksDieWithTheirLauncher) {
  NEEDS_GLOO();
  RunResult r = run_and_disturb([](pid_t launcher, auto&) { kill(launcher, SIGKILL); });
  EXPECT_EQ(r.code, 128 + SIGKILL);
}

TEST(Comm, ARankThatNeverComesIsNamed) {
  NEEDS_GLOO();
  Port port;
  port.release();
  expect_error({"comm", "all-reduce", "--timeout", "1"}, 1, {"rank 1 did not start within 1 s (1 of 2 did)"},
               {.environment = rank_variables(0, 2, port.text)});
  expect_error({"comm", "all-reduce", "--timeout", "1"}, 1, {"rank 0 did not start within 1 s", port.text},
               {.environment = rank_variables(1, 2, port.text)});
}

TEST(Comm, APortInUseIsNamed) {
  NEEDS_GLOO();
  Port port;
  expect_error({"comm", "all-reduce", "--port", port.text}, 1, {"cannot listen on port " + port.text, "--port"});
  expect_error({"comm", "all-reduce", "--timeout", "1"}, 1, {"cannot listen on port " + port.text, "MASTER_PORT"},
               {.environment = rank_variables(0, 2, port.text)});
}

TEST(Comm, WrongVariablesAreNamed) {
  expect_error({"comm", "all-reduce"}, 2, {"WORLD_SIZE is not set"}, {.environment = {{"RANK", "0"}}});
  expect_error({"comm", "all-reduce"}, 2, {"RANK=7", "from 0 to 1"}, {.environment = rank_variables(7, 2, "29500")});
  NEEDS_GLOO();
  expect_error({"comm", "all-reduce", "--nproc", "3"}, 2, {"--nproc", "torchrun started 2"},
               {.environment = rank_variables(0, 2, "29500")});
  expect_error({"comm", "all-reduce", "--ranks", "4"}, 2, {"--world-sizes", "4 ranks requested, 2 available"},
               {.environment = rank_variables(0, 2, "29500")});
}

TEST(Comm, WrongWordsGetTheNearest) {
  expect_error({"comm", "all-redcue"}, 2, {"unknown collective 'all-redcue'", "Did you mean 'all-reduce'?"});
  expect_error({"comm"}, 2, {"no collective given", "broadcast"});
  expect_error({"comm", "broadcast", "--backend", "glo"}, 2, {"unknown backend 'glo'", "Did you mean 'gloo'?"});
  expect_error({"comm", "broadcast", "--dtype", "f23"}, 2, {"'f23'", "--dtype", "fp32"});
  expect_error({"comm", "broadcast", "--rank", "2"}, 2, {"--rank", "--ranks"});
  expect_error({"comm", "broadcast", "--ranks", "2,x"}, 2, {"--world-sizes", "'x'"});
  expect_error({"comm", "broadcast", "--ranks", "4", "--nproc", "2"}, 2, {"--world-sizes", "4 ranks"});
}

TEST(Comm, WrongSizesAreUsageErrors) {
  for (const char* sizes : {"", "1MB,", "many", "0", "2MB..1MB", "1MB..4MB:x3", "1MB.."})
    expect_error({"comm", "broadcast", "--sizes", sizes}, 2, {"--sizes"});
}

TEST(Comm, ASizeThatDoesNotFitIsRefusedWithOneThatDoes) {
  NEEDS_GLOO();
  expect_error({"comm", "all-gather", "--sizes", "1KB..100TB"}, 3, {"does not fit", "--sizes", "Up to", "fits"});
  expect_error({"comm", "all-reduce", "--sizes", "1GB", "--memory-limit", "1GiB"}, 3, {"1.00 GiB", "Up to"});
}

TEST(Comm, NcclWithoutAGpuSaysWhatIsMissing) {
  expect_error({"comm", "all-reduce", "--backend", "nccl"}, 4, {"--backend"});
}

}  // namespace crest::test
