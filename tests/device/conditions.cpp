#include "device/conditions.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/temporary_folder.h"
#include "device/find.h"

namespace crest {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// A folder like the root of a machine, with the
// same files for every CPU of this process.
class ConditionsTest : public testing::Test {
 protected:
  void put(const std::string& file, const std::string& text) {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  void put_cpus(const std::string& file, const std::string& text) {
    for (int i = 0; i < CPU_SETSIZE && i < 64; ++i)
      put("sys/devices/system/cpu/cpu" + std::to_string(i) + "/" + file, text);
  }
  TemporaryFolder temporary_;
  fs::path root_ = temporary_.path();
};

TEST_F(ConditionsTest, ReadsAMachine) {
  put("proc/stat", "cpu  100 20 30 9999 5 6 4 50 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n");
  put("proc/loadavg", "7.5 0.5 0.1 1/100 1234\n");
  put("proc/self/cgroup", "0::/job\n");
  put("sys/fs/cgroup/job/cpu.stat", "usage_usec 5\nnr_periods 9\nnr_throttled 3\nthrottled_usec 77\n");
  put("sys/class/thermal/thermal_zone0/type", "acpitz\n");
  put("sys/class/thermal/thermal_zone0/temp", "20000\n");
  put("sys/class/thermal/thermal_zone1/type", "x86_pkg_temp\n");
  put("sys/class/thermal/thermal_zone1/temp", "64500\n");
  put("sys/class/powercap/intel-rapl:0/energy_uj", "2500000\n");
  put("sys/class/powercap/intel-rapl:1/energy_uj", "500000\n");
  put_cpus("cpufreq/scaling_cur_freq", "2900000\n");
  put_cpus("cpufreq/cpuinfo_max_freq", "3500000\n");
  put_cpus("thermal_throttle/core_throttle_count", "4\n");
  put_cpus("thermal_throttle/package_throttle_count", "2\n");
  Conditions c = read_conditions(find_device("cpu", 1), nullptr, root_);
  double tick = 1.0 / double(sysconf(_SC_CLK_TCK));
  EXPECT_NEAR(c.cpu.busy, 160 * tick, 1e-9) << "user, nice, system, interrupts; not idle, waiting or stolen";
  EXPECT_NEAR(c.cpu.steal, 50 * tick, 1e-9);
  EXPECT_EQ(c.cpu.quota_throttles, 3);
  EXPECT_EQ(c.cpu.thermal_throttles, 6);
  EXPECT_DOUBLE_EQ(c.cpu_mhz, 2900);
  EXPECT_DOUBLE_EQ(c.cpu_max_mhz, 3500);
  EXPECT_DOUBLE_EQ(c.cpu_temperature_c, 64.5);
  EXPECT_DOUBLE_EQ(c.cpu_energy_joules, 3);
  EXPECT_DOUBLE_EQ(c.load_average, 7.5);
  EXPECT_LE(c.other_load, 7.5);
  EXPECT_GE(c.other_load, 7.5 - 2 * double(sysconf(_SC_NPROCESSORS_ONLN))) << "less what this process adds";
  Json j = to_json(c);
  EXPECT_EQ(j["cpu_mhz"], 2900);
  EXPECT_TRUE(j["gpu"].is_null());
  EXPECT_FALSE(j.contains("gpu_problem")) << "not of a CPU";
}

TEST_F(ConditionsTest, WhatAMachineDoesNotTellIsNull) {
  put("proc/cpuinfo", "processor : 0\ncpu MHz\t\t: 2500.5\nprocessor : 1\ncpu MHz\t\t: 2499.5\n");
  Json j = to_json(read_conditions(find_device("cpu", 1), nullptr, root_));
  EXPECT_DOUBLE_EQ(j["cpu_mhz"].get<double>(), 2500);
  for (const char* key : {"cpu_max_mhz", "cpu_temperature_c", "cpu_energy_joules", "gpu"})
    EXPECT_TRUE(j[key].is_null()) << key;
  fs::remove(root_ / "proc/cpuinfo");
  EXPECT_TRUE(std::isnan(read_cpu_mhz(root_)));
  EXPECT_EQ(read_cpu_counters(root_).steal, 0);
}

TEST_F(ConditionsTest, LoadOfOthersBetweenTwoReadings) {
  auto machine = [&](double busy_seconds) {
    put("proc/stat",
        "cpu  " + std::to_string(int64_t(busy_seconds * double(sysconf(_SC_CLK_TCK)))) + " 0 0 1000 0 0 0 0 0 0\n");
  };
  Device cpu = find_device("cpu", 1);
  machine(1000);
  Conditions before = read_conditions(cpu, nullptr, root_);
  // This process works for 0.2 s of processor time; the machine was busy for ten times as long.
  std::clock_t start = std::clock();
  while (std::clock() - start < CLOCKS_PER_SEC / 5) continue;
  machine(1002);
  Conditions after = read_conditions(cpu, &before, root_);
  double elapsed = after.cpu.seconds - before.cpu.seconds, own = after.cpu.own - before.cpu.own;
  EXPECT_GT(own, 0);
  EXPECT_NEAR(after.other_load, (2 - own) / elapsed, 1e-6);
}

// The processor time of other ranks belongs to the run.
TEST(Conditions, OtherRanksAreNoOtherLoad) {
  constexpr double worked = 0.3;
  auto seconds = [] { return double(std::clock()) / CLOCKS_PER_SEC; };
  for (bool ranks : {true, false}) {
    int before[2], after[2];  // the rank works between two readings of the other process
    ASSERT_EQ(pipe(before), 0);
    ASSERT_EQ(pipe(after), 0);
    char byte = 0;
    pid_t rank = fork();
    if (rank == 0) {
      if (read(before[0], &byte, 1) != 1) _exit(1);
      for (double start = seconds(); seconds() - start < worked;) continue;
      if (write(after[1], &byte, 1) != 1) _exit(1);
      if (read(before[0], &byte, 1) != 1) _exit(1);  // it lives until it was counted
      _exit(0);
    }
    pid_t reads = fork();
    if (reads == 0) {
      for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"})
        ranks ? setenv(name, std::string(name).ends_with("SIZE") ? "2" : "0", 1) : unsetenv(name);
      Device cpu = find_device("cpu", 1);
      double own = -read_conditions(cpu).cpu.own;
      if (write(before[1], &byte, 1) != 1 || read(after[0], &byte, 1) != 1) _exit(1);
      own += read_conditions(cpu).cpu.own;
      if (write(before[1], &byte, 1) != 1) _exit(1);
      _exit(own > 0.5 * worked ? 2 : 3);
    }
    int status = 0;
    ASSERT_EQ(waitpid(reads, &status, 0), reads);
    EXPECT_EQ(WEXITSTATUS(status), ranks ? 2 : 3);
    ASSERT_EQ(waitpid(rank, &status, 0), rank);
    EXPECT_EQ(WEXITSTATUS(status), 0);
    for (int end : {before[0], before[1], after[0], after[1]}) close(end);
  }
}

TEST(Conditions, ThisMachineAndItsLibraries) {
  Device cpu = find_device("cpu", 1);
  Conditions c = read_conditions(cpu);
  EXPECT_GE(c.other_load, 0);
  EXPECT_GT(c.cpu.busy, 0);
  Json j = environment_json(cpu, c);
  EXPECT_EQ(j["conditions"]["time_utc"], c.time_utc);
  EXPECT_TRUE(j["libraries"].contains("oneDNN"));
  EXPECT_TRUE(j.contains("cpu_model"));
  Json after = environment_after_json(cpu, c);
  EXPECT_TRUE(after["conditions"].contains("other_load"));
}

TEST(Conditions, AGpuThatIsNotThereIsAProblemToldNotAnError) {
  Device gpu;
  gpu.kind = "cuda", gpu.index = 99;
  Json j = to_json(read_conditions(gpu));
  EXPECT_TRUE(j["gpu"].is_null());
  EXPECT_FALSE(j["gpu_problem"].get<std::string>().empty());
}

}  // namespace
}  // namespace crest
