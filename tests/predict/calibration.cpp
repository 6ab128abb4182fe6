// A calibration says of each of its steps where and when it was measured.
#include "predict/calibration.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/io.h"
#include "memory_folder.h"

namespace crest::test {

namespace {

using Json = nlohmann::ordered_json;

Profile step_of(double ms) {
  Profile p;
  ProfileInstr r;
  r.op = "linear", r.kernel = "cuda.linear", r.op_class = "contraction", r.type = "bf16[2,3]", r.arithmetic = "bf16";
  r.flops = 1e9 * ms, r.bytes = 1e6 * ms, r.ms = ms;
  p.instrs = {r}, p.rates = {{"bf16", 2e12, "given"}, {"bandwidth", 2e11, "given"}}, p.step_ms = {ms};
  return p;
}

CalibrationSource source(const std::string& date, const std::string& device, const Json& environment) {
  CalibrationSource s;
  s.date = date, s.crest_version = "0.1.0", s.device = device, s.environment = environment;
  return s;
}

// Three of Crest's own steps, of two days, and one of this device.
Calibration extended() {
  Calibration c;
  c.kind = "cuda";
  const char* dates[] = {"2026-11-24T21:00:00.000Z", "2026-11-25T09:00:00.000Z", "2026-12-01T10:00:00.000Z"};
  const char* devices[] = {"NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3", "NVIDIA H100 NVL"};
  for (int i = 0; i < 3; ++i) {
    c.sources.push_back(source(dates[i], devices[i],
                               {{"cpu_model", i < 2 ? "Xeon" : "EPYC"},
                                {"libraries", {{"driver", "580"}, {"cuBLASLt", i < 2 ? "13.1" : "13.0"}}},
                                {"time_utc", dates[i]}}));
    c.sources.back().built_in = i < 2;
    c.add(step_of(1 + i));
    if (i == 0) c.add(step_of(5));
  }
  return c;
}

Json file_of(const Calibration& c, const MemoryFolder& folder) {
  const std::string file = folder.path() + "/calibration.json";
  save(c, file);
  return Json::parse(read_file(file, 1 << 20));
}

Calibration load(const Json& json, const MemoryFolder& folder) {
  const std::string file = folder.path() + "/changed.json";
  write_file_atomic(file, json.dump());
  return load_calibration(file);
}

}  // namespace

TEST(Calibration, SaysOfEachStepWhereItWasMeasured) {
  const Calibration c = extended();
  EXPECT_EQ(sources_text(c), (std::vector<std::string>{"2 steps measured on another NVIDIA H100 80GB HBM3, 2026-11-24",
                                                       "1 on another NVIDIA H100 80GB HBM3, 2026-11-25",
                                                       "1 on NVIDIA H100 NVL, 2026-12-01"}));
  EXPECT_EQ(dates_text(c), "2026-11-24 and 2026-11-25 and 2026-12-01");
  EXPECT_TRUE(c.built_in());
  EXPECT_EQ(c.device(), "NVIDIA H100 NVL");
  EXPECT_EQ(c.date(), "2026-12-01T10:00:00.000Z");
  EXPECT_EQ(common_environment(c), (Json{{"libraries", {{"driver", "580"}}}}));
  // Steps of one day and device are counted together.
  Calibration again = c;
  again.sources.push_back(source("2026-12-01T23:00:00.000Z", "NVIDIA H100 NVL", {}));
  again.add(step_of(4)), again.add(step_of(3));
  EXPECT_EQ(sources_text(again).back(), "3 on NVIDIA H100 NVL, 2026-12-01");
}

TEST(Calibration, KeepsItsSourcesInAFile) {
  MemoryFolder folder;
  const Calibration c = extended(), read = load(file_of(c, folder), folder);
  EXPECT_EQ(sources_text(read), sources_text(c));
  EXPECT_EQ(sources_json(read), sources_json(c));
  EXPECT_EQ(read.times.to_json(), c.times.to_json());
  ASSERT_EQ(read.sources.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(read.sources[i].environment, c.sources[i].environment);
}

// Versions of Crest before wrote one date and device for all steps.
TEST(Calibration, FilesWithoutSourcesHaveOne) {
  MemoryFolder folder;
  Json json = file_of(extended(), folder);
  json.erase("sources");
  EXPECT_EQ(sources_text(load(json, folder)),
            (std::vector<std::string>{"4 steps measured on NVIDIA H100 NVL, 2026-12-01"}));
  json["built_in"] = true;
  EXPECT_EQ(sources_text(load(json, folder)),
            (std::vector<std::string>{"4 steps measured on another NVIDIA H100 NVL, 2026-12-01"}));
  EXPECT_EQ(common_environment(load(json, folder)), json["environment"]);
}

TEST(Calibration, RefusesSourcesThatDoNotCountTheSteps) {
  MemoryFolder folder;
  const Json good = file_of(extended(), folder);
  auto refuses = [&](const char* what, auto change) {
    Json json = good;
    change(json["sources"]);
    try {
      load(json, folder);
      ADD_FAILURE() << json["sources"].dump();
    } catch (const Error& e) {
      EXPECT_NE(e.problem().find("not a calibration"), std::string::npos);
      EXPECT_NE(e.problem().find(what), std::string::npos) << e.problem();
    }
  };
  refuses("have 3 steps, and it has 4", [](Json& s) { s[0]["steps"] = 1; });
  refuses("have 5 steps, and it has 4", [](Json& s) { s[0]["steps"] = 3; });
  refuses("how many", [](Json& s) { s[0]["steps"] = 5; });
  refuses("how many", [](Json& s) { s[0]["steps"] = -1; });
  refuses("how many", [](Json& s) { s[0].erase("steps"); });
  refuses("how many", [](Json& s) { s[0] = 3; });
  refuses("'device'", [](Json& s) { s[0].erase("device"); });
  refuses("'date'", [](Json& s) { s[2]["date"] = 3; });
  refuses("have 0 steps", [](Json& s) { s = Json::array(); });
  refuses("not a list", [](Json& s) { s = 3; });
}

// Their sources count all of their steps: those in bf16, then those in other precisions.
TEST(Calibration, ThoseThatComeWithCrestHaveTheirSources) {
  for (const char* name : {"NVIDIA H100 80GB HBM3", "NVIDIA H200"}) {
    Device d;
    d.kind = "cuda", d.name = name, d.described = true;
    const std::optional<Calibration> c = find_calibration("", d);
    ASSERT_TRUE(c) << name;
    ASSERT_GE(c->sources.size(), 2u);
    size_t steps = 0;
    for (size_t i = 0; i < c->sources.size(); ++i) {
      const CalibrationSource& s = c->sources[i];
      EXPECT_TRUE(s.built_in && s.steps && s.device == name);
      if (i > 0) {
        EXPECT_LT(c->sources[i - 1].date, s.date);
      }
      steps += s.steps;
    }
    EXPECT_EQ(steps, c->times.steps());
  }
}

}  // namespace crest::test
