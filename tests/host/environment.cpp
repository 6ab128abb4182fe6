#include "host/environment.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/temporary_folder.h"
#include "host/cgroup.h"
#include "host/memory.h"

using namespace crest;
namespace fs = std::filesystem;

namespace {

// A folder like the root of a machine.
struct FakeRoot {
  TemporaryFolder folder;
  fs::path path = folder.path();
  FakeRoot() {
    put("proc/meminfo", "MemTotal:       16384 kB\nMemFree:  10 kB\nMemAvailable:    8192 kB\n");
    put("proc/cpuinfo", "processor\t: 0\nmodel name\t: Test CPU 9000\nflags\t\t: fpu avx2 avx512f avx512_bf16 ht\n");
    put("proc/loadavg", "1.25 0.5 0.1 1/100 1234\n");
  }
  void put(const std::string& file, const std::string& text) {
    fs::create_directories((path / file).parent_path());
    std::ofstream(path / file) << text;
  }
};

}  // namespace

TEST(Memory, NoControlGroup) {
  FakeRoot root;
  EXPECT_EQ(total_memory_bytes(root.path), 16 << 20);
  EXPECT_EQ(available_memory_bytes(root.path), 8 << 20);
  EXPECT_EQ(read_cgroup_limits(root.path).cpus, -1);
}

TEST(Memory, ControlGroupV2TakesTheSmallestLimitOfAllLevels) {
  FakeRoot root;
  root.put("proc/self/cgroup", "0::/outer/inner\n");
  root.put("sys/fs/cgroup/outer/inner/memory.max", "max\n");
  root.put("sys/fs/cgroup/outer/memory.max", "4194304\n");
  root.put("sys/fs/cgroup/outer/memory.current", "3145728\n");
  root.put("sys/fs/cgroup/outer/memory.stat", "anon 5\nactive_file 7\ninactive_file 1048576\n");
  root.put("sys/fs/cgroup/outer/cpu.max", "max 100000\n");
  root.put("sys/fs/cgroup/outer/inner/cpu.max", "150000 100000\n");
  EXPECT_EQ(total_memory_bytes(root.path), 4 << 20);
  EXPECT_EQ(available_memory_bytes(root.path), 2 << 20);
  EXPECT_DOUBLE_EQ(read_cgroup_limits(root.path).cpus, 1.5);
  root.put("sys/fs/cgroup/outer/memory.current", "9000000\n");
  EXPECT_EQ(available_memory_bytes(root.path), 0) << "over the limit is none left, not a negative number";
}

TEST(Memory, ControlGroupV1) {
  FakeRoot root;
  root.put("proc/self/cgroup", "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n");
  root.put("sys/fs/cgroup/memory/memory.limit_in_bytes", "2097152\n");  // as a container sees it: at the root
  root.put("sys/fs/cgroup/memory/memory.usage_in_bytes", "1048576\n");
  root.put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n");
  root.put("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(total_memory_bytes(root.path), 2 << 20);
  EXPECT_EQ(available_memory_bytes(root.path), 1 << 20);
  EXPECT_DOUBLE_EQ(read_cgroup_limits(root.path).cpus, 2);
  root.put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(total_memory_bytes(root.path), 16 << 20) << "v1's way to say that there is no limit";
}

TEST(Memory, ResidentFollowsAllocation) {
  int64_t before = resident_bytes();
  ASSERT_GT(before, 0);
  constexpr size_t size = 64 << 20;
  {
    // Not the heap: a sanitizer's allocator keeps freed memory.
    void* block = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(block, MAP_FAILED);
    std::memset(block, 1, size);
    EXPECT_GE(resident_bytes(), before + int64_t(size) * 9 / 10);
    munmap(block, size);
  }
  EXPECT_GE(peak_resident_bytes(), before + int64_t(size) * 9 / 10);
  EXPECT_GE(peak_resident_bytes(), resident_bytes());
  if (reset_peak_resident()) {
    EXPECT_LT(peak_resident_bytes(), before + int64_t(size) / 2);
  }
}

TEST(Environment, ReadsAMachine) {
  FakeRoot root;
  root.put("sys/devices/system/cpu/cpu0/cache/index0/level", "1\n");
  root.put("sys/devices/system/cpu/cpu0/cache/index0/size", "32K\n");
  root.put("sys/devices/system/cpu/cpu0/cache/index1/level", "3\n");
  root.put("sys/devices/system/cpu/cpu0/cache/index1/size", "36M\n");
  Environment e = read_environment({{"oneDNN", "2.6.3"}}, root.path);
  EXPECT_EQ(e.cpu_model, "Test CPU 9000");
  EXPECT_EQ(e.isa_flags, (std::vector<std::string>{"avx2", "avx512f", "avx512_bf16"}));
  EXPECT_EQ(e.last_level_cache_bytes, 36 << 20);
  EXPECT_EQ(e.memory_total_bytes, 16 << 20);
  EXPECT_DOUBLE_EQ(e.load_average, 1.25);
  EXPECT_EQ(e.time_utc.size(), 20u);
  EXPECT_EQ(e.host_id.size(), 16u);
  auto j = nlohmann::json::parse(to_json(e));
  EXPECT_EQ(j.at("libraries").at("oneDNN"), "2.6.3");
  EXPECT_EQ(j.at("crest_version"), CREST_VERSION);
  EXPECT_EQ(j.at("isa_flags").size(), 3u);
}

TEST(Environment, ThisMachine) {
  Environment e = read_environment();
  EXPECT_FALSE(e.cpu_model.empty());
  EXPECT_GT(e.cores_usable, 0);
  EXPECT_LE(e.cores_usable, e.cores_online);
  EXPECT_GT(e.memory_available_bytes, 0);
  EXPECT_LE(e.memory_available_bytes, e.memory_total_bytes);
  EXPECT_GE(usable_threads(), 1);
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  ASSERT_GT(std::strlen(host), 0u);
  auto j = nlohmann::json::parse(to_json(e));
  EXPECT_NE(j.at("host_id").get<std::string>(), host) << "the host's name stays out";
}
