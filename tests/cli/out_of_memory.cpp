// Failing allocations, one after the other: one clear error, an exit code, nothing damaged.
#include "cli/train_harness.h"

using namespace crest::test;

namespace {

constexpr const char* library = CREST_FAIL_ALLOCATION;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool own_operator_new = true;
#else
constexpr bool own_operator_new = false;
#endif

RunOptions with_fault(const TrainFolder& f, const std::string& k, long large = 0) {
  RunOptions o = f.options();
  o.environment.insert(o.environment.end(), {{"LD_PRELOAD", library},
                                             {"GOMP_SPINCOUNT", "4000"},
                                             {"CREST_FAIL_ALLOCATION", k},
                                             {"CREST_FAIL_COUNT", f / "count"}});
  if (large) o.environment.emplace_back("CREST_FAIL_LARGE", std::to_string(large));
  return o;
}

long count_allocations(const TrainFolder& f, const std::vector<std::string>& command, long large = 0) {
  std::filesystem::remove(f.path() / "count");
  RunResult r = run_crest(command, with_fault(f, "-1", large));
  EXPECT_EQ(r.code, 0) << r.err;
  return std::atol(f.read("count").c_str());
}

// 0: the failed allocation had no effect, since a library can do without it. Otherwise the command
// ends with an error about memory. Returns whether it did.
bool expect_clear_end(const RunResult& r) {
  bool one = r.err.find("crest: error: ") == r.err.rfind("crest: error: ");
  if (r.code == 0) {
    EXPECT_EQ(r.err.find("crest: error: "), std::string::npos) << r.err;
    return false;
  }
  EXPECT_TRUE(r.code >= 1 && r.code <= 3) << "exit code " << r.code << "\n" << r.err;
  EXPECT_NE(r.err.find("crest: error: "), std::string::npos) << r.err;
  EXPECT_TRUE(one) << r.err;
  EXPECT_NE(r.err.find("out of memory"), std::string::npos) << r.err;
  return true;
}

// CREST_ALLOCATION_FAULTS: points of each command.
int points_of(int otherwise) {
  const char* text = std::getenv("CREST_ALLOCATION_FAULTS");
  return text ? std::atoi(text) : otherwise;
}

}  // namespace

TEST(OutOfMemory, AnyAllocationThatFailsIsOneError) {
  if (own_operator_new) GTEST_SKIP() << "the sanitizers have their own operator new";
  ASSERT_EQ(access(library, R_OK), 0) << library;
  TrainFolder f;
  ASSERT_EQ(f.train("run", 2, {"--no-store"}).code, 0);
  f.write("settings.toml", "model = \"tiny.toml\"\nbatch = 2\nprecision = \"fp32\"\n");
  const std::string before = f.last_state("run");
  int points = 0, refused = 0;
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"plan", "--config", "settings.toml", "--json"},
        {"data", "info", "data"},
        {"eval", "--run", "run", "--data", "data", "--threads", "1", "--batches", "1"}}) {
    long allocations = count_allocations(f, command);
    ASSERT_GT(allocations, 100);
    int wanted = points_of(6);
    for (int i = 0; i < wanted; ++i) {
      long k = long(crest::random_bits(21, 0, uint64_t(i)) % uint64_t(allocations));
      std::string point = std::to_string(k) + (i % 3 == 2 ? "+" : "");
      SCOPED_TRACE(command[0] + " " + command[1] + ", allocation " + point);
      refused += expect_clear_end(run_crest(command, with_fault(f, point)));
      ++points;
    }
  }
  EXPECT_GT(refused, points / 2);
  EXPECT_EQ(f.last_state("run"), before);
  std::printf("%d allocations that failed, %d refused, 0 crashes\n", points, refused);
}

// Arenas, batches, copies for saving: the large memory of a training.
TEST(OutOfMemory, LargeAllocationsOfTrainingEndItAndDamageNothing) {
  if (own_operator_new) GTEST_SKIP() << "the sanitizers have their own operator new";
  ASSERT_EQ(access(library, R_OK), 0) << library;
  TrainFolder f;
  ASSERT_EQ(f.train("run", 2, {"--no-store"}).code, 0);
  const std::string before = f.last_state("run");
  const std::vector<std::string> command = {"train", "--resume", "run", "--steps", "4", "--no-store"};
  std::filesystem::copy(f.path() / "run", f.path() / "whole", std::filesystem::copy_options::recursive);
  auto again = [&] {
    std::filesystem::remove_all(f.path() / "run");
    std::filesystem::copy(f.path() / "whole", f.path() / "run", std::filesystem::copy_options::recursive);
  };
  long allocations = count_allocations(f, command, 1 << 16);
  ASSERT_GT(allocations, 3);
  int wanted = std::min<int>(points_of(4), int(allocations)), refused = 0;
  for (int i = 0; i < wanted; ++i) {
    long k = wanted == allocations ? i : long(crest::random_bits(22, 0, uint64_t(i)) % uint64_t(allocations));
    SCOPED_TRACE(k);
    again();
    refused += expect_clear_end(run_crest(command, with_fault(f, std::to_string(k), 1 << 16)));
    auto names = f.checkpoints("run");
    ASSERT_FALSE(names.empty());
    if (names.back() == "step-000002") {
      EXPECT_EQ(f.last_state("run"), before);
    }
    RunResult r = f.resume("run", {"--steps", "4", "--no-store"});
    EXPECT_EQ(r.code, 0) << r.err;
  }
  EXPECT_GT(refused, 0);
  std::printf("%d large allocations of a training that failed (of %ld), %d refused, 0 checkpoints lost\n", wanted,
              allocations, refused);
}
