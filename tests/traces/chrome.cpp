// The Chrome trace: valid JSON, Kineto's names, nested slices.
#include "traces/chrome_trace.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "traces/python.h"
#include "traces/sample_profile.h"
#include "traces/trace_slices.h"

using namespace crest;
using Json = nlohmann::json;

namespace {

Json parse(const Profile& p) { return Json::parse(chrome_trace(p)); }

std::map<std::string, int> categories(const Json& trace) {
  std::map<std::string, int> out;
  for (auto& e : trace["traceEvents"])
    if (e["ph"] == "X") ++out[e["cat"].get<std::string>()];
  return out;
}

}  // namespace

TEST(ChromeTrace, HoldsEveryInstructionAndKernel) {
  Json gpu = parse(test::sample_profile(true)), cpu = parse(test::sample_profile(false));
  // A step, three calls, and forward, recompute, backward twice, update.
  EXPECT_EQ(categories(cpu), (std::map<std::string, int>{{"cpu_op", 13}, {"user_annotation", 1 + 3 + 7}}));
  EXPECT_EQ(categories(gpu),
            (std::map<std::string, int>{{"cpu_op", 13}, {"kernel", 26}, {"user_annotation", 1 + 3 + 7}}));
  EXPECT_EQ(gpu["schemaVersion"], 1);
  EXPECT_EQ(gpu["deviceProperties"][0]["name"], "sample");
  EXPECT_EQ(cpu["deviceProperties"].size(), 0u);
}

TEST(ChromeTrace, ArgumentsExplainAnInstruction) {
  Json trace = parse(test::sample_profile(true));
  for (auto& e : trace["traceEvents"])
    if (e["ph"] == "X" && e["name"] == "linear") {
      Json args = e["args"];
      EXPECT_EQ(args["origin"], "h.0.attn.qkv");
      EXPECT_EQ(args["phase"], "forward");
      EXPECT_EQ(args["layer"], 0);
      EXPECT_EQ(args["FLOPs"], 1e6) << "of one of its two calls";
      EXPECT_EQ(args["kernel"], "cpu.linear");
      EXPECT_DOUBLE_EQ(e["ts"], 650.0) << "microseconds";
      EXPECT_DOUBLE_EQ(e["dur"], 499.999) << "from the start of its first kernel to the end of its last";
      return;
    }
  FAIL();
}

TEST(ChromeTrace, KernelsBelongToInstructions) {
  Json trace = parse(test::sample_profile(true));
  std::map<int, std::string> names;
  std::map<int, int> arrows;
  for (auto& e : trace["traceEvents"]) {
    if (e["ph"] == "s" || e["ph"] == "f") arrows[e["id"]] += e["ph"] == "s" ? 1 : 100;
    if (e["ph"] == "X" && e["cat"] == "cpu_op") names[e["args"]["External id"]] = e["name"];
  }
  for (auto& e : trace["traceEvents"])
    if (e["ph"] == "X" && e["cat"] == "kernel") {
      std::string op = names.at(e["args"]["External id"]);
      EXPECT_EQ(e["name"].get<std::string>().find("void crest::" + op + "_"), 0u) << e;
      EXPECT_EQ(arrows[e["args"]["correlation"]], 101) << "an arrow with two ends";
      EXPECT_EQ(e["tid"], e["args"]["stream"]);
    }
}

TEST(ChromeTrace, MemoryAddsUpAndCountersAreByCategory) {
  Json trace = parse(test::sample_profile(false));
  int64_t total = 0, peak = 0;
  Json last;
  for (auto& e : trace["traceEvents"]) {
    if (e["name"] == "[memory]") {
      total += e["args"]["Bytes"].get<int64_t>();
      EXPECT_EQ(e["args"]["Total Allocated"], total);
      peak = std::max(peak, total);
    } else if (e["ph"] == "C") {
      last = e["args"];
    }
  }
  EXPECT_EQ(peak, 3000 + 768);
  EXPECT_EQ(
      last,
      Json({{"weights", 1000}, {"optimizer_state", 2000}, {"activations", 0}, {"temporary", 0}, {"workspace", 0}}));
}

TEST(ChromeTrace, CopiesHaveTheirOwnCategories) {
  Profile p = test::sample_profile(true);
  p.kernels.push_back({.name = "Memcpy HtoD (Pinned -> Device)"});
  p.kernels.push_back({.name = "Memset (Device)"});
  p.intervals.push_back({-1, 14, 0, 9, 0.01, 0.02});
  p.intervals.push_back({-1, 15, 0, 9, 0.05, 0.02});
  auto found = categories(parse(p));
  EXPECT_EQ(found["gpu_memcpy"], 1);
  EXPECT_EQ(found["gpu_memset"], 1);
}

TEST(TraceSlices, WhatOverlapsMovesToAnotherTrack) {
  std::vector<TraceSlice> s(4);
  auto set = [&](size_t i, const char* name, int64_t start, int64_t end) {
    s[i].track = {0, 7}, s[i].name = name, s[i].start_ns = start, s[i].end_ns = end;
  };
  set(0, "a", 0, 100), set(1, "in a", 10, 100), set(2, "cuts a", 90, 150), set(3, "behind", 100, 160);
  nest(s);
  std::map<std::string, int> thread;
  for (auto& x : s) thread[x.name] = x.track.thread;
  EXPECT_EQ(thread,
            (std::map<std::string, int>{{"a", 7}, {"in a", 7}, {"behind", 7}, {"cuts a", 7 + overflow_threads}}));
}

// Readers add ts and dur as floating-point numbers: touching slices would overlap by their
// rounding.
TEST(ChromeTrace, NeighborsDoNotTouch) {
  Profile p = test::sample_profile(false);
  double at = 0.1 / 3;
  for (auto& i : p.intervals) i.start_ms = at, at += i.ms;
  double end = 0;
  Json trace = parse(p);
  for (auto& e : trace["traceEvents"])
    if (e["ph"] == "X" && e["cat"] == "cpu_op") {
      EXPECT_LT(end, e["ts"].get<double>());
      end = e["ts"].get<double>() + e["dur"].get<double>();
    }
  std::string path = testing::TempDir() + "crest_touching.json";
  write_chrome_trace(p, path);
  test::expect_python("check_trace.py", path, "ok: 13 instructions");
}

TEST(ChromeTrace, NamesFromElsewhereStayText) {
  Profile p = test::sample_profile(true);
  p.kernels[0].name = "a\"b\\c\n\x1b[31m<script>";
  p.instrs[0].scopes = {"\xff\xfe"};
  Json trace = parse(p);
  bool found = false;
  for (auto& e : trace["traceEvents"]) found |= e["name"] == p.kernels[0].name;
  EXPECT_TRUE(found);
}

TEST(ChromeTrace, NothingMeasuredIsStillATrace) {
  Json trace = parse({});
  EXPECT_EQ(categories(trace), (std::map<std::string, int>{{"user_annotation", 1}}));
}

TEST(ChromeTrace, SaysWhereItCannotWrite) {
  EXPECT_THROW(write_chrome_trace(test::sample_profile(false), "/proc/no/trace.json"), Error);
}

// tests/tools/check_trace.py: the documented format, checked without our code.
TEST(ChromeTrace, PythonChecksTheFormat) {
  std::string path = testing::TempDir() + "crest_trace.json";
  write_chrome_trace(test::sample_profile(true), path);
  test::expect_python("check_trace.py", path, "ok: 13 instructions, 26 kernels, 26 arrows, 3 tracks");
}
