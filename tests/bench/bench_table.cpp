// The table of crest bench, from rows made by hand.
#include <gtest/gtest.h>

#include "bench/bench_report.h"
#include "contains.h"
#include "terminal/table.h"

using namespace crest;
using Json = nlohmann::ordered_json;

namespace {

using crest::test::contains;

Json table_row(const std::string& fusion, const std::string& recompute, double ms) {
  Json memory = {{"planned_bytes", 1e6}, {"measured_peak_bytes", 1e6}, {"device_peak_bytes", 1e6 * ms}};
  return {{"recipe",
           {{"precision", "bf16"}, {"attention", "flash"}, {"fusion", fusion}, {"recompute", recompute}, {"batch", 8}}},
          {"device", "cpu"},
          {"phase", "step"},
          {"step_ms_median", ms},
          {"samples", 6},
          {"tokens_per_second", 1e5 / ms},
          {"model_tflops", 0.5},
          {"mfu", 0.4},
          {"flops_convention", "6N"},
          {"memory", memory}};
}

}  // namespace

TEST(BenchTable, SettingsThatFollowFromOthersAreNoColumnAndNotSaidToBeShared) {
  std::string text = text_of({table_row("off", "none", 12), table_row("on", "pointwise", 10)}, false);
  EXPECT_TRUE(contains(text, "step; precision bf16, attention flash, batch 8")) << text;
  EXPECT_FALSE(contains(text, "recompute")) << text;
  std::string asked = text_of({table_row("on", "none", 12), table_row("on", "pointwise", 10)}, false);
  EXPECT_TRUE(contains(asked, "recompute")) << asked;
}

TEST(BenchTable, SharesOfThePeakAndOfTheDataSheet) {
  EXPECT_FALSE(contains(text_of({table_row("on", "full", 12)}, false), "HFU")) << "a row of an earlier version";
  Json row = table_row("on", "full", 12);
  row["hfu"] = 0.5;
  row["data_sheet"] = {
      {"source", "NVIDIA H100 SXM5 80GB"}, {"peak_flops_per_second", 989.4e12}, {"mfu", 0.3}, {"hfu", 0.375}};
  std::string text = text_of({row}, false);
  for (const char* part : {"HFU", "50.0%", "30.0%, 37.5%", "989.4 TFLOP/s of NVIDIA H100 SXM5 80GB"})
    EXPECT_TRUE(contains(text, part)) << text;
}

TEST(BenchTable, FitsTheWidthAndKeepsSpeed) {
  std::string text = text_of({table_row("off", "none", 12), table_row("on", "pointwise", 10)}, false, 40);
  std::string table = text.substr(0, text.find("left out for lack of room"));
  for (const char* header : {"fusion", "tokens/s", "MFU"}) EXPECT_TRUE(contains(table, header)) << text;
  EXPECT_FALSE(contains(table, "process peak")) << text;
  size_t head = table.find("fusion  "), end = table.find('\n', head);
  EXPECT_LE(display_width(table.substr(head, end - head)), 40u) << text;
}
