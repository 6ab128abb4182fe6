// Rows of settings: parsing, ranges, the values behind them, and the results of a table.
#include "settings/settings.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "model/config_files.h"
#include "passes/optimizers.h"
#include "plan/recipe_settings.h"
#include "train/training_settings.h"

namespace crest::test {

namespace {

struct Values {
  int64_t count = 3;
  double rate = 0.5;
  std::string word = "a";
  bool on = false;
  std::vector<std::string> list;
};

const std::vector<Setting>& rows() {
  static const std::vector<Setting> all = {
      setting<&Values::count>({.name = "the-count", .group = "g", .help = "h", .unit = "things", .min = 1, .max = 9}),
      setting<&Values::rate>(
          {.name = "rate", .group = "g", .help = "h", .min = 0, .max = 1, .above = true, .below = true}),
      setting<&Values::word>(
          {.name = "word", .group = "g", .help = "h", .min = 2, .choices = {"a", "bee"}, .also_number = true}),
      setting<&Values::on>({.name = "on", .group = "g", .help = "h"}),
      setting<&Values::list>({.name = "list", .group = "g", .help = "h", .pairs = true})};
  return all;
}

std::string error_of(const std::string& name, const std::string& text) {
  Values v;
  try {
    Settings().add(rows(), &v).apply({{name, {text}}});
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::usage);
    return e.what();
  }
  return "";
}

}  // namespace

TEST(Settings, ValuesAreParsedStrictly) {
  Values v;
  Settings s;
  s.add(rows(), &v);
  s.apply({{"the-count", {"2", "007"}},
           {"rate", {"2.5e-1"}},
           {"word", {"12"}},
           {"on", {"true"}},
           {"list", {"x=1", "y=2"}}});
  EXPECT_EQ(v.count, 7) << "decimal, and the last one counts";
  EXPECT_EQ(v.rate, 0.25);
  EXPECT_EQ(v.word, "12");
  EXPECT_TRUE(v.on);
  EXPECT_EQ(s.json().dump(), R"({"the_count":7,"rate":0.25,"word":"12","on":true,"list":{"x":"1","y":"2"}})");
  Values plain;
  Settings otherwise;
  otherwise.add(rows(), &plain);
  EXPECT_EQ(s.flags(&otherwise), (std::vector<std::string>{"--the-count=7", "--rate=0.25", "--word=12", "--on",
                                                           "--list=x=1", "--list=y=2"}));
  EXPECT_TRUE(otherwise.flags(&otherwise).empty());
  for (const char* text :
       {"", "0", "10", "1.5", "1e1", "0x2", " 2", "2 ", "99999999999999999999", "-99999999999999999999", "two"})
    EXPECT_NE(error_of("the-count", text), "") << text;
  for (const char* text : {"", "0", "1", "nan", "inf", "1e-400", "1e400", "-0.5", "0,5", "0.5x"})
    EXPECT_NE(error_of("rate", text), "") << text;
  EXPECT_NE(error_of("rate", "1e-400").find("too small"), std::string::npos);
  EXPECT_NE(error_of("rate", "1e400").find("too large"), std::string::npos);
  EXPECT_NE(error_of("word", "be").find("Did you mean 'bee'?"), std::string::npos) << error_of("word", "be");
  EXPECT_NE(error_of("word", "1").find("out of range"), std::string::npos);
  EXPECT_NE(error_of("on", "maybe").find("true, false"), std::string::npos);
  EXPECT_NE(error_of("the-count", "0").find(" from 1 to 9"), std::string::npos);
}

// Every row is complete, every default is
// valid, and so is every proposed value.
TEST(Settings, TablesAreWhole) {
  std::set<std::string> names;
  Recipe recipe;
  recipe.model = load_model_config("nano");
  settings_of(recipe).check();
  for (auto* table : {&recipe_settings(), &training_settings()})
    for (auto& row : *table) {
      EXPECT_TRUE(names.insert(row.name).second) << row.name << " twice";
      EXPECT_TRUE(row.get && row.set && *row.help && *row.group) << row.name;
      EXPECT_FALSE(std::string(row.help).ends_with(".")) << row.name;
      for (const char* value : row.smaller) EXPECT_NO_THROW(parse_setting(row, value)) << row.name << " " << value;
      if (row.type == SettingType::text) {
        EXPECT_TRUE(!row.choices.empty() || *row.example) << row.name;
      }
    }
  EXPECT_GT(names.size(), 35u);
}

// A recipe's flags make the recipe again.
TEST(Settings, FlagsOfARecipeRepeatIt) {
  GivenSettings given = {
      {"model", {"gpt2"}},      {"vocab", {"1000"}},         {"context", {"2048"}},
      {"dropout", {"0.1"}},     {"clip", {"0.5"}},           {"packing", {"documents"}},
      {"seq", {"64"}},          {"deterministic", {"true"}}, {"kernel", {"linear=cpu.*", "norm=cpu.*"}},
      {"state-block", {"512"}}, {"weight-decay", {"0"}},     {"recompute", {"full"}}};
  Recipe recipe, again;
  settings_of(recipe).apply(given);
  EXPECT_EQ(recipe.model.name, "gpt2-124M");
  EXPECT_EQ(recipe.model.context, 2048);
  GivenSettings flags;
  for (auto& flag : recipe_flags(recipe)) {
    size_t equals = flag.find('=');
    std::string name = flag.substr(2, equals == std::string::npos ? equals : equals - 2);
    flags[name].push_back(equals == std::string::npos ? "true" : flag.substr(equals + 1));
  }
  EXPECT_EQ(flags["model"], std::vector<std::string>{"gpt2"});
  EXPECT_FALSE(flags.count("batch")) << "what is as it is anyway is left out";
  settings_of(again).apply(flags);
  EXPECT_EQ(recipe_to_json(again).dump(), recipe_to_json(recipe).dump());
  // And from the JSON of a record.
  GivenSettings recorded;
  for (auto& flag : recipe_flags(recipe_to_json(recipe))) {
    size_t equals = flag.find('=');
    recorded[flag.substr(2, equals == std::string::npos ? equals : equals - 2)].push_back(
        equals == std::string::npos ? "true" : flag.substr(equals + 1));
  }
  Recipe third;
  settings_of(third).apply(recorded);
  EXPECT_EQ(recipe_to_json(third).dump(), recipe_to_json(recipe).dump());
}

// The default of --lr follows the width, the tokens of a step and the optimizer
// (docs/reference/optimizers.md).
TEST(Settings, LearningRatesSuitTheOptimizer) {
  Recipe recipe;
  recipe.model = load_model_config("gpt2");
  EXPECT_DOUBLE_EQ(default_learning_rate(recipe), 6e-4);
  recipe.optimizer = "lion";
  EXPECT_DOUBLE_EQ(default_learning_rate(recipe), 1.2e-4);
  recipe.optimizer = "sgd";
  EXPECT_DOUBLE_EQ(default_learning_rate(recipe), 6e-2);
  recipe.optimizer = "muon", recipe.model.width = 12;
  EXPECT_DOUBLE_EQ(default_learning_rate(recipe), 3e-3) << "no width asks for more";
  recipe.model.width = 768, recipe.optimizer = "adamw", recipe.seq = 64, recipe.batch = 4;
  EXPECT_DOUBLE_EQ(default_learning_rate(recipe), 3e-4) << "256 tokens";
  recipe.grad_accumulation = 2, recipe.ranks = 2;
  EXPECT_DOUBLE_EQ(default_learning_rate(recipe), 6e-4) << "1024 tokens, in parts";
}

// Options of a command line hold every setting, and an empty list is none.
TEST(Settings, PresetsBringSettingsThatUsersOverride) {
  RecipeOptions o;
  o.given = {{"model", {"modern-nano"}}, {"optimizer", {}}, {"batch", {"4"}}};
  Recipe r = o.finish("nano");
  EXPECT_EQ(r.optimizer, "muon");
  EXPECT_EQ(recipe_flags(r), (std::vector<std::string>{"--model=modern-nano", "--batch=4"}));
  EXPECT_EQ(preset_settings("modern-nano", o.given).at("lr"), std::vector<std::string>{"0.0036"});
  o.given["optimizer"] = {"adamw"};
  r = o.finish("nano");
  EXPECT_EQ(r.optimizer, "adamw");
  EXPECT_EQ(recipe_flags(r)[1], "--batch=4");
  EXPECT_EQ(recipe_flags(r)[2], "--optimizer=adamw");
  EXPECT_FALSE(preset_settings("modern-nano", o.given).count("lr")) << "a rate suits its optimizer";
  EXPECT_TRUE(preset_settings("nano", {}).empty());
}

TEST(Settings, ModelsHaveShortNames) {
  for (auto& [alias, preset] : preset_aliases()) EXPECT_EQ(load_model_config(alias).name, preset);
  EXPECT_EQ(preset_aliases().size(), 4u);
  EXPECT_EQ(parse_model_toml("preset = \"gpt2\"\nlayers = 2\n", "test").width, 768);
  EXPECT_EQ(find_preset("gpt3"), nullptr);
}

}  // namespace crest::test
