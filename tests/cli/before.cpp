// Files of an earlier build still open: a database, a run with its config and checkpoint, scripts
// with its flags.
#include <map>
#include <set>
#include <sstream>

#include "cli/run.h"
#include "model/config_files.h"
#include "plan/recipe_settings.h"
#include "store/new_record.h"
#include "store/store.h"

namespace crest::test {

namespace {

const std::string before = std::string(CREST_TEST_DIR) + "/cli/fixtures/before/";

// A writable copy.
std::string copied(const TempFolder& folder, const std::string& name) {
  std::filesystem::copy(before + name, folder / name, std::filesystem::copy_options::recursive);
  return folder / name;
}

}  // namespace

TEST(Before, EveryFlagIsThereOrWasRenamed) {
  // "train --old" -> "--new": entries must be in CHANGELOG.md as renamed.
  const std::map<std::string, std::string> renamed = {{"sample --tokens", "--prompt-tokens"},
                                                      {"comm --ranks", "--world-sizes"}};
  std::map<std::string, std::set<std::string>> now;
  std::ifstream list(before + "flags.txt");
  int count = 0;
  for (std::string line; std::getline(list, line); ++count) {
    std::string command = line.substr(0, line.find(' ')), flag = line.substr(line.find(' ') + 1);
    if (!now.count(command)) {
      std::istringstream words(run_crest({command, "--help-all"}).out);
      for (std::string word; words >> word;)
        if (word.starts_with("--")) now[command].insert(word.substr(0, word.find_first_of(",.:;)[")));
    }
    auto it = renamed.find(line);
    EXPECT_TRUE(now[command].count(it == renamed.end() ? flag : it->second)) << line << " is gone";
  }
  EXPECT_GT(count, 400);
}

TEST(Before, ADatabaseOpensAndItsRunsAreCompared) {
  TempFolder folder;
  std::string store = copied(folder, "runs.sqlite");
  RunResult list = run_crest({"runs", "list", "--json", "--store", store});
  ASSERT_EQ(list.code, 0) << list.err;
  EXPECT_EQ(list.json().size(), 5u);
  RunResult compared = run_crest({"compare", "2", "3", "--json", "--store", store});
  ASSERT_EQ(compared.code, 0) << compared.err;
  std::set<std::string> keys;
  auto document = compared.json();
  for (auto& d : document["differences"])
    if (d["section"] == "recipe") keys.insert(d["key"]);
  EXPECT_EQ(keys, (std::set<std::string>{"precision"}));
  RunResult filtered = run_crest(
      {"runs", "list", "--csv", "--where", "optimizer=lion", "--columns", "id,optimizer,lr", "--store", store});
  EXPECT_EQ(filtered.out, "id,optimizer,lr\n1,lion,\n") << filtered.err;  // learning rates were not recorded then
}

// Keys of measurements stay the same, so earlier noise floors and grids remain valid.
TEST(Before, KeysOfMeasurementsStay) {
  TempFolder folder;
  Store store(copied(folder, "runs.sqlite"), Store::Mode::read);
  int compared = 0;
  for (auto& run : store.list()) {
    if (run.kind != "bench") continue;
    GivenSettings given;
    for (auto& [key, value] : run.recipe.items()) {
      std::string name = key;
      std::replace(name.begin(), name.end(), '_', '-');
      given[name] = texts_of(value);
    }
    given["model"] = {before + "run/model.toml"};
    Recipe recipe;
    settings_of(recipe).apply(given);
    Device device;
    device.kind = run.device["kind"], device.name = run.device["name"], device.isa = run.device["isa"];
    device.threads = run.device["threads"];
    EXPECT_EQ(run_key(recipe, device, run.phase), run.key) << run.name;
    ++compared;
  }
  EXPECT_EQ(compared, 2);
}

TEST(Before, ARunIsContinuedByItsConfig) {
  TempFolder folder;
  std::string run = copied(folder, "run"), data = copied(folder, "data");
  std::string config = folder.read("run/config.toml");
  for (auto& [from, to] : {std::pair<std::string, std::string>{"/tmp/fx/data", data}, {"/tmp/fx", folder.path()}})
    for (size_t at; (at = config.find(from)) != std::string::npos;) config.replace(at, from.size(), to);
  folder.write("run/config.toml", config);
  RunResult r = run_crest({"train", "--resume", run, "--steps", "12", "--json"}, {.folder = folder.path()});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.json()["step"], 12) << r.out;
  expect_error({"train", "--resume", run, "--optimizer", "adamw"}, 2, {"lion", "adamw", "--optimizer", "Leave"},
               {.folder = folder.path()});
  std::string now = folder.read("run/config.toml");
  for (const char* line : {"lr = 0.0007\n", "weight_decay = 0.05\n", "loss_chunk = \"16\"\n", "optimizer = \"lion\"\n"})
    EXPECT_NE(now.find(line), std::string::npos) << line << now;
}

// The page of settings in the docs equals the printed one.
TEST(SettingsPage, IsThatOfTheDocs) {
  RunResult r = run_crest({"help", "settings"});
  std::ifstream in(std::string(CREST_TEST_DIR) + "/../docs/reference/settings.md");
  std::string page{std::istreambuf_iterator<char>(in), {}};
  EXPECT_EQ(r.out, page) << "write it again: crest help settings > docs/reference/settings.md";
}

// Several tables have settings of a group; its title is printed once.
TEST(SettingsPage, NoTitleAppearsTwice) {
  std::istringstream page(run_crest({"help", "settings"}).out);
  std::set<std::string> titles;
  for (std::string line; std::getline(page, line);) {
    if (line.rfind("## ", 0) == 0) {
      EXPECT_TRUE(titles.insert(line).second) << line;
    }
  }
  EXPECT_GT(titles.size(), 5u);
}

// Every help fits 100 columns; the short one leaves the rare settings to --help-all.
TEST(Help, FitsAndIsShort) {
  for (const char* command : {"data", "train", "sample", "eval", "bench", "profile", "compare", "program", "plan",
                              "devices", "comm", "runs", "report", "lab", "completions", "import", "export"}) {
    RunResult all = run_crest({command, "--help-all"}), common = run_crest({"help", command});
    ASSERT_EQ(all.code, 0) << command;
    ASSERT_EQ(common.out, run_crest({command, "--help"}).out);
    EXPECT_LE(common.out.size(), all.out.size()) << command;
    EXPECT_NE(common.out.find("\nExamples\n  crest "), std::string::npos) << command;
    // Examples use flags that exist.
    std::set<std::string> flags;
    std::istringstream lines(all.out);
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(line.size(), 100u) << command << ": " << line;
      if (line.starts_with("  crest ")) continue;
      std::istringstream words(line);
      for (std::string word; words >> word;)
        if (word.starts_with("--")) flags.insert(word);
    }
    std::istringstream examples(all.out);
    int count = 0;
    for (std::string line; std::getline(examples, line);) {
      if (!line.starts_with("  crest ")) continue;
      std::istringstream words(line);
      for (std::string word; words >> word; ++count)
        if (word.starts_with("--")) {
          EXPECT_TRUE(flags.count(word)) << line;
        }
    }
    EXPECT_GT(count, 2);
  }
  std::string common = run_crest({"train", "--help"}).out, all = run_crest({"train", "--help-all"}).out;
  for (const char* flag : {"--lr ", "--init ", "--packing ", "--val-every ", "--save-every "})
    EXPECT_NE(common.find(flag), std::string::npos) << flag;
  EXPECT_EQ(common.find("--beta1"), std::string::npos);
  EXPECT_NE(all.find("--beta1"), std::string::npos);
}

// The flag library misreads some inputs. Crest refuses them, or reads them as the user meant.
TEST(Numbers, AreReadStrictly) {
  TempFolder folder;
  folder.write("model.toml", tiny_model);
  folder.write("text.txt", std::string(4000, 'a') + "bcd");
  std::vector<std::string> train = {"train",      "text.txt", "--tokenizer", "bytes",   "--model",
                                    "model.toml", "--vocab",  "257",         "--batch", "1",
                                    "--no-store", "--quiet",  "--json"};
  auto with = [&](std::initializer_list<std::string> more) {
    std::vector<std::string> all = train;
    all.insert(all.end(), more);
    return all;
  };
  RunOptions here = {.folder = folder.path()};
  RunResult r = run_crest(with({"--steps", "010", "--out", "ten"}), here);
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.json()["step"], 10);
  for (auto& [flag, text] :
       std::vector<std::pair<std::string, std::string>>{{"--seed=", ""},
                                                        {"--lr", "0"},
                                                        {"--lr", "1e-400"},
                                                        {"--lr", "1e400"},
                                                        {"--lr", "inf"},
                                                        {"--dropout", "-0.5"},
                                                        {"--dropout", "nan"},
                                                        {"--steps", "1.5"},
                                                        {"--steps", "99999999999999999999"},
                                                        {"--grad-accumulation", "99999999999999999999"},
                                                        {"--batch", "0x10"},
                                                        {"--stop-after", "99999999999999999999"},
                                                        {"--keep", "-1"}}) {
    std::string name = flag.substr(0, flag.find('='));
    std::vector<std::string> given = {flag};
    if (!text.empty()) given.push_back(text);
    std::vector<std::string> all = with({"--out", "wrong"});
    all.insert(all.end(), given.begin(), given.end());
    expect_error(all, 2, {name, text.empty() ? "empty" : text}, here);
  }
  expect_error(with({"--deterministic=maybe"}), 2, {"--deterministic", "'maybe'", "true, false"}, here);
  EXPECT_EQ(run_crest(with({"--deterministic=no", "--steps", "1", "--out", "plain"}), here).code, 0);
  // The same in a file.
  folder.write("wrong.toml", "lr = 0\n");
  expect_error(with({"--config", "wrong.toml"}), 2, {"--lr", "out of range"}, here);
  expect_error({"bench", "--model", "model.toml", "--samples", "99999999999"}, 2, {"--samples"}, here);
}

}  // namespace crest::test
