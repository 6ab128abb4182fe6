// Sentences of a report, from handmade runs.
#include "report/report.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <regex>
#include <set>

#include "compare/compare.h"
#include "core/error.h"
#include "report/phrases.h"
#include "report/report_data.h"
#include "report/report_parts.h"
#include "report/report_text.h"
#include "report/sample_runs.h"
#include "report/xml.h"

using namespace crest;
using namespace crest::test;

namespace {

std::string all_of(const Json& lines) {
  std::string text;
  for (auto& l : lines) text += l.get<std::string>() + "\n";
  return text;
}
std::string summary(const std::vector<RunRecord>& runs) { return all_of(make_report(runs).json["summary"]); }
std::string advice(const std::vector<RunRecord>& runs) { return all_of(make_report(runs).json["recommendations"]); }
std::string careful(const std::vector<RunRecord>& runs) { return all_of(make_report(runs).json["warnings"]); }

// Two recipes with different attention and these times.
std::vector<RunRecord> two(double naive, double flash, double spread = 0.01) {
  return {sample_run(1, naive, sample_recipe("bf16", "naive", "on"), 200e6, 20, spread),
          sample_run(2, flash, sample_recipe("bf16", "flash", "on"), 100e6, 20, spread)};
}

}  // namespace

TEST(Report, LongLabelsBecomeLetters) {
  Report r = make_report(sample_ladder());
  std::string html = to_html(r.page);
  for (const char* letter : {"A", "B", "C", "D", "E", "F"}) {
    says(html, ">" + std::string(letter) + "</text>");
    says(html, "<td>" + std::string(letter) + "</td>");
  }
  EXPECT_TRUE(silent(html, "\u2026</text>")) << "no label is cut";
  // The settings behind them, in the table after the figures.
  for (const char* header : {"precision", "policy", "attention", "pad vocab", "optimizer"})
    says(html, ">" + std::string(header) + "</th>");
  EXPECT_LT(html.find(">tokens/s</th>"), html.find(">policy</th>")) << "speed is on a narrow screen";
  says(r.json["groups"][0]["fastest"], "F (bf16, ");
}

// The slower measurement comes first in a comparison, whatever its letter.
TEST(Report, AComparisonUsesTheLettersOfItsMeasurements) {
  std::vector<RunRecord> runs = {sample_profile_run(1, "bf16", "flash", "on"),
                                 sample_profile_run(2, "fp32", "naive", "on")};
  runs[1].recipe["policy"] = "autocast", runs[1].recipe["optimizer"] = "adamw-unfused";
  runs[1].recipe["pad_vocab"] = 1;
  std::string html = html_of(runs);
  for (const char* part :
       {"Time from B to A.", "Memory from B to A.", "<li>A is ", ">B, ms</th><th scope=\"col\" class=\"n\">A, ms</th>"})
    says(html, part);
  EXPECT_TRUE(silent(html, "<strong>A</strong> is "));
}

// crest compare --a --b on a busy machine: drift affects both sides of a round alike. So the report
// makes the same claims as the comparison.
TEST(Report, DriftOfInterleavedRoundsIsNoNoise) {
  auto runs = two(100, 60);
  for (auto& r : runs) {
    r.command = "crest compare --a '--attention naive' --b ''";
    for (size_t i = 0; i < r.samples.size(); ++i) r.samples[i].ms *= i < r.samples.size() / 2 ? 1 : 1.9;
  }
  for (size_t i = 0; i < 20; ++i) runs[0].samples.push_back({900, int(i), "a again", false});
  says(html_of(runs), "No clear winner among 2 recipes");
  for (auto& r : runs) r.result["noise_floor"] = 0.012;
  says(html_of(runs), "The fastest of 2 recipes is ");
  runs[1].command += " --no-mfu";
  says(html_of(runs), "No clear winner among 2 recipes");
}

TEST(Report, GivenNamesAreLabels) {
  auto runs = two(100, 50);
  runs[0].name = "before", runs[1].name = "after";
  EXPECT_EQ(make_report(runs).json["groups"][0]["fastest"], "after");
  runs[1].name = "before";
  EXPECT_EQ(make_report(runs).json["groups"][0]["fastest"], "flash attention") << "equal names tell nothing";
}

TEST(Report, SettingsThatFollowFromOthersAreNoCause) {
  std::vector<RunRecord> runs;
  for (const char* fusion : {"off", "on"}) {
    Json recipe = sample_recipe("bf16", "flash", fusion);
    recipe["recompute"] = fusion == std::string("on") ? "pointwise" : "none";
    runs.push_back(sample_run(int64_t(runs.size()) + 1, fusion == std::string("on") ? 80 : 100, recipe, 1e8));
  }
  Report r = make_report(runs);
  EXPECT_EQ(r.json["groups"][0]["varying"], Json::array({"fusion"}));
  EXPECT_EQ(r.json["groups"][0]["fastest"], "fusion on");
  EXPECT_EQ(r.json["groups"][0]["changes"].size(), 1u);
  says(to_html(r.page), "Recompute follows from the other settings.");
  runs[1].recipe["recompute"] = "full";  // somebody asked for it
  EXPECT_EQ(make_report(runs).json["groups"][0]["varying"], Json::array({"fusion", "recompute"}));
}

// Two ranks share the threads of a machine. The difference is the number of ranks, and older
// records lack it.
TEST(Report, RanksAreTheSettingNotTheirThreads) {
  auto runs = two(100, 50);
  runs[1].recipe = runs[0].recipe;
  runs[1].recipe["ranks"] = 2, runs[1].device["threads"] = 1;
  EXPECT_EQ(make_report(runs).json["groups"][0]["varying"], Json::array({"ranks"}));
  runs[0].recipe["ranks"] = 1;
  EXPECT_EQ(make_report(runs).json["groups"][0]["varying"], Json::array({"ranks"}));
}

TEST(Report, ConstantColumnsGoToTheCaption) {
  PageTable t;
  t.columns = {{"run", Align::left}, {"model", Align::left}, {"ms"}, {"empty"}};
  t.rows = {{"a", "nano", "1", "-"}, {"a", "nano", "2", "-"}};
  PageTable one = t;
  one.rows.pop_back();
  move_constants_to_note(t);
  ASSERT_EQ(t.columns.size(), 2u);
  EXPECT_EQ(t.columns[1].header, "ms");
  EXPECT_EQ(t.rows[1][1].text, "2");
  EXPECT_EQ(t.note, "In all rows: model nano.");
  move_constants_to_note(one);
  EXPECT_EQ(one.columns.size(), 3u) << "one row has no constants, but its empty column says nothing";
  EXPECT_EQ(one.note, "");
  says(html_of(two(100, 50)), "In all rows: MFU 40.0%, samples 20.");
}

TEST(Report, PicturesUseTheTermsOfTheField) {
  std::string html = html_of(sample_runs());
  says(html, ">matmul</text>");
  says(html, ">norm</text>");
  EXPECT_TRUE(silent(html, "contraction"));
  EXPECT_TRUE(silent(html, "normalization"));
}

TEST(Page, FoldsLinksAndSquares) {
  Page page;
  page.title = "Title";
  PageCell cell("2 upheld, 1 refuted");
  cell.squares = {{Look::good, 2}, {Look::bad, 1}};
  PageCell name("one");
  name.link = "part-one", name.under = "the first";
  page.blocks.push_back(
      PageTable{{{"name", Align::left}, {"claims", Align::left}}, {{name, cell}}, "", false, false, ""});
  page.blocks.push_back(Heading{3, "Part", "part-one"});
  page.blocks.push_back(Fold{Text().strong("upheld:", Look::good).add(" <it>"), {Paragraph{"why"}}, Fold::item});
  std::string html = to_html(page);
  EXPECT_TRUE(well_formed(html.substr(html.find("<html"))));
  says(html, "<a href=\"#part-one\">one</a><span class=\"under\">the first</span>");
  says(html, "<h3 id=\"part-one\">Part</h3>");
  says(html, "aria-label=\"2 upheld, 1 refuted\"");
  EXPECT_EQ(count(html, "<i class=\"good\"></i>"), 2u);
  says(html,
       "<details class=\"item\"><summary><strong class=\"good\">upheld:</strong> &lt;it&gt;</summary>\n<p>why</p>");
  std::string md = to_markdown(page, "").text;
  says(md, "| [one](#part-one): the first | 2 upheld, 1 refuted |");
  says(md, "<a id=\"part-one\"></a>");
  says(md, "<details>\n<summary>");
}

TEST(Words, ReadAsTheyShould) {
  EXPECT_EQ(say_ms(0.0042), "4.2 us");
  EXPECT_EQ(say_ms(12.345), "12.3 ms");
  EXPECT_EQ(say_ms(123.4), "123 ms");
  EXPECT_EQ(say_ms(2345), "2.35 s");
  EXPECT_EQ(say_ms(NAN), "-");
  EXPECT_EQ(say_faster(1.25), "25% faster");
  EXPECT_EQ(say_faster(0.9), "10% slower");
  EXPECT_EQ(say_faster(2.87), "2.9 times as fast");
  EXPECT_EQ(say_more(0.66), "34% less");
  EXPECT_EQ(say_more(1), "unchanged");
  EXPECT_EQ(say_faster_range(1.1, 1.4), "10% to 40% faster");
  EXPECT_EQ(say_faster_range(0.6, 0.9), "10% to 40% slower");
  EXPECT_EQ(say_faster_range(0.9, 1.4), "10% slower to 40% faster");
  EXPECT_EQ(say_percent(0.004), "0.4%");
  EXPECT_EQ(say_list({"a", "b", "c"}), "a, b and c");
}

TEST(Report, NamesTheFastestAndTheSmallest) {
  std::string text = summary(sample_grid());
  says(text, "The fastest of 7 recipes is bf16, flash attention, fusion on: 58.1 ms per step");
  says(text, "It also needs the least memory");
  says(text, "1 recipe does not fit in memory: fp32, naive attention, fusion off");
  says(text, "Largest effect on speed: precision fp32 to bf16: ");
  EXPECT_TRUE(silent(text, "within noise. Lowest median"));
}

// Among recipes with different work, the fastest has the most tokens/s. Its steps may take longer.
TEST(Report, TheBestOfOtherBatchesIsNotTheLowestMedian) {
  std::vector<RunRecord> runs = {sample_run(1, 100, sample_recipe("bf16", "flash", "on", 4), 1e8),
                                 sample_run(2, 198.6, sample_recipe("bf16", "flash", "on", 8), 1e8)};
  std::string html = html_of(runs);
  says(html, "the top 2 are within noise. Most tokens/s: <strong>batch 8</strong>");
  says(html, "of the recipe with the most tokens/s");
  EXPECT_TRUE(silent(html, "owest median"));
}

// A run with only a profile has its plan; one without is named.
TEST(Report, MemoryOfAProfiledRecipeIsThatOfItsPlan) {
  auto runs = two(100, 50);
  Json categories = runs[1].result["memory"]["by_category"];
  runs[1].result["memory"].erase("by_category");
  says(html_of(runs), "Not recorded: flash attention.");
  runs[1].documents["plan"] = {{"memory", {{"by_category", categories}}}};
  std::string html = html_of(runs);
  EXPECT_TRUE(silent(html, "Not recorded"));
  size_t figure = html.find("Memory by category");
  ASSERT_NE(figure, std::string::npos);
  EXPECT_NE(html.find(">flash attention</text>", figure), std::string::npos);
}

TEST(Report, EqualMemoryIsNotTheLeast) {
  auto runs = two(100, 50);
  says(html_of(runs), "It also needs the least memory: ");
  runs[0].result["memory"]["planned_bytes"] = 100e6;
  std::string html = html_of(runs);
  says(html, "Both need <strong>95.37 MiB</strong> of planned memory.");
  EXPECT_EQ(html.find("the least memory"), std::string::npos);
}

TEST(Report, FastestMayTakeMoreMemory) {
  auto runs = two(100, 50);
  runs[1].result["memory"]["planned_bytes"] = 400e6;
  says(summary(runs),
       "Least memory: naive attention, 190.73 MiB planned; the fastest needs 381.47 MiB, 2.0 times as much.");
}

TEST(Report, SaysWhenItCannotTell) {
  std::string text = summary(two(100, 100.2));
  says(text, "No clear winner among 2 recipes: the top 2 are within noise. Lowest median: ");
  says(advice(two(100, 100.2)), "No recipe is recommended: the top 2 are within noise");
  EXPECT_TRUE(silent(advice(two(100, 100.2)), "Use --"));
  says(advice(two(100, 50)), "Use --attention flash");
  auto busy = two(100, 50);
  busy[0].environment_after["conditions"]["other_load"] = 1.7;
  says(advice(busy), "No recipe is recommended: the machine was busy");
  says(summary(busy), "No clear winner among 2 recipes: the machine was busy. Lowest median: ");
  EXPECT_TRUE(silent(summary(busy), "times as fast") && silent(html_of(busy), "Fastest over slowest"));
  says(make_report(busy).json["groups"][0]["changes"][0]["sentence"], "since the machine was busy");
  says(html_of(two(100, 50)), "Fastest over slowest");
  EXPECT_TRUE(silent(advice(busy), "Use --"));
  // Of a GPU the clocks count, where profiles know them.
  auto gpu = two(100, 50);
  for (size_t i = 0; i < 2; ++i) {
    gpu[i].device["kind"] = "cuda", gpu[i].environment_after["conditions"]["other_load"] = 1.7;
    gpu[i].documents["profile"] = {{"clock_mhz", i ? 1980 : 1755}};
  }
  says(make_report(gpu).json["groups"][0]["changes"][0]["sentence"], "not compared, since the clocks differed");
  Report r = make_report(two(100, 100.2));
  says(r.json["groups"][0]["changes"][0]["sentence"], "no difference in speed beyond noise");
  EXPECT_EQ(r.json["groups"][0]["changes"][0]["pairs"][0]["verdict"], "cannot_tell");
  says(advice(two(100, 100.2)), "Within noise, so choose by memory: attention naive or flash");
}

// The report counts pairs that it cannot compare separately from pairs without a difference.
TEST(Report, BusyPairsAreCountedApart) {
  std::vector<RunRecord> runs = {sample_run(1, 100, sample_recipe("bf16", "naive", "off"), 1e8),
                                 sample_run(2, 100, sample_recipe("bf16", "naive", "on"), 1e8),
                                 sample_run(3, 50, sample_recipe("bf16", "flash", "off"), 1e8),
                                 sample_run(4, 30, sample_recipe("bf16", "flash", "on"), 1e8)};
  runs[3].environment_after["conditions"]["other_load"] = 1.7;
  std::string all;
  Report r = make_report(runs);
  for (auto& change : r.json["groups"][0]["changes"])
    if (change["setting"] == "fusion") all += change["sentence"].get<std::string>();
  says(all, "no difference in speed beyond noise, 1 not compared, since the machine was busy");
}

TEST(Report, RepeatedRunsSetTheNoise) {
  auto runs = two(100, 95);
  says(make_report(runs).json["groups"][0]["changes"][0]["sentence"], "5.1% faster");
  runs.push_back(sample_run(3, 109, sample_recipe("bf16", "naive", "on"), 200e6));
  Report r = make_report(runs);
  EXPECT_EQ(r.json["groups"][0]["rows"].size(), 2u) << "runs of one recipe are one row";
  EXPECT_NEAR(r.json["groups"][0]["noise"].get<double>(), 0.09, 0.02);
  auto close = two(100, 95);
  close.push_back(sample_run(0, 109, sample_recipe("bf16", "naive", "on"), 200e6));  // older: the newer one counts
  EXPECT_EQ(make_report(close).json["groups"][0]["changes"][0]["pairs"][0]["verdict"], "cannot_tell");
}

TEST(Report, AChangeMayBeSlowerOrDependOnTheRest) {
  says(make_report(two(50, 100)).json["groups"][0]["changes"][0]["sentence"],
       "attention naive to flash: 50% slower; planned memory: 50% less.");
  auto grid = sample_grid();
  for (auto& run : grid)
    if (run.recipe["precision"] == "bf16" && run.recipe["fusion"] == "on")
      for (auto& s : run.samples) s.ms *= 1.5;
  Report r = make_report(grid);
  for (auto& change : r.json["groups"][0]["changes"])
    if (change["setting"] == "fusion") says(change["sentence"], "faster in 1, slower in 2 of 3 pairs");
}

TEST(Report, BatchesAreComparedByTokens) {
  Report r = make_report(sample_sweep());
  EXPECT_EQ(r.json["groups"][0]["fastest"], "batch 32");
  std::string text = advice(sample_sweep());
  says(text, "Use --batch 32");
  says(text, "the largest batch measured (32)");
  // 16 GiB at 20e6 + 8e6 B.
  says(text, "each sequence adds 7.63 MiB of planned memory, so about 2144 would fit in the 16.00 GiB");
  std::string html = html_of(sample_sweep());
  says(html, "Speed over batch");
  says(html, "Memory over batch");
}

// A run of one rank, and one of two sharing the threads of the CPU, and `shared`.
static std::vector<RunRecord> ranks_one_and_two(bool recorded, const Json& shared) {
  Json one = sample_recipe("bf16", "flash", "on"), several = one;
  if (recorded) one["ranks"] = 1;
  several["ranks"] = 2;
  several.update(shared);
  one["shard"] = "none", one["reduce"] = "flat", one["gather"] = "update";
  std::vector<RunRecord> runs = {sample_run(1, 40, one, 2e8), sample_run(2, 50, several, 1e8)};
  runs[1].device["threads"] = 1;
  return runs;
}

// Efficiency against one rank, also of a record older than ranks.
TEST(Report, ScalingIsThatOfTheRanks) {
  for (bool recorded : {false, true})
    for (const Json& shared : {Json{{"shard", "none"}, {"reduce", "flat"}, {"gather", "update"}},
                               Json{{"shard", "weights"}, {"reduce", "bucket"}, {"gather", "forward"}}}) {
      auto runs = ranks_one_and_two(recorded, shared);
      std::string html = html_of(runs);
      says(html, "Scaling over ranks");
      says(html, "79.9%");  // 2 x 2,048 tokens in 50.1 ms, against 2,048 in 40.03 ms: of two ranks
      says(html, "Ranks on CPUs share their threads");
      says(html, "ranks 2");
    }
}

// Other work may have slowed down only one side.
TEST(Report, ScalingIsNotSplitOnABusyMachine) {
  std::vector<RunRecord> runs = {sample_profile_run(1, "bf16", "flash", "on"),
                                 sample_profile_run(2, "bf16", "flash", "on")};
  for (int i : {0, 1}) {
    RunRecord& r = runs[size_t(i)];
    Json profile = r.documents["profile"];
    r.recipe["ranks"] = profile["recipe"]["ranks"] = i + 1;
    if (i == 1) {
      profile["tokens"] = 2 * 2048;
      for (auto& ms : profile["step_ms"]) ms = 1.3 * ms.get<double>();
      for (auto& s : r.samples) s.ms *= 1.3;
    }
    r.documents["profile"] = profile;
  }
  says(html_of(runs), "2 ranks reach 76.9% of ideal speed");
  runs[1].environment_after["conditions"]["other_load"] = 1.7;
  std::string busy = html_of(runs);
  says(busy, "No comparison, since the machine was busy");
  EXPECT_TRUE(silent(busy, "of ideal speed"));
}

// Differences by ranks are no effect of sharding.
TEST(Report, RanksAreASettingOfTheirOwn) {
  auto runs = ranks_one_and_two(true, {{"shard", "optimizer"}, {"reduce", "flat"}, {"gather", "update"}});
  runs[1].device["threads"] = 2;
  Report r = make_report(runs);
  ASSERT_EQ(r.json["groups"][0]["rows"].size(), 2u);
  for (auto& change : r.json["groups"][0]["changes"]) EXPECT_NE(change["setting"], "shard") << change;
}

TEST(Report, WarnsOfABusyOrSlowedMachine) {
  auto runs = two(100, 50);
  EXPECT_EQ(careful(runs), "");
  runs[0].environment_after["conditions"]["other_load"] = 1.7;
  runs[1].samples[3].throttled = true;
  runs[1].result["throttle_reasons"] = {"power"};
  std::string text = careful(runs);
  says(text, "The machine was busy during 1 of 2 runs: other processes kept up to 1.7 CPUs busy");
  says(text, "1 of 40 samples were taken while the device was throttled (power), in 1 run.");
  runs[1].environment["host_id"] = "another";
  says(careful(runs), "The runs come from 2 machines");
}

// A device at its limits runs at its real speed, so throttled samples count. Reports, comparisons
// and lists agree on the step time of measurements and of trainings.
TEST(Report, StepTimesAreThoseOfComparisons) {
  auto runs = two(100, 50);
  for (size_t i = 0; i < 12; ++i) runs[1].samples[i].ms = 80, runs[1].samples[i].throttled = true;
  Report report = make_report(runs);
  RunComparison c = compare_runs(runs[0], runs[1]);
  EXPECT_EQ(c.b.step_ms, 80);
  std::set<double> reported;
  for (auto& row : report.json["groups"][0]["rows"]) reported.insert(row["step_ms_median"].get<double>());
  EXPECT_EQ(reported, (std::set<double>{c.a.step_ms, c.b.step_ms}));

  RunRecord training = sample_training();
  training.log.clear();
  for (int step = 1; step <= 5; ++step) {
    LogRow row;
    row.step = step, row.loss = 2, row.step_ms = step > 2 ? 10 : 1000, row.tokens_per_second = 2048e3 / row.step_ms;
    training.log.push_back(row);
  }
  c = compare_runs(training, training);
  EXPECT_EQ(c.a.step_ms, 10) << "without warm-up";
  EXPECT_EQ(c.training.tokens_per_second_a, 204800);
  EXPECT_TRUE(says(to_html(make_report({training}).page), ">10.00<"));
  training.log.resize(2);
  EXPECT_EQ(compare_runs(training, training).a.step_ms, 1000) << "warm-up is better than nothing";
}

TEST(Report, UnfinishedRunsAreNamedAndNotCounted) {
  auto runs = two(100, 50);
  RunRecord failed = sample_run(3, 1, sample_recipe("fp32", "naive", "on"), 1e6);
  failed.status = "failed", failed.samples.clear(), failed.result = nullptr, failed.name = "broken";
  runs.push_back(failed);
  says(careful(runs), "Not finished: broken (failed).");
  EXPECT_EQ(make_report(runs).json["groups"][0]["rows"].size(), 2u);
  EXPECT_THROW(make_report({failed}), Error);
  EXPECT_THROW(make_report({}), Error);
}

TEST(Report, RecommendsWhatWasNotTried) {
  // fusion was measured with naive attention only, and won.
  std::vector<RunRecord> runs = {sample_run(1, 100, sample_recipe("bf16", "naive", "off"), 1e8),
                                 sample_run(2, 80, sample_recipe("bf16", "naive", "on"), 1e8),
                                 sample_run(3, 50, sample_recipe("bf16", "flash", "off"), 1e8)};
  says(advice(runs), "Try next: flash attention, fusion off with fusion on");
}

TEST(Report, PeersStandBesideTheRunsTheyWereMeasuredWith) {
  auto runs = two(100, 100);
  runs.pop_back();
  RunRecord peer = sample_run(2, 140, sample_recipe("bf16", "naive", "on"), 1e6);
  peer.kind = "peer", peer.name = "python train.py", peer.recipe = nullptr, peer.result = nullptr;
  runs[0].grid = peer.grid = "together";
  for (auto& s : peer.samples) s.contender = "peer";
  for (auto* r : {&runs[0], &peer})
    r->documents["comparison"] = {{"noise_floor", 0.012}, {"sentence", "crest is 1.4x faster"}};
  runs.push_back(peer);
  Report r = make_report(runs);
  ASSERT_EQ(r.json["groups"].size(), 1u);
  EXPECT_EQ(r.json["groups"][0]["rows"].size(), 2u);
  says(to_html(r.page), "Measured side by side, in interleaved rounds: crest is 1.4x faster.");
}

TEST(Report, ProfilesShowWhereTimeAndMemoryGo) {
  auto runs = sample_runs();
  Report r = make_report(runs);
  std::string html = to_html(r.page);
  // Tracks of the timeline are in the order of the classes, each with its own name.
  EXPECT_LT(html.find(">matmul</text>", html.find("Timeline")), html.find(">norm</text>", html.find("Timeline")));
  for (const char* part : {"Where time and memory go", "Time by operation class", "Timeline", "Roofline",
                           "Where time could be saved", "Memory over the instructions", "Live blocks at the peak",
                           "Why they differ", "Loss by step", "Machine and software", "Reproduce", "Terms"})
    says(html, part);
  // The figures of the README's picture.
  std::ifstream file(CREST_TEST_DIR "/../scripts/readme-figure.sh");
  std::string script{std::istreambuf_iterator<char>(file), {}};
  static const std::regex figure(R"(=\$\(figure '([^']*)')");
  std::sregex_iterator named(script.begin(), script.end(), figure), end;
  EXPECT_EQ(std::distance(named, end), 2);
  for (; named != end; ++named) says(html, (*named)[1].str());
}

TEST(Report, IsOneWellFormedFileWithoutReferences) {
  std::string html = html_of(sample_runs());
  std::string body = html.substr(html.find("<html"));
  EXPECT_TRUE(well_formed(body));
  for (const char* bad : {"https://", "<script", "<link", "src=", "url(", "@import", "=\"nan", "NaN"})
    EXPECT_TRUE(silent(html, bad)) << bad;
  // The name space of SVG is no reference.
  EXPECT_EQ(count(html, "http://"), count(html, "xmlns=\"http://www.w3.org/2000/svg\""));
  EXPECT_LT(html.size(), 1000000u);
}

TEST(Report, NamesWithMarkupOrEscapesAreHarmless) {
  auto runs = two(100, 50);
  std::string evil = "<script>alert(1)</script>\x1b[31m`|**\xff[x](javascript:1)";
  runs[0].name = evil, runs[0].command = evil + "\n```\n# heading";
  runs[0].recipe["model"] = runs[1].recipe["model"] = evil;
  runs[0].device["name"] = evil, runs[0].environment["libraries"][evil] = evil;
  Report r = make_report(runs, evil);
  std::string html = to_html(r.page);
  EXPECT_TRUE(well_formed(html.substr(html.find("<html"))));
  EXPECT_TRUE(silent(html, "<script"));
  EXPECT_TRUE(silent(html, "\x1b"));
  EXPECT_EQ(html, valid_utf8(html));
  MarkdownFiles md = to_markdown(r.page, "files");
  EXPECT_TRUE(silent(md.text, "\x1b"));
  EXPECT_TRUE(silent(md.text, "\n# heading"));
  std::string words = md.text.substr(0, md.text.find("## Reproduce"));  // there it stands in a code block
  EXPECT_TRUE(silent(words, "<script"));
  EXPECT_TRUE(silent(words, "[x](javascript"));
  for (auto& [name, svg] : md.figures) EXPECT_TRUE(well_formed(svg)) << name;
}

TEST(Report, MarkdownHasTheSameTextAndFiguresBesideIt) {
  Report r = make_report(sample_runs());
  MarkdownFiles with = to_markdown(r.page, "night run_files"), without = to_markdown(r.page, "");
  EXPECT_GT(with.figures.size(), 8u);
  EXPECT_TRUE(without.figures.empty());
  says(with.text, "![Time by recipe](<night%20run_files/figure-01.svg>)");
  EXPECT_TRUE(silent(without.text, "!["));
  for (auto* text : {&with.text, &without.text}) {
    says(*text, "The fastest of ");
    says(*text, "| precision | attention | fusion |");
    says(*text, "## Reproduce");
  }
}

TEST(Report, DamagedRecordsAreNoCrash) {
  auto runs = two(100, 50);
  runs[0].recipe = Json::array({1, 2});
  runs[0].result = "text", runs[0].environment = 7, runs[0].device = nullptr;
  runs[1].result["memory"] = Json::array();
  runs[1].samples[0].ms = NAN;
  EXPECT_TRUE(well_formed(html_of(runs).substr(html_of(runs).find("<html"))));
  runs[1].documents["profile"] = {{"instrs", "none"}};
  says(html_of(runs), "A profile cannot be read and is left out: " + runs[1].name);
}
