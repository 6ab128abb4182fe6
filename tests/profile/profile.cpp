// Profile as data: JSON there and back, damaged JSON, roll-ups, memory over the instructions.
#include "profile/profile.h"

#include <gtest/gtest.h>

#include <numeric>

#include "core/error.h"

namespace crest::test {

namespace {

ProfileInstr instr(const char* program, int index, const char* phase, int layer, double ms, int calls) {
  ProfileInstr r;
  r.program = program, r.index = index, r.op = "linear", r.kernel = "cpu.linear.x", r.phase = phase;
  r.stream = "compute", r.op_class = index ? "normalization" : "contraction", r.layer = layer;
  r.scopes = {layer < 0 ? "head" : "h." + std::to_string(layer) + ".x"};
  r.type = "bf16[2,3]", r.arithmetic = "bf16", r.calls = calls, r.flops = 100 * ms, r.bytes = 10 * ms;
  r.ms = ms, r.floor_ms = ms / 4;
  return r;
}

// Two micro steps of three instructions, an update of one.
Profile example() {
  Profile p;
  p.recipe = {{"model", "tiny"}, {"batch", 2}};
  p.device = {{"name", "a \"device\""}};
  p.environment = {{"libraries", {{"x", "1.0"}}}};
  p.method = "cupti";
  p.tokens = 64, p.model_flops = 1e9;
  p.step_ms = {3, 1, 2}, p.throttled = {0, 1, 0}, p.throttle_reasons = {"thermal"}, p.profiled_ms = {4, 5};
  p.span_ms = 12, p.busy_ms = 11, p.idle_ms = 1, p.launches = 7, p.clock_mhz = 1980, p.power_w = 300;
  p.rates = {{"bf16", 1e12, "measured"}, {"bandwidth", 1e11, "measured"}};
  p.calls = {"train.first", "train.first", "update"};
  p.instrs = {instr("train.first", 0, "forward", 0, 4, 2), instr("train.first", 1, "forward", 1, 2, 2),
              instr("train.first", 2, "backward", 1, 3, 2), instr("update", 0, "update", -1, 1.5, 1)};
  p.instrs[2].stream = "comm";
  p.instrs[1].parts = {"add", "gelu"};
  p.kernels = {{"gemm<bf16>", 0, 2, 3, 1.4, 1.6}, {"splitk", 0, 2, 1, 0.5, 0.5}, {"norm", 1, 2, 2, 1, 1},
               {"norm", 2, 2, 3, 1, 2},           {"adam", 3, 1, 1.5, 1.5, 1.5}, {"[memcpy]", -1, 2, 0.5, 0.2, 0.3}};
  p.intervals = {{0, 0, 0, 7, 0, 1.5}, {1, 2, 1, 7, 2, 1}, {-1, 5, 2, 8, 11.5, 0.5}};
  p.memory.planned_bytes = 4096, p.memory.persistent_bytes = 1024, p.memory.transient_bytes = 3072;
  p.memory.measured_peak_bytes = 4096, p.memory.device_peak_bytes = 8192;
  p.memory.persistent = {{"w", "weights", 0, 512}, {"m", "optimizer_state", 512, 512}};
  p.memory.blocks = {{"a", "train.first", "activations", "forward", "h.0.x", 0, 0, 1024, 0, 2},
                     {"t", "train.first", "temporary", "forward", "h.1.x", 1, 1024, 2048, 1, 1},
                     {"u", "update", "workspace", "update", "head", -1, 0, 256, 0, 0}};
  return p;
}

double total_ms(const std::vector<ProfileShare>& shares) {
  return std::accumulate(shares.begin(), shares.end(), 0.0, [](double sum, auto& s) { return sum + s.ms; });
}

const ProfileShare& find(const std::vector<ProfileShare>& shares, const std::string& key) {
  for (auto& s : shares)
    if (s.key == key) return s;
  ADD_FAILURE() << "no " << key;
  return shares.at(0);
}

void expect_refused(const nlohmann::ordered_json& json, const std::string& said) {
  try {
    profile_from_json(json, "run 7");
    ADD_FAILURE() << "accepted, wanted: " << said;
  } catch (const Error& e) {
    std::string all = e.what();
    EXPECT_NE(all.find(said), std::string::npos) << all;
    EXPECT_NE(all.find("run 7"), std::string::npos) << all;
  }
}

}  // namespace

TEST(Profile, JsonComesBackTheSame) {
  Profile p = example();
  auto json = to_json(p);
  Profile q = profile_from_json(nlohmann::ordered_json::parse(json.dump()), "text");
  EXPECT_EQ(to_json(q).dump(), json.dump());
  EXPECT_EQ(q.instrs[1].parts, p.instrs[1].parts);
  EXPECT_EQ(q.intervals[2].instr, -1);
  EXPECT_EQ(q.intervals[2].ms, 0.5);
  EXPECT_EQ(q.memory.blocks[1].bytes, 2048);
  EXPECT_EQ(q.environment, p.environment);
  EXPECT_EQ(q.power_w, 300);
  EXPECT_NEAR(q.joules_per_token().value(), 300 * 2e-3 / 64, 1e-12) << "the median step takes 2 ms";
  EXPECT_EQ(to_json(profile_from_json(to_json(Profile()), "empty")).dump(), to_json(Profile()).dump());
}

TEST(Profile, ReadsTheSpellingOfVersion01) {
  Profile p = example();
  p.instrs[1].op = p.instrs[1].op_class;  // in a trace of PyTorch, rows are classes
  auto json = to_json(p), old = json;
  for (auto* key : {"op", "op_class"}) old["instrs"][1][key] = "normalisation";
  EXPECT_NE(old.dump(), json.dump());
  EXPECT_EQ(to_json(profile_from_json(old, "text")).dump(), json.dump());
}

TEST(Profile, EveryMissingKeyIsNamed) {
  auto json = to_json(example());
  for (auto& [key, value] : json.items()) {
    auto damaged = json;
    damaged.erase(key);
    if (key == "power_w")  // of an earlier version
      EXPECT_FALSE(profile_from_json(damaged, "text").power_w.has_value());
    else if (key == "ranks")
      EXPECT_TRUE(profile_from_json(damaged, "text").ranks.empty());
    else
      expect_refused(damaged, "'" + key + "' is missing");
  }
  for (const char* list : {"instrs", "kernels", "rates"}) {
    for (auto& [key, value] : json[list][0].items()) {
      auto damaged = json;
      damaged[list][0].erase(key);
      expect_refused(damaged, std::string(list) + "[0]." + key);
    }
  }
}

TEST(Profile, WrongTypesAndIndicesAreNamed) {
  auto json = to_json(example());
  auto with = [&](const char* pointer, nlohmann::ordered_json value) {
    auto damaged = json;
    damaged[nlohmann::ordered_json::json_pointer(pointer)] = std::move(value);
    return damaged;
  };
  expect_refused(nullptr, "not an object");
  expect_refused({1, 2}, "not an object");
  expect_refused(with("/instrs", 3), "instrs is not a list");
  expect_refused(with("/instrs/1", "x"), "instrs[1] is not an object");
  expect_refused(with("/instrs/1/ms", "x"), "instrs[1].ms is not a number");
  expect_refused(with("/instrs/1/ms", nullptr), "instrs[1].ms is not a number");
  expect_refused(with("/instrs/1/index", 1.5), "instrs[1].index is not a whole number");
  expect_refused(with("/instrs/1/index", 1e300), "instrs[1].index is not a whole number");
  expect_refused(with("/instrs/1/calls", int64_t(1) << 40), "instrs[1].calls");
  expect_refused(with("/launches", UINT64_MAX - 5), "launches");
  expect_refused(with("/instrs/1/scopes", {1}), "instrs[1].scopes[0] is not a string");
  expect_refused(with("/instrs/1/index", 0), "order of their Programs");
  expect_refused(with("/intervals/0", {1, 2}), "intervals[0]");
  expect_refused(with("/intervals/0/0", 4), "row 4 of 4");
  expect_refused(with("/intervals/0/1", 6), "row 6 of 6");
  expect_refused(with("/intervals/0/2", 3), "call");
  expect_refused(with("/intervals/0/0", -2), "range");
  expect_refused(with("/kernels/0/instr", 99), "row 99 of 4");
  expect_refused(with("/calls/0", "trian"), "'trian' has no instructions");
  expect_refused(with("/memory/blocks/0/category", "gold"), "'gold' is not a memory category");
  expect_refused(with("/memory/blocks/0/last", 3), "'a' is live at no instruction");
  expect_refused(with("/memory/blocks/0/program", "x"), "'a' is live at no instruction");
  expect_refused(with("/memory/blocks/0/bytes", -1), "negative");
  expect_refused(with("/recipe", "x"), "recipe is not an object");
  // A name with cursor movements is escaped.
  expect_refused(with("/calls/0", "\x1b[2J"), "\\x1b[2J");
}

TEST(Profile, RollUpsAddUp) {
  Profile p = example();
  double all = 10.5;  // of the four rows
  EXPECT_DOUBLE_EQ(total_ms(by_layer(p)), all);
  EXPECT_DOUBLE_EQ(total_ms(by_class(p)), all);
  auto phases = by_phase(p);
  EXPECT_DOUBLE_EQ(total_ms(phases), all + 0.5 + p.idle_ms);
  EXPECT_DOUBLE_EQ(find(phases, "forward").ms, 6);
  EXPECT_DOUBLE_EQ(find(phases, "communication").ms, 3);
  EXPECT_DOUBLE_EQ(find(phases, "copies").ms, 0.5);
  EXPECT_DOUBLE_EQ(find(phases, "idle").ms, 1);
  EXPECT_EQ(phases[0].key, "forward") << "largest first";
  EXPECT_EQ(find(phases, "forward").instructions, 2);
  EXPECT_EQ(find(phases, "forward").launches, 4);
  EXPECT_DOUBLE_EQ(find(by_layer(p), "layer 1").ms, 5);
  EXPECT_DOUBLE_EQ(find(by_layer(p), "outside").ms, 1.5);
  EXPECT_DOUBLE_EQ(find(by_class(p), "contraction").flops, 550);
}

TEST(Profile, KernelsShareTheCostOfTheirInstruction) {
  Profile p = example();
  auto kernels = by_kernel(p);
  EXPECT_DOUBLE_EQ(find(kernels, "gemm<bf16>").flops, 300) << "three of the four milliseconds";
  EXPECT_DOUBLE_EQ(find(kernels, "splitk").floor_ms, 0.25);
  EXPECT_DOUBLE_EQ(find(kernels, "norm").ms, 5) << "of two instructions";
  EXPECT_EQ(find(kernels, "norm").launches, 4);
  EXPECT_DOUBLE_EQ(find(kernels, "[memcpy]").flops, 0);
  EXPECT_DOUBLE_EQ(total_ms(kernels), 11);
  p.kernels.clear();
  EXPECT_DOUBLE_EQ(find(by_kernel(p), "cpu.linear.x").ms, 10.5) << "on the CPU Crest's own";
}

TEST(Profile, MemoryFollowsTheCalls) {
  Profile p = example();
  auto points = memory_timeline(p);
  ASSERT_EQ(points.size(), 7u);
  std::vector<int64_t> bytes;
  for (auto& x : points) bytes.push_back(total(x.bytes));
  EXPECT_EQ(bytes, (std::vector<int64_t>{2048, 4096, 2048, 2048, 4096, 2048, 1280}));
  EXPECT_EQ(points[4].bytes[size_t(Category::temporary)], 2048);
  EXPECT_EQ(points[4].instr, 1);
  EXPECT_EQ(points[4].call, 1);
  EXPECT_EQ(points[6].instr, 3);
  EXPECT_EQ(points[6].bytes[size_t(Category::workspace)], 256);
  p.memory.blocks[0].last = 3;
  EXPECT_THROW(memory_timeline(p), Error);
  EXPECT_TRUE(memory_timeline(Profile()).empty());
}

}  // namespace crest::test
