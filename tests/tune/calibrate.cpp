// Which steps a calibration measures.
#include "tune/calibrate.h"

#include <gtest/gtest.h>

#include "device/find.h"

namespace crest::test {

TEST(Calibrate, MeasuresEachPrecisionOnce) {
  Device device = find_device("cpu", 1);
  auto count = [&](const std::vector<std::string>& precisions) {
    return calibration_steps(device, int64_t(1) << 40, precisions).size();
  };
  EXPECT_EQ(count({"fp32", "fp32"}), count({"fp32"}));
  EXPECT_EQ(count({"auto", "fp32"}), count({}));
  EXPECT_EQ(count({"fp32", "fp16"}), 2 * count({"fp32"}));
}

}  // namespace crest::test
