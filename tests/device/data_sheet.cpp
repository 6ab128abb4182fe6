// Device files: Crest's own are complete and consistent; a damaged one is reported with its place.
#include "device/data_sheet.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/io.h"
#include "core/temporary_folder.h"
#include "device/find.h"
#include "profile/profile_rates.h"

namespace crest {
namespace {

std::string message_of(const std::string& text) {
  try {
    parse_data_sheet(text, "x", "x.toml");
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::usage);
    return e.what();
  }
  return "";
}

std::string h100() { return read_file(CREST_TEST_DIR "/../devices/h100.toml", 1 << 16); }

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(DataSheets, ThoseOfTheDocumentsAreThere) {
  for (const char* name :
       {"h100", "h200", "h800", "a100", "v100", "l40s", "rtx4090", "mi300x", "b200", "h20", "rtx5090"}) {
    DataSheet s = find_data_sheet(name);
    EXPECT_EQ(s.name, name);
    EXPECT_FALSE(s.source.empty());
    EXPECT_GT(s.multiprocessors, 0);
    EXPECT_GT(s.memory_bytes, int64_t(20) << 30) << name;
    ASSERT_TRUE(s.peak("fp32") && s.peak("fp16")) << name;
    EXPECT_GE(*s.peak("fp16"), *s.peak("fp32")) << name;
    if (s.peak("fp8")) {
      EXPECT_GE(*s.peak("fp8"), *s.peak("bf16")) << name;
    }
  }
  EXPECT_FALSE(find_data_sheet("v100").peak("bf16")) << "Volta has none";
}

TEST(DataSheets, KnowTheLinkToTheHost) {
  for (auto& s : data_sheets()) {
    EXPECT_TRUE(s.host_link.starts_with("PCIe ")) << s.name;
    EXPECT_EQ(s.host_link_one_way(), s.host_link_bandwidth / 2) << s.name;
    EXPECT_LT(s.host_link_bandwidth, s.link_bandwidth + 1) << s.name;
  }
  std::string text = h100();
  size_t at = text.find("host_link"), end = text.find('\n', at);
  DataSheet without = parse_data_sheet(text.substr(0, at) + text.substr(end + 1), "x", "x.toml");
  EXPECT_TRUE(without.host_link.empty());
  EXPECT_EQ(without.host_link_one_way(), usual_host_link);
  EXPECT_NE(message_of(replaced(text, "host_link = { name", "host_link = { nam")).find("unknown key 'nam'"),
            std::string::npos);
}

TEST(DataSheets, AreFoundByTheDriversName) {
  EXPECT_EQ(data_sheet_of("NVIDIA H100 80GB HBM3")->name, "h100");
  EXPECT_EQ(data_sheet_of("NVIDIA H200")->name, "h200");
  EXPECT_EQ(data_sheet_of("Tesla V100-SXM2-32GB")->name, "v100");
  for (const char* other : {"Intel(R) Xeon(R) Processor (2 threads, avx512)", "NVIDIA GH200 480GB", "NVIDIA H200 NVL",
                            "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA H100 80GB HBM3 MIG 1g.10gb"})
    EXPECT_EQ(data_sheet_of(other), nullptr) << other;
}

// Figures in a file may differ from the sheet with the same title.
TEST(DataSheets, OfAFileAreNotThoseThatComeWithCrest) {
  EXPECT_EQ(data_sheet_of(described_device(find_data_sheet("h100")).name)->name, "h100");
  TemporaryFolder folder;
  std::string file = folder / "mine.toml";
  write_file_atomic(file, replaced(h100(), "bandwidth = 3.35e12", "bandwidth = 1e12"));
  Device mine = described_device(find_data_sheet(file));
  EXPECT_EQ(mine.name, "NVIDIA H100 SXM5 80GB (described by mine.toml)");
  EXPECT_EQ(data_sheet_of(mine.name), nullptr);
}

TEST(DataSheets, ArePlannedForButNotRunOn) {
  Device d = find_device("a100", 1);
  EXPECT_TRUE(d.described);
  EXPECT_EQ(d.sm, 80);
  EXPECT_EQ(d.multiprocessors, 108);
  EXPECT_TRUE(d.native_bf16);
  EXPECT_LT(d.memory, d.total_memory);
  EXPECT_FALSE(find_device("v100", 1).native_bf16);
  try {
    find_device("mi300x", 1);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::no_device);
  }
  try {
    find_device("h2000", 1);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::usage);
    EXPECT_NE(std::string(e.what()).find("h200"), std::string::npos) << e.what();
  }
}

TEST(DataSheets, DamagedOnesAreToldWithTheirPlace) {
  EXPECT_EQ(message_of(h100()), "");
  auto holds = [](const std::string& message, const char* part) { return message.find(part) != message.npos; };
  std::string m = message_of(replaced(h100(), "bandwidth = 3.35e12", "bandwith = 3.35e12"));
  EXPECT_TRUE(holds(m, "bandwith") && holds(m, "line 8") && holds(m, "bandwidth")) << m;
  m = message_of(replaced(h100(), "bandwidth = 3.35e12", "bandwidth = -1"));
  EXPECT_TRUE(holds(m, "positive") && holds(m, "line 8")) << m;
  m = message_of(replaced(h100(), "bandwidth = 3.35e12", "bandwidth = nan"));
  EXPECT_TRUE(holds(m, "positive")) << m;
  m = message_of(replaced(h100(), "fp8 = ", "fp9 = "));
  EXPECT_TRUE(holds(m, "'fp9' is not a precision") && holds(m, "fp8")) << m;
  m = message_of(replaced(h100(), "capability = \"9.0\"", "capability = \"nine\""));
  EXPECT_TRUE(holds(m, "is not a compute capability") && holds(m, "line 4")) << m;
  m = message_of(replaced(h100(), "multiprocessors = 132", "multiprocessors = 1.5"));
  EXPECT_TRUE(holds(m, "whole number")) << m;
  m = message_of(replaced(h100(), "fp32 = 66.9e12, ", ""));
  EXPECT_TRUE(holds(m, "'fp32' is missing") && holds(m, "line 13")) << m;
  m = message_of(replaced(h100(), "network = { name", "network = { nam"));
  EXPECT_TRUE(holds(m, "unknown key 'nam'") && holds(m, "line 12")) << m;
  m = message_of(replaced(h100(), "power = 700", "power = 700\nnode_gpus = 0"));
  EXPECT_TRUE(holds(m, "node_gpus")) << m;
  m = message_of("title = \"x\"\n");
  EXPECT_TRUE(holds(m, "is missing")) << m;
}

TEST(DataSheets, GiveRatesThatLaterOnesReplace) {
  auto rate = [](const std::vector<ProfileRate>& rates, const std::string& name) {
    for (auto& r : rates)
      if (r.name == name) return r.per_second;
    return 0.0;
  };
  auto rates = parse_rates("h200,bf16=7e14", "--rates");
  EXPECT_EQ(rate(rates, "bandwidth"), 4.8e12);
  EXPECT_EQ(rate(rates, "tf32"), 494.7e12);
  EXPECT_EQ(rate(rates, "bf16"), 7e14);
}

}  // namespace
}  // namespace crest
