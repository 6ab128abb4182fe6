// crest devices.
#include "run.h"

using namespace crest::test;

namespace {

// A build without CUDA, a machine without a driver, and one with hidden GPUs.
bool says_why_no_gpu(const std::string& text) {
  for (const char* reason : {"no CUDA backend", "no NVIDIA driver", "driver is too old", "CUDA finds no GPU"})
    if (text.find(reason) != std::string::npos) return true;
  return false;
}

}  // namespace

TEST(CliDevices, ListsTheCpuAndWhyThereIsNoOther) {
  RunResult r = run_crest({"devices", "--json"});
  ASSERT_EQ(r.code, 0) << r.err;
  auto j = r.json();
  ASSERT_EQ(j["devices"].size(), 1u);
  auto& d = j["devices"][0];
  EXPECT_EQ(d["kind"], "cpu");
  EXPECT_GE(d["threads"].get<int>(), 1);
  EXPECT_GT(d["memory_bytes"].get<int64_t>(), 1 << 20);
  EXPECT_EQ(j["unavailable"][0]["kind"], "cuda");
  EXPECT_TRUE(says_why_no_gpu(j["unavailable"][0]["reason"])) << j["unavailable"];
  EXPECT_FALSE(j["environment"]["cpu_model"].get<std::string>().empty());
  EXPECT_FALSE(j.contains("measured")) << "only --measure measures";

  RunResult text = run_crest({"devices"});
  EXPECT_EQ(text.code, 0);
  for (const char* said : {"cpu", "memory", "oneDNN", "cuda        none: "})
    EXPECT_NE(text.out.find(said), std::string::npos) << said << " in\n" << text.out;
  EXPECT_TRUE(says_why_no_gpu(text.out)) << text.out;
}

TEST(CliDevices, ThreadsAndInstructionSetAreRespected) {
  RunResult r = run_crest({"devices", "--threads", "1", "--json"}, {.environment = {{"CREST_ISA", "generic"}}});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.json()["devices"][0]["threads"], 1);
  EXPECT_EQ(r.json()["devices"][0]["isa"], "generic");
}

TEST(CliDevices, MeasuredLimitsArePlausible) {
  nlohmann::json m;
  // No matmul is faster than its units. On a machine that was busy while the units were measured,
  // this cannot be checked.
  bool possible = false;
  for (int i = 0; i < 8 && !possible; ++i) {
    RunResult r = run_crest({"devices", "--measure", "--json"});
    ASSERT_EQ(r.code, 0) << r.err;
    m = r.json()["measured"];
    auto& fp32 = m["instructions"]["fp32"]["operations_per_second"];
    possible = fp32.is_null() || 3 * fp32.get<double>() > m["gemm_fp32"]["flops_per_second"].get<double>();
  }
  EXPECT_TRUE(possible) << m.dump(1);
  for (const char* kind : {"read_bandwidth", "copy_bandwidth"}) {
    double rate = m[kind]["bytes_per_second"];
    double moved = rate * m[kind]["ms_median"].get<double>() / 1e3 / m[kind]["buffer_bytes"].get<double>();
    EXPECT_NEAR(moved, kind == std::string("copy_bandwidth") ? 2 : 1, 1e-6);
    EXPECT_LT(rate, 1e13) << kind;
    EXPECT_GE(m[kind]["samples"].get<int>(), 7);
    EXPECT_LE(m[kind]["ms_min"].get<double>(), m[kind]["ms_median"].get<double>());
  }
  for (const char* kind : {"gemm_fp32", "gemm_bf16"}) {
    auto& g = m[kind];
    ASSERT_FALSE(g["flops_per_second"].is_null()) << kind << g;
    double flops = 2.0 * g["m"].get<double>() * g["n"].get<double>() * g["k"].get<double>();
    // The rate is the median sample's, and below a petaflop a second.
    EXPECT_NEAR(g["flops_per_second"].get<double>() * g["ms_median"].get<double>() / 1e3 / flops, 1, 1e-6);
    EXPECT_LT(g["flops_per_second"].get<double>(), 1e15);
  }
  for (const char* precision : {"fp64", "fp32", "bf16", "int8"}) {
    auto& peak = m["instructions"][precision];
    if (peak["operations_per_second"].is_null()) {
      EXPECT_NE(peak["instruction"].get<std::string>().find("this CPU has no"), std::string::npos) << precision;
      continue;
    }
    EXPECT_GT(peak["operations_per_second"].get<double>(), 0) << precision;
    EXPECT_LT(peak["operations_per_second"].get<double>(), 1e15) << precision;
  }
}

TEST(CliDevices, ListsDeviceFilesWithTheirSources) {
  RunResult r = run_crest({"devices", "--sheets", "--json"});
  ASSERT_EQ(r.code, 0) << r.err;
  auto list = r.json();
  EXPECT_GE(list.size(), 8u);
  for (auto& sheet : list) EXPECT_FALSE(sheet["source"].get<std::string>().empty()) << sheet["name"];
  RunResult text = run_crest({"devices", "--sheets"});
  EXPECT_NE(text.out.find("NVIDIA H200 SXM 141GB"), std::string::npos) << text.out;
  // Planning takes them, and a file of one's own.
  RunResult plan = run_crest({"plan", "--model", "gpt2-124M", "--batch", "4", "--device", "a100", "--json"});
  ASSERT_EQ(plan.code, 0) << plan.err;
  EXPECT_EQ(plan.json()["device"]["name"], "NVIDIA A100 SXM4 80GB (described)");
  expect_error({"plan", "--model", "nano", "--device", "mi300x"}, 4, {"no kernels", "MI300X"});
  expect_error({"plan", "--model", "nano", "--device", "h2000"}, 2, {"h2000", "h200", "--sheets"});
  expect_error({"plan", "--model", "nano", "--device", "no-such.toml"}, 1, {"no-such.toml"});
}

TEST(CliDevices, BadInputIsOneClearError) {
  expect_error({"devices", "--device", "cuda"}, 4, {"no CUDA device can be used", "--device cpu"});
  expect_error({"devices", "--device", "tpu"}, 2, {"tpu"});
  expect_error({"devices", "--threads", "-3"}, 2, {"--threads"});
  expect_error({"devices", "--mesure"}, 2, {"--mesure", "--measure"});
  expect_error({"devices", "now"}, 2, {"now"});
}

TEST(CliDevices, LibrariesMustBeFoldersThatExist) {
  TempFolder f;
  std::string there = f.path().string();
  for (const char* command : {"devices", "plan", "program", "bench", "train"})
    expect_error({command, "--libraries", there + ":/no/such/folder"}, 2, {"--libraries", "'/no/such/folder'"});
  EXPECT_EQ(run_crest({"devices", "--libraries", there}).code, 0);
  EXPECT_EQ(run_crest({"devices", "--libraries", ""}).code, 0);
  f.write("libraries.toml", "libraries = \"/no/such/folder\"\n");
  expect_error({"devices", "--config", f / "libraries.toml"}, 2, {"--libraries", "/no/such/folder"});
  EXPECT_EQ(run_crest({"devices", "--config", f / "libraries.toml", "--libraries=" + there}).code, 0) << "flags win";
}
