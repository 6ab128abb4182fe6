// The rates behind --precision auto, and their file.
#include "device/matmul_rates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "core/io.h"
#include "device.h"
#include "memory_folder.h"

using namespace crest;

namespace {

class MatmulRatesFile : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const char* set = std::getenv("CREST_CACHE")) before_ = set;
    setenv("CREST_CACHE", folder_.path().c_str(), 1);
  }
  void TearDown() override { before_ ? setenv("CREST_CACHE", before_->c_str(), 1) : unsetenv("CREST_CACHE"); }

  MemoryFolder folder_;
  std::optional<std::string> before_;
};

// No measurement gives this number.
constexpr double told = 12345;

}  // namespace

TEST_F(MatmulRatesFile, HasEachClassOnce) {
  const Device bf16 = cpu_device(Isa::avx512_bf16, 1), amx = cpu_device(Isa::amx, 1);
  nlohmann::json rates;
  rates[matmul_rates_key(bf16)] = {{"fp32", told}, {"bf16", 1}};
  rates[matmul_rates_key(amx)] = {{"fp32", 1}, {"bf16", told}};
  write_file_atomic(matmul_rates_path(), nlohmann::json{{"format", 1}, {"rates", rates}}.dump());
  ASSERT_TRUE(matmul_rates(bf16) && matmul_rates(amx));
  EXPECT_EQ(matmul_rates(bf16)->fp32, told);
  EXPECT_EQ(matmul_rates(amx)->bf16, told);
  EXPECT_FALSE(matmul_rates(cpu_device(Isa::avx512, 1))) << "it has fp32 only";
  EXPECT_FALSE(matmul_rates(find_device("h100", 1)));
}

// A file by other programs counts as no file.
TEST_F(MatmulRatesFile, IsWrittenAnewWhereItIsDamaged) {
  const bool here = active_isa() >= Isa::avx512_bf16 && active_isa() <= best_isa();
  const Device device = here ? crest::test::this_cpu(1) : cpu_device(Isa::amx, 1);
  for (const std::string& text :
       {std::string("[]"), std::string("{\"format\": 1, \"rates\": {\"" + matmul_rates_key(device) + "\": [1]}}"),
        std::string("{\"format\": 2, \"rates\": {}}"), std::string("{\"form")}) {
    write_file_atomic(matmul_rates_path(), text);
    std::optional<MatmulRates> rates = matmul_rates(device);
    ASSERT_EQ(rates.has_value(), here) << "a class is measured only on a processor that has it";
    if (!here) continue;
    EXPECT_TRUE(rates->fp32 > 0 && rates->bf16 > 0);
    EXPECT_EQ(matmul_rates(device)->fp32, rates->fp32) << "measured once";
  }
}

TEST(MatmulRates, AreMeasuredWhereTheLibraryMultipliesBoth) {
  MatmulRates rates = measure_matmul_rates(1);
  EXPECT_EQ(rates.fp32 > 0, rates.bf16 > 0);
  if (std::min(best_isa(), active_isa()) >= Isa::avx512_bf16) {
    EXPECT_GT(rates.fp32, 0);
  }
}
