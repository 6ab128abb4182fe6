// NVIDIA's management library, imitated by a small library built here. No GPU is needed.
#include "backend/cuda/nvml.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "core/temporary_folder.h"

namespace crest::cuda {
namespace {

namespace fs = std::filesystem;

// Shared by all fakes; FAKE_PROCESSES and FAKE_REASONS come from the environment.
const char* const basics = R"(
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int nvmlInit_v2(void) { return getenv("FAKE_BROKEN") ? 9 : 0; }
int nvmlShutdown(void) { return 0; }
const char* nvmlErrorString(int code) { return code == 9 ? "Driver Not Loaded" : "Not Found"; }
int nvmlSystemGetDriverVersion(char* text, unsigned n) { strncpy(text, "580.65.06", n); return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** handle) {
  static int device[3];
  *handle = device + (id[5] == '1' ? 0 : id[5] == '2' ? 1 : 2);
  return id[5] < '1' || id[5] > '3' || strcmp(id + 6, "7:00.0") ? 6 : 0;
}
int nvmlDeviceGetP2PStatus(void* a, void* b, unsigned what, unsigned* v) {
  *v = what == 2 && (int*)a + 1 == (int*)b ? 0 : 3;
  return 0;
}
int nvmlDeviceGetTopologyCommonAncestor(void* a, void* b, unsigned* v) { *v = 50; return 0; }
)";

const char* const figures = R"(
int nvmlDeviceGetClockInfo(void* d, unsigned type, unsigned* v) { *v = type == 1 ? 1755 : 2619; return 0; }
int nvmlDeviceGetMaxClockInfo(void* d, unsigned type, unsigned* v) { *v = type == 1 ? 1980 : 2619; return 0; }
int nvmlDeviceGetPowerUsage(void* d, unsigned* v) { *v = 694500; return 0; }
int nvmlDeviceGetTotalEnergyConsumption(void* d, unsigned long long* v) { *v = 8123456789ull; return 0; }
int nvmlDeviceGetEnforcedPowerLimit(void* d, unsigned* v) { *v = 700000; return 0; }
int nvmlDeviceGetTemperature(void* d, unsigned sensor, unsigned* v) { *v = sensor == 0 ? 71 : 0; return 0; }
int nvmlDeviceGetCurrentClocksThrottleReasons(void* d, unsigned long long* v) {
  const char* reasons = getenv("FAKE_REASONS");
  *v = reasons ? strtoull(reasons, 0, 0) : 0;
  return 0;
}
int nvmlDeviceGetUtilizationRates(void* d, unsigned* v) { v[0] = 93, v[1] = 40; return 0; }
int nvmlDeviceGetMemoryInfo(void* d, unsigned long long* v) { v[0] = 100, v[1] = 70, v[2] = 30; return 0; }
struct Process { unsigned pid; unsigned long long used; unsigned gpu, compute; };
int nvmlDeviceGetComputeRunningProcesses_v3(void* d, unsigned* count, struct Process* list) {
  unsigned room = *count, n = getenv("FAKE_PROCESSES") ? (unsigned)atoi(getenv("FAKE_PROCESSES")) : 0;
  *count = n;
  if (room < n) return 7;
  for (unsigned i = 0; i < n; ++i) {
    list[i].pid = i == 0 ? (unsigned)getpid() : 1;
    list[i].used = i == 0 ? 5000 : i == 1 ? 7000 : ~0ull;
  }
  return 0;
}
)";

class FakeNvml : public testing::Test {
 protected:
  void SetUp() override {
    if (std::system("cc --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "no C compiler to build the library with";
  }
  void TearDown() override {
    for (const char* name : {"FAKE_BROKEN", "FAKE_REASONS", "FAKE_PROCESSES"}) unsetenv(name);
  }
  // The path of a library of this source.
  std::string build(const std::string& source, const std::string& name = "fake") {
    std::string path = folder_ / (name + ".so");
    std::ofstream(folder_ / "fake.c") << source;
    std::string command = "cc -shared -fPIC -o '" + path + "' '" + (folder_ / "fake.c").string() + "'";
    EXPECT_EQ(std::system(command.c_str()), 0);
    return path;
  }
  TemporaryFolder temporary_;
  fs::path folder_ = temporary_.path();
};

TEST_F(FakeNvml, ReadsEveryFigure) {
  Nvml nvml(build(std::string(basics) + figures));
  ASSERT_EQ(nvml.problem(), "");
  EXPECT_EQ(nvml.driver_version(), "580.65.06");
  setenv("FAKE_REASONS", "0x5", 1);
  setenv("FAKE_PROCESSES", "3", 1);
  GpuState s = nvml.read("0000:17:00.0");
  EXPECT_EQ(s.sm_mhz, 1755);
  EXPECT_EQ(s.sm_max_mhz, 1980);
  EXPECT_EQ(s.memory_mhz, 2619);
  EXPECT_EQ(s.memory_max_mhz, 2619);
  EXPECT_DOUBLE_EQ(s.power_watts.value(), 694.5);
  EXPECT_DOUBLE_EQ(s.power_limit_watts.value(), 700);
  EXPECT_EQ(s.temperature_c, 71);
  EXPECT_EQ(s.utilization_percent, 93);
  EXPECT_EQ(s.memory_used_bytes, 30);
  EXPECT_EQ(s.throttle_bits, 5u);
  EXPECT_EQ(nvml.read_throttle_bits("0000:17:00.0"), 5u);
  EXPECT_DOUBLE_EQ(nvml.read_energy_joules("0000:17:00.0").value(), 8123456.789);
  EXPECT_DOUBLE_EQ(nvml.read_power_watts("0000:17:00.0").value(), 694.5);
  EXPECT_EQ(nvml.read_memory_used("0000:17:00.0"), 30);
  EXPECT_TRUE(s.own_listed);
  EXPECT_EQ(s.own_bytes, 5000);
  EXPECT_EQ(s.other_processes, 2);
  EXPECT_EQ(s.other_processes_bytes, 7000) << "of one of the two the driver does not tell";
}

TEST_F(FakeNvml, SaysWhatConnectsTwoGpus) {
  Nvml nvml(build(std::string(basics) + figures));
  EXPECT_EQ(nvml.link("0000:17:00.0", "0000:27:00.0"), "NVLink");
  EXPECT_EQ(nvml.link("0000:17:00.0", "0000:37:00.0"), "PCIe, across NUMA nodes");
}

TEST_F(FakeNvml, AListLongerThanExpectedIsReadWhole) {
  Nvml nvml(build(std::string(basics) + figures));
  setenv("FAKE_PROCESSES", "40", 1);
  EXPECT_EQ(nvml.read("0000:17:00.0").other_processes, 39);
  setenv("FAKE_PROCESSES", "0", 1);
  GpuState none = nvml.read("0000:17:00.0");
  EXPECT_FALSE(none.own_listed);
  EXPECT_EQ(none.other_processes, 0);
}

TEST_F(FakeNvml, WhatALibraryDoesNotTellIsAbsent) {
  Nvml nvml(build(basics));
  ASSERT_EQ(nvml.problem(), "");
  GpuState s = nvml.read("0000:17:00.0");
  EXPECT_FALSE(s.sm_mhz || s.power_watts || s.temperature_c || s.throttle_bits || s.memory_used_bytes);
  EXPECT_FALSE(s.other_processes.has_value());
  EXPECT_FALSE(nvml.read_throttle_bits("0000:17:00.0").has_value());
  EXPECT_FALSE(nvml.read_energy_joules("0000:17:00.0").has_value());
  EXPECT_FALSE(nvml.read_power_watts("0000:17:00.0").has_value());
}

TEST_F(FakeNvml, UnknownDevicesAndBrokenLibrariesSayWhatIsWrong) {
  Nvml nvml(build(std::string(basics) + figures));
  try {
    nvml.read("0000:99:00.0");
    FAIL() << "there is no such device";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("0000:99:00.0"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("Not Found"), std::string::npos) << e.what();
  }
  setenv("FAKE_BROKEN", "1", 1);
  Nvml broken(build(std::string(basics) + figures, "broken"));
  EXPECT_NE(broken.problem().find("Driver Not Loaded"), std::string::npos) << broken.problem();
  EXPECT_EQ(broken.driver_version(), "");
  EXPECT_THROW(broken.read("0000:17:00.0"), Error);
  Nvml foreign(build("int something_else;\n", "foreign"));
  EXPECT_NE(foreign.problem().find("is not NVIDIA's management library"), std::string::npos) << foreign.problem();
}

}  // namespace

TEST(Nvml, AMissingLibraryIsNoError) {
  Nvml nvml("/nonexistent/libnvidia-ml.so.1");
  EXPECT_NE(nvml.problem().find("/nonexistent/libnvidia-ml.so.1"), std::string::npos);
  EXPECT_EQ(nvml.driver_version(), "");
  EXPECT_FALSE(nvml.read_throttle_bits("0000:17:00.0").has_value());
}

TEST(Nvml, ReasonsHaveNamesAndOnlySomeThrottle) {
  EXPECT_EQ(throttle_reasons(0), std::vector<std::string>{});
  EXPECT_EQ(throttle_reasons(0x1 | 0x4 | 0x40), (std::vector<std::string>{"idle", "power_cap", "hardware_thermal"}));
  EXPECT_EQ(throttle_reasons(0x8000), std::vector<std::string>{"unknown_8000"});
  for (uint64_t bits : {0x4, 0x8, 0x20, 0x40, 0x80, 0x5}) EXPECT_TRUE(throttled(bits)) << bits;
  for (uint64_t bits : {0x0, 0x1, 0x2, 0x10, 0x100, 0x8000}) EXPECT_FALSE(throttled(bits)) << bits;
}

}  // namespace crest::cuda
