// All seeds of the fuzz targets (tests/fuzz/seeds.py), whole, cut short and with flipped bits,
// through the targets themselves: the fuzzers' starting points hold in every `make test`, without
// clang.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <ctime>
#include <map>

#include "checkpoint/tiny.h"
#include "fuzz/fuzz.h"
#include "malformed/allocations.h"
#include "slowness.h"

using namespace crest::test;

namespace {

using Target = void (*)(std::string_view);

std::map<std::string, Target>& targets() {
  static std::map<std::string, Target> all;
  return all;
}

// Far above the need of any input of its size, and far below the square of a large size: a file of
// 100 KB may take about 0.6 s and 36 MB.
#ifdef __SANITIZE_ADDRESS__
constexpr double base_seconds = 3, seconds_per_byte = 60e-6;
constexpr int64_t peak_resident = int64_t(1) << 30;
#else
constexpr double base_seconds = 0.2, seconds_per_byte = 4e-6;
constexpr int64_t peak_resident = int64_t(128) << 20;
#endif
constexpr size_t base_bytes = size_t(16) << 20, bytes_per_byte = 200;

int64_t resident_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return int64_t(usage.ru_maxrss) * 1024;
}

struct Worst {
  double seconds = 0;
  size_t bytes = 0, largest = 0;
};

// A target catches Error itself. Any other exception is a failure.
void expect_an_answer(Target target, const std::string& input, Worst& worst) {
  int64_t resident = resident_bytes();
  crest::test::begin_counting();
  std::clock_t start = std::clock();  // processor time: other programs on the machine do not count
  EXPECT_NO_THROW(target(input));
  double seconds = double(std::clock() - start) / CLOCKS_PER_SEC;
  crest::test::Allocations taken = crest::test::counted();
  EXPECT_LT(seconds, (base_seconds + seconds_per_byte * double(input.size())) * crest::test::slowness())
      << input.size() << " bytes";
  if (crest::test::counts_allocations) {
    EXPECT_LT(taken.peak, base_bytes + bytes_per_byte * input.size()) << input.size() << " bytes";
  }
  EXPECT_LT(resident_bytes() - resident, peak_resident);
  worst.seconds = std::max(worst.seconds, seconds);
  worst.bytes = std::max(worst.bytes, taken.peak), worst.largest = std::max(worst.largest, taken.largest);
}

// The seed with a piece of it, somewhere behind the first byte, repeated until the whole is large.
std::string grown(const std::string& seed, uint64_t a, uint64_t b) {
  constexpr size_t large = 96 << 10;
  size_t at = 1 + size_t(a % (seed.size() - 1)), count = std::min(size_t(1) << (b % 7), seed.size() - at);
  std::string text = seed.substr(0, at + count);
  while (text.size() + seed.size() < large) text.append(seed, at, count);
  return text.append(seed, at + count);
}

// All seeds of a target, made once.
const std::vector<std::string>& seeds_of(const std::string& name) {
  static std::map<std::string, std::vector<std::string>> made;
  auto [entry, fresh] = made.try_emplace(name);
  if (!fresh) return entry->second;
  crest::MemoryFolder folder;
  std::string script = CREST_TEST_DIR "/fuzz/seeds.py";
  EXPECT_EQ(std::system(("python3 '" + script + "' " + name + " '" + folder.path() + "'").c_str()), 0);
  for (char number[32];;) {
    std::snprintf(number, sizeof number, "seed-%04zu", entry->second.size());
    if (!crest::path_exists(folder / number)) return entry->second;
    entry->second.push_back(crest::read_file(folder / number, 1 << 20));
  }
}

bool has_python() { return std::system("python3 -c '' 2>/dev/null") == 0; }

}  // namespace

bool crest::fuzz::add_target(const char* name, void (*target)(std::string_view)) {
  return targets().emplace(std::string(name).substr(5), target).second;
}

TEST(Malformed, SeedsAreReadOrRefusedInTimeAndMemory) {
  if (!has_python()) GTEST_SKIP() << "no python3, which makes the seeds";
  ASSERT_GE(targets().size(), 14u);
  for (auto& [name, target] : targets()) {
    Worst worst;
    auto& seeds = seeds_of(name);
    EXPECT_GE(seeds.size(), 3u) << name;
    for (size_t number = 0; number < seeds.size(); ++number) {
      const std::string& seed = seeds[number];
      SCOPED_TRACE(::testing::Message() << name << ", seed " << number);
      expect_an_answer(target, seed, worst);
      // Damaged behind the first byte, the kind of input.
      for (uint64_t i = 0; i < 4 && seed.size() > 1; ++i) {
        size_t at = 1 + size_t(crest::random_bits(number, 0, i) % (seed.size() - 1));
        std::string damaged = seed;
        if (i % 2)
          damaged.resize(at);
        else
          damaged[at] = char(damaged[at] ^ (1 << crest::random_bits(number, 1, i) % 8));
        expect_an_answer(target, damaged, worst);
      }
    }
  }
}

// Quadratic time shows when a piece of a file is repeated until the file is large.
// CREST_GROWN_SEEDS: how many of each target.
TEST(Malformed, LargeInputsTakeTimeAndMemoryInProportion) {
  if (!has_python()) GTEST_SKIP() << "no python3, which makes the seeds";
  const auto wanted = uint64_t(count_from("CREST_GROWN_SEEDS", 24));
  for (auto& [name, target] : targets()) {
    Worst worst;
    std::vector<std::string> all;
    for (auto& seed : seeds_of(name))
      if (seed.size() > 8) all.push_back(seed);
    ASSERT_FALSE(all.empty()) << name;
    for (uint64_t i = 0; i < wanted; ++i) {
      size_t number = size_t(crest::random_bits(51, 0, i) % all.size());
      uint64_t at = crest::random_bits(51, 1, i), count = crest::random_bits(51, 2, i);
      SCOPED_TRACE(::testing::Message() << name << ", seed " << number << ", piece "
                                        << at % (all[number].size() - 1) + 1 << ", " << (1 << count % 7) << " bytes");
      expect_an_answer(target, grown(all[number], at, count), worst);
    }
    std::printf("%-16s %.3f s, %.1f MB at once, %.1f MB in one piece\n", name.c_str(), worst.seconds,
                double(worst.bytes) / 1e6, double(worst.largest) / 1e6);
  }
}
