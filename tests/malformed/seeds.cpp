// All seeds of the fuzz targets (tests/fuzz/seeds.py), whole, cut short and with flipped bits, through the targets
// themselves: what the fuzzers start from holds in every `make test`, without clang.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <ctime>
#include <map>

#include "checkpoint/tiny.h"
#include "fuzz/fuzz.h"
#include "slowness.h"

using namespace crest::testing;

namespace {

using Target = void (*)(std::string_view);

std::map<std::string, Target>& targets() {
  static std::map<std::string, Target> all;
  return all;
}

#ifdef __SANITIZE_ADDRESS__
constexpr double seconds_allowed = 10;
constexpr int64_t bytes_allowed = int64_t(1) << 30;
#else
constexpr double seconds_allowed = 1;
constexpr int64_t bytes_allowed = int64_t(64) << 20;  // the files are of a few KB
#endif

int64_t peak_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return int64_t(usage.ru_maxrss) * 1024;
}

// Whatever leaves a target but an Error, which it catches itself, is a failure.
void expect_an_answer(Target target, const std::string& input) {
  int64_t peak = peak_bytes();
  std::clock_t start = std::clock();  // processor time: other programs on the machine do not count
  EXPECT_NO_THROW(target(input));
  EXPECT_LT(double(std::clock() - start) / CLOCKS_PER_SEC, seconds_allowed * crest::test::slowness());
  EXPECT_LT(peak_bytes() - peak, bytes_allowed);
}

}  // namespace

bool crest::fuzz::add_target(const char* name, void (*target)(std::string_view)) {
  return targets().emplace(std::string(name).substr(5), target).second;
}

TEST(Malformed, SeedsAreReadOrRefusedInTimeAndMemory) {
  if (std::system("python3 -c '' 2>/dev/null") != 0) GTEST_SKIP() << "no python3, which makes the seeds";
  ASSERT_GE(targets().size(), 14u);
  for (auto& [name, target] : targets()) {
    TemporaryFolder folder;
    std::string script = CREST_TEST_DIR "/fuzz/seeds.py";
    ASSERT_EQ(std::system(("python3 '" + script + "' " + name + " '" + folder.path() + "'").c_str()), 0);
    size_t seeds = 0;
    char number[32];
    for (;; ++seeds) {
      std::snprintf(number, sizeof number, "seed-%04zu", seeds);
      if (!crest::path_exists(folder / number)) break;
      SCOPED_TRACE(name + " " + number);
      std::string seed = crest::read_file(folder / number, 1 << 20);
      expect_an_answer(target, seed);
      // Damaged behind the first byte, which says what the input is.
      for (uint64_t i = 0; i < 4 && seed.size() > 1; ++i) {
        size_t at = 1 + size_t(crest::random_bits(seeds, 0, i) % (seed.size() - 1));
        std::string damaged = seed;
        if (i % 2)
          damaged.resize(at);
        else
          damaged[at] = char(damaged[at] ^ (1 << crest::random_bits(seeds, 1, i) % 8));
        expect_an_answer(target, damaged);
      }
    }
    EXPECT_GE(seeds, 3u) << name;
  }
}
