// The changes allowed by --resume, on texts of settings alone.
#include "train/resume.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "plan/recipe_settings.h"
#include "train/flag_layers.h"
#include "train/training_settings.h"

using namespace crest;

namespace {

using Lines = std::vector<std::string>;

Lines changes(const GivenSettings& of_run, const GivenSettings& given) {
  const TrainOptions defaults;
  return changes_of_run(training_settings(), &defaults, of_run, given);
}

}  // namespace

TEST(ChangesOfARun, AreNotedRefusedOrAccepted) {
  EXPECT_EQ(changes({{"schedule", {"linear"}}}, {{"schedule", {"cosine"}}}),
            (Lines{"note     --schedule was linear; the run continues with cosine"}));
  EXPECT_EQ(changes({}, {{"schedule", {"linear"}}}),
            (Lines{"note     --schedule was cosine; the run continues with linear"}))
      << "the file lacks what had its default";
  EXPECT_EQ(changes({{"lr", {"1e-3"}}}, {{"lr", {"0.001"}}}), Lines()) << "the same number";
  EXPECT_EQ(changes({{"steps", {"10"}}}, {{"steps", {"20"}}}), Lines()) << "more steps need no note";
  EXPECT_THROW(changes({{"seed", {"1"}}}, {{"seed", {"2"}}}), Error);
  EXPECT_NO_THROW(changes({{"seed", {"1"}}}, {{"seed", {}}}));
}

TEST(GlobalBatch, IsKeptByMicroSteps) {
  const GivenSettings of_run = {{"batch", {"4"}}, {"grad-accumulation", {"2"}}, {"ranks", {"2"}}};
  GivenSettings given = of_run;
  EXPECT_FALSE(keep_global_batch(of_run, given)) << "as many ranks";
  EXPECT_EQ(given, of_run);
  given["ranks"] = {"4"};
  EXPECT_TRUE(keep_global_batch(of_run, given));
  EXPECT_EQ(given["grad-accumulation"], (Lines{"1"}));
  given = of_run, given["ranks"] = {"1"};
  std::string line = keep_global_batch(of_run, given).value_or("");
  EXPECT_EQ(given["grad-accumulation"], (Lines{"4"}));
  EXPECT_NE(line.find("1 instead of 2 ranks, 4 micro steps instead of 2"), std::string::npos) << line;
  given = of_run, given["ranks"] = {"3"};
  EXPECT_THROW(keep_global_batch(of_run, given), Error);
  given = of_run, given["ranks"] = {"1"}, given["grad-accumulation"] = {"8"};
  EXPECT_FALSE(keep_global_batch(of_run, given)) << "micro steps that somebody gave";
}

TEST(Sums, AreChosenAnewForOtherRanks) {
  auto otherwise = [](const std::string& name) -> std::string {
    for (auto& row : recipe_settings())
      if (row.name == name) return row.default_value;
    return "";
  };
  GivenSettings of_run = {{"ranks", {"2"}}, {"bucket", {otherwise("bucket")}}, {"reduce", {"overlap"}}};
  ASSERT_EQ(otherwise("bucket"), "25MB");
  GivenSettings given = of_run;
  choose_sums_anew(of_run, given);
  EXPECT_EQ(given, of_run);
  given["ranks"] = {"4"};
  choose_sums_anew(of_run, given);
  EXPECT_EQ(given["bucket"], Lines()) << "a default of the run";
  EXPECT_EQ(given["reduce"], (Lines{"overlap"})) << "given for the run";

  of_run = {{"mesh", {"tensor=2"}}, {"tensor-overlap", {"rows"}}};
  given = of_run;
  choose_sums_anew(of_run, given);
  EXPECT_EQ(given, of_run);
  given["mesh"] = {"pipeline=2,tensor=2"};
  choose_sums_anew(of_run, given);
  EXPECT_EQ(given["tensor-overlap"], Lines()) << "stages refuse rows";
}

TEST(FlagLayers, HigherOnesOverride) {
  const FlagLayer file = {"--steps=30", "--warmup=3", "--lr=1e-3", "--derived=warmup"};
  EXPECT_EQ(combined({file, {"--lr=2e-3"}}), (FlagLayer{"--steps=30", "--warmup=3", "--derived=warmup", "--lr=2e-3"}));
  EXPECT_EQ(combined({file, {"--steps=60"}}), (FlagLayer{"--lr=1e-3", "--steps=60"})) << "a warm-up of other steps";
  EXPECT_EQ(values_in({"--kernel=a=b", "--lr=1", "--kernel=c"}, "--kernel"), (Lines{"a=b", "c"}));
  EXPECT_EQ(value_in(file, "--lr"), value_in({"--lr=0.001"}, "--lr")) << "equal numbers";
}

TEST(FlagLayers, RanksAndAMeshOverrideEachOther) {
  EXPECT_EQ(combined({{"--ranks=4", "--batch=2"}, {"--mesh=data=2"}}), (FlagLayer{"--batch=2", "--mesh=data=2"}));
  EXPECT_EQ(combined({{"--mesh=data=2"}, {"--ranks=4"}}), (FlagLayer{"--ranks=4"}));
  EXPECT_EQ(combined({{"--mesh=data=2"}, {"--data-parallel=4"}}), (FlagLayer{"--data-parallel=4"}));
}
