#include "device/energy.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "core/temporary_folder.h"
#include "device/conditions.h"
#include "device/find.h"

namespace crest {
namespace {

// Answers one after the other, the last one again and again.
struct Player {
  std::vector<EnergyReading> readings;
  size_t asked = 0;
  EnergyPoll poll() {
    return [this] { return readings[std::min(asked++, readings.size() - 1)]; };
  }
};

TEST(Energy, IsCountedFromOneChangeOfTheCounterToAnother) {
  // Old at first; it changes at 0.2, 1.0 and 1.6 s.
  Player p = {
      {{0, 100, {}}, {0.1, 100, {}}, {0.2, 130, {}}, {0.5, 130, {}}, {1.0, 370, {}}, {1.6, 550, {}}, {9, 550, {}}}};
  EnergyWatch watch(p.poll(), 0);
  for (int i = 0; i < 4; ++i) watch.sampled();
  EXPECT_EQ(p.asked, 5u);
  EXPECT_DOUBLE_EQ(watch.energy().joules, 240);
  EXPECT_DOUBLE_EQ(watch.energy().seconds, 0.8);
  EXPECT_FALSE(watch.energy().watts().has_value()) << "less than a second";
  watch.sampled(), watch.sampled();
  EXPECT_DOUBLE_EQ(watch.energy().joules, 420);
  EXPECT_DOUBLE_EQ(watch.energy().watts().value(), 300) << "not until 9 s: nothing was counted after 1.6 s";
}

TEST(Energy, ACounterThatBeginsAgainIsLeftOut) {
  Player p = {{{0, 1, {}}, {1, 10, {}}, {2, 110, {}}, {3, 5, {}}, {4, 105, {}}}};
  EnergyWatch watch(p.poll(), 0);
  for (int i = 0; i < 4; ++i) watch.sampled();
  EXPECT_DOUBLE_EQ(watch.energy().joules, 200);
  EXPECT_DOUBLE_EQ(watch.energy().seconds, 2);
}

TEST(Energy, PowerIsSummedUpWhereThereIsNoCounter) {
  Player p = {{{10, {}, 100}, {11, {}, 300}, {13, {}, 300}}};
  EnergyWatch watch(p.poll(), 0);
  watch.sampled(), watch.sampled();
  EXPECT_DOUBLE_EQ(watch.energy().joules, 200 + 600);
  EXPECT_DOUBLE_EQ(watch.energy().watts().value(), 800.0 / 3);
}

TEST(Energy, WhatWasBeforeTheBeginningDoesNotCount) {
  Player p = {{{0, {}, 900}, {5, {}, 900}, {6, {}, 100}, {8, {}, 100}}};
  EnergyWatch watch(p.poll(), 0);
  watch.sampled();
  watch.begin();
  watch.sampled();
  EXPECT_DOUBLE_EQ(watch.energy().watts().value(), 100);
}

TEST(Energy, ShortSamplesAreCompletedToASecond) {
  int asked = 0, runs = 0;
  EnergyWatch watch([&] { return EnergyReading{asked * 0.25, asked++ * 50.0, {}}; }, 0);
  watch.complete([&] { ++runs; });
  EXPECT_EQ(runs, 5) << "one to the first change, four quarters of a second";
  EXPECT_DOUBLE_EQ(watch.energy().watts().value(), 200);
  watch.complete([&] { ++runs; });
  EXPECT_EQ(runs, 5);
}

TEST(Energy, NothingRunsWhereThereIsNothingToRead) {
  EnergyWatch watch([] { return EnergyReading{}; }, 0);
  int runs = 0;
  watch.complete([&] { ++runs; });
  EXPECT_EQ(runs, 0);
  EXPECT_FALSE(watch.energy().watts().has_value());
}

TEST(Energy, ReadsAtMostOnceAnInterval) {
  int asked = 0;
  EnergyWatch watch([&] { return EnergyReading{double(asked++), 1, {}}; }, 1e9);
  for (int i = 0; i < 10; ++i) watch.sampled();
  EXPECT_EQ(asked, 1);
}

TEST(Energy, OfACpuIsTheSumOfItsPackages) {
  TemporaryFolder folder;
  for (int package : {0, 1}) {
    std::string of = folder.path() + "/sys/class/powercap/intel-rapl:" + std::to_string(package);
    std::filesystem::create_directories(of);
    std::ofstream(of + "/energy_uj") << (package ? "500000\n" : "2000000\n");
  }
  EXPECT_DOUBLE_EQ(read_cpu_energy(folder.path()), 2.5);
}

TEST(Energy, ThisMachineIsReadOrNot) {
  EnergyReading r = energy_poll(find_device("cpu", 1))();
  EXPECT_FALSE(r.watts.has_value());
  EXPECT_GE(r.joules.value_or(0), 0);
}

}  // namespace
}  // namespace crest
