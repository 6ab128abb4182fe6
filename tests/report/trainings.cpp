// What a report says of training runs.
#include "report/report_data.h"
#include "report/report_text.h"
#include "report/sample_runs.h"

using namespace crest;
using namespace crest::test;

static std::vector<RunRecord> two_trainings() {
  std::vector<RunRecord> runs = {sample_training(), sample_training()};
  for (auto& r : runs) {
    r.name = "train-nano-bf16-b8-t256", r.folder = "/somewhere/run";
    r.recipe["data"] = "/data/shakespeare", r.recipe["lr"] = 0.001, r.recipe["optimizer"] = "adamw";
  }
  runs[1].id = 41, runs[1].uid = "0000000000010041";
  return runs;
}

TEST(Report, TrainingsNeverHaveEqualLabels) {
  auto runs = two_trainings();
  auto labels = [&] { return training_labels({&runs[0], &runs[1]}); };
  EXPECT_EQ(labels(), (std::vector<std::string>{"run, run 40", "run, run 41"}));
  runs[1].folder = "/somewhere/other";
  EXPECT_EQ(labels(), (std::vector<std::string>{"run", "other"}));
  runs[1].recipe["lr"] = 0.003;
  EXPECT_EQ(labels(), (std::vector<std::string>{"lr 0.001", "lr 0.003"}));
  runs[1].recipe["data"] = "/data/code";
  EXPECT_EQ(labels(), (std::vector<std::string>{"shakespeare", "code"}));
  runs[0].name = "night", runs[1].name = "day";
  EXPECT_EQ(labels(), (std::vector<std::string>{"night", "day"}));
  runs[1].name = "night", runs[1].recipe["optimizer"] = "lion", runs[1].recipe["batch"] = 3;
  EXPECT_EQ(labels(), (std::vector<std::string>{"run", "other"})) << "a name of all runs says nothing";
}

// Runs that differ in much are told apart by their names.
TEST(Report, UnrelatedTrainingsAreNamedByTheirFolders) {
  auto runs = two_trainings();
  runs.push_back(runs[1]);
  runs[2].id = 42, runs[2].uid = "0000000000010042";
  runs[0].folder = "/somewhere/king-james", runs[1].folder = "/somewhere/shakespeare-2",
  runs[2].folder = "/somewhere/code";
  runs[1].recipe["lr"] = 0.0030000000000000001, runs[1].recipe["warmup"] = 17, runs[1].recipe["data"] = "";
  for (auto* r : {&runs[0], &runs[2]}) (*r).recipe["data"] = "/data/text", (*r).recipe["lr"] = 0.0014699999999999998;
  runs[2].recipe["seed"] = 7, runs[2].recipe["clip"] = 0.5, runs[0].recipe["grid_note"] = nullptr;
  runs[0].recipe["resume_parts"] = Json::object();
  std::vector<std::string> labels = training_labels({&runs[0], &runs[1], &runs[2]});
  EXPECT_EQ(labels, (std::vector<std::string>{"king-james", "shakespeare-2", "code"}));
  labels = training_labels({&runs[0], &runs[1]});
  EXPECT_EQ(labels, (std::vector<std::string>{"text, lr 0.00147", "lr 0.003"}))
      << "a sweep: no long numbers, nothing empty";
}

TEST(Report, TrainingsBeginWithTheConclusion) {
  auto runs = two_trainings();
  runs[0].name = "night", runs[1].name = "day";
  for (auto& row : runs[1].log) row.val_loss -= 0.25, row.step_ms *= 2;
  std::string html = html_of(runs);
  size_t conclusion = html.find(
      "Lowest validation loss at the end: <strong>day</strong>, 2.3837. night follows with 2.6337, in 0.50 times the "
      "time.");
  ASSERT_NE(conclusion, html.npos) << html.substr(html.find("Summary"), 800);
  EXPECT_LT(conclusion, html.find("<strong>night</strong>: validation loss 2.6337, loss "));
  says(html, " after 1500 steps (3.07M tokens). The steps took 1m 30s.");
  runs[1].recipe["data"] = "/data/code";
  html = html_of(runs);
  says(html, "The runs have different data, so their losses cannot be compared.");
  EXPECT_TRUE(silent(html, "Lowest validation loss at the end"));
}

TEST(Report, TrainingsAreATableWithDataAndOptimizerAndCurves) {
  auto runs = two_trainings();
  runs[1].recipe["lr"] = 0.003;
  std::string html = html_of(runs);
  for (const char* part : {"lr 0.001", "lr 0.003", "optimizer adamw", "data shakespeare", "Loss by step",
                           "thin: as logged; thick: smoothed; dashed: validation"})
    says(html, part);
  EXPECT_TRUE(silent(html, "Loss by tokens"));
  runs[1].recipe["batch"] = 16;
  says(html_of(runs), "Loss by tokens");
}
