// The comparison of a run's ranks before they begin.
#include "train/same_program.h"

#include <algorithm>

#include "train/run_fixture.h"
#include "train/training_settings.h"

namespace crest::test {

namespace {

std::vector<std::string> rows_of(const TrainOptions& options, const RankOptions& ranks = {}) {
  std::vector<std::string> rows = training_rows(options);
  for (auto& row : recipe_rows(options.recipe, ranks)) rows.push_back(row);
  return rows;
}

}  // namespace

// A new setting is either declared local to a rank, or compared.
TEST(SameProgram, EverySettingIsComparedUnlessItIsLocal) {
  TrainOptions options;
  options.recipe = tiny_recipe();
  const auto rows = rows_of(options);
  std::vector<std::string> local;
  for (auto& table : setting_tables())
    for (auto& setting : *table.rows) {
      const std::string start = setting.key() + " = ";
      const bool compared = std::any_of(rows.begin(), rows.end(), [&](auto& row) { return row.starts_with(start); });
      EXPECT_NE(compared, setting.local) << setting.name;
      if (setting.local) local.emplace_back(setting.name);
    }
  EXPECT_EQ(local, (std::vector<std::string>{"data", "init", "base", "prefetch", "loader-threads", "device", "threads",
                                             "memory-limit"}));
}

TEST(SameProgram, ValuesShow) {
  TrainOptions options;
  options.recipe = tiny_recipe();
  const auto has = [](const std::vector<std::string>& rows, const std::string& row) {
    return std::find(rows.begin(), rows.end(), row) != rows.end();
  };
  EXPECT_TRUE(has(rows_of(options), "check_ranks = 100"));
  EXPECT_TRUE(has(rows_of(options), "lr = default"));
  options.check_ranks = 20, options.lr = 0.5, options.max_seconds = 3, options.stop_after = 7;
  for (const char* row : {"check_ranks = 20", "lr = 0.5", "max_seconds = 3.0", "--stop-after: 7", "watchdog = 4.0"})
    EXPECT_TRUE(has(rows_of(options, {4}), row)) << row;
}

using SameData = RunTest;

// Shards of llm.c have no meta.json.
TEST_F(SameData, EveryTokenOfBothSplitsCounts) {
  const std::string data = folder / "data";
  for (const char* name : {"meta.json", "tokenizer.json"}) std::filesystem::remove(data + "/" + name);
  auto rows = [&] { return data_rows(Dataset::open(data, 257)); };
  const auto before = rows();
  ASSERT_EQ(before.size(), 3u);
  for (size_t split : {1u, 2u}) {
    const std::string shard = data + (split == 1 ? "/train-000000.bin" : "/val-000000.bin");
    std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-2, std::ios::end);
    const char last = char(file.get());
    file.seekp(-2, std::ios::end);
    file.put(char(last ^ 1)).flush();
    const auto after = rows();
    EXPECT_NE(after[split], before[split]);
    EXPECT_EQ(after[3 - split], before[3 - split]);
    file.seekp(-2, std::ios::end);
    file.put(last).flush();
    EXPECT_EQ(rows(), before);
  }
}

}  // namespace crest::test
