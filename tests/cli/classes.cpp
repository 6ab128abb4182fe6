// Classes of processors from the command line: CREST_ISA, and a library limited to less than the
// processor has.
#include "cli/run.h"
#include "device/find.h"
#include "device/matmul_rates.h"
#include "host/isa.h"

using namespace crest;
using namespace crest::test;

namespace {

class CliClasses : public testing::Test {
 protected:
  TempFolder folder_;
  std::string model_ = folder_.write("tiny.toml", tiny_model);

  RunOptions as(const std::string& isa) const {
    RunOptions o;
    o.environment = {{"CREST_ISA", isa}, {"CREST_CACHE", cache_}};
    return o;
  }
  // Writes rates as if measured: matrix units are faster than fp32, dot products are not.
  void write_rates() {
    nlohmann::json rates;
    rates[matmul_rates_key(cpu_device(Isa::avx512_bf16, 1))] = {{"fp32", 260e9}, {"bf16", 150e9}};
    rates[matmul_rates_key(cpu_device(Isa::amx, 1))] = {{"fp32", 260e9}, {"bf16", 900e9}};
    std::filesystem::create_directories(cache_);
    std::ofstream(cache_ + "/matmul-rates.json") << nlohmann::json{{"format", 1}, {"rates", rates}};
  }
  std::string cache_ = folder_ / "cache";
};

}  // namespace

TEST_F(CliClasses, EveryClassIsPlannedForOnEveryMachine) {
  write_rates();
  for (Isa isa : all_isas) {
    std::string name(crest::name(isa));
    RunResult r = run_crest({"plan", "--model", "micro", "--batch", "2", "--threads", "2", "--json"}, as(name));
    ASSERT_EQ(r.code, 0) << name << r.err;
    auto plan = r.json();
    EXPECT_EQ(plan["device"]["isa"], name);
    EXPECT_EQ(plan["device"]["native_bf16"], isa >= Isa::avx512_bf16) << name;
    EXPECT_EQ(plan["recipe"]["precision"], isa == Isa::amx ? "bf16" : "fp32") << name;
    EXPECT_EQ(r.err.find("matmuls of this CPU reach 260.0 GFLOP/s") != std::string::npos, isa >= Isa::avx512_bf16)
        << r.err;
    EXPECT_EQ(plan["device"]["name"].get<std::string>().find("not here") != std::string::npos, isa > best_isa())
        << name;
  }
}

TEST_F(CliClasses, WhatTheMachineLacksDoesNotRun) {
  for (Isa isa : all_isas) {
    std::string name(crest::name(isa));
    std::vector<std::string> bench = {"bench", "--model", model_, "--batch", "2", "--samples", "3", "--no-mfu"};
    if (isa > best_isa()) {
      expect_error(bench, 4, {"does not support " + name, "CREST_ISA", std::string(crest::name(best_isa()))}, as(name));
    } else {
      RunResult r = run_crest(bench, as(name));
      EXPECT_EQ(r.code, 0) << name << r.err;
    }
  }
}

TEST_F(CliClasses, AnUnknownClassIsAnErrorThatNamesThemAll) {
  for (const char* wrong : {"avx1024", "AVX2", "avx512 ", "\x1b[31m"}) {
    expect_error({"plan", "--model", model_}, 2, {"CREST_ISA", "generic, avx2, avx512, avx512_bf16, amx"}, as(wrong));
  }
  EXPECT_EQ(run_crest({"plan", "--model", model_}, as("")).code, 0) << "empty: not set";
}

// Crest asks the library before planning. If oneDNN cannot multiply in this class, Crest's own
// matmuls, or floats, replace it.
TEST_F(CliClasses, ALibraryThatIsHeldToLessIsPlannedAround) {
  for (const char* limit : {"SSE41", "AVX", "AVX2", "AVX512_CORE", "AVX512_CORE_BF16", "ALL"})
    for (const char* precision : {"fp32", "bf16"})
      for (const char* attention : {"flash", "naive"}) {
        RunOptions o;
        o.environment = {{"ONEDNN_MAX_CPU_ISA", limit}};
        RunResult r = run_crest({"bench", "--model", model_, "--batch", "2", "--samples", "3", "--no-mfu",
                                 "--precision", precision, "--attention", attention},
                                o);
        EXPECT_EQ(r.code, 0) << limit << " " << precision << " " << attention << "\n" << r.err;
      }
}
