// The lab's report: its content, and its safety against any recorded document.
#include <gtest/gtest.h>

#include "contains.h"
#include "core/error.h"
#include "lab/judge.h"
#include "lab/lab_report.h"

namespace crest::lab {
namespace {

using crest::test::contains;

RunRecord record(const std::string& started, const std::string& verdict, const std::string& name = "one") {
  RunRecord r;
  r.kind = "experiment", r.uid = "uid-" + started, r.started = started, r.device = {{"name", "a chip"}};
  r.documents["lab"] = {
      {"name", name},
      {"title", "Title of <" + name + ">"},
      {"question", "Does it?"},
      {"source", "003"},
      {"kind", "bench"},
      {"show", {"ms", "planned_bytes"}},
      {"scale", "tiny"},
      {"device", "a chip"},
      {"noise_floor", 0.02},
      {"noise_floor_source", "the first cell again"},
      {"rows",
       Json::array(
           {{{"keys", {{"batch", "1"}}}, {"columns", {{"ms", 2.5}, {"planned_bytes", 1048576}}}, {"run", "abc"}},
            {{"keys", {{"batch", "2"}}}, {"columns", Json::object()}, {"absent", "out of memory"}}})},
      {"claims",
       Json::array({{{"text", "It is <twice> as fast"},
                     {"subject", "Crest"},
                     {"source", "003"},
                     {"check", "gain >= 2"},
                     {"verdict", verdict},
                     {"figures", Json::array({{{"figure", "gain"},
                                               {"value", {{"value", 1.5}, {"low", 1.4}, {"high", 1.6}}}}})}}})},
      {"then", Json::array({{{"what", "gain"}, {"unit", "x"}, {"source", "003"}, {"document", 2}, {"here", 1.5}}})}};
  return r;
}

TEST(LabReport, ShowsTheNewestVerdictsWithTheirFigures) {
  Report r = make_lab_report(
      {record("2026-01-02", "refuted"), record("2026-01-01", "upheld"), record("2026-01-01", "upheld", "two")});
  ASSERT_EQ(r.json["experiments"].size(), 2u);
  EXPECT_EQ(r.json["experiments"][0]["name"], "one");
  EXPECT_EQ(r.json["experiments"][0]["uid"], "uid-2026-01-02");
  EXPECT_EQ(r.json["experiments"][0]["refuted"], 1);
  EXPECT_EQ(r.json["experiments"][1]["upheld"], 1);
  EXPECT_EQ(r.json["summary"][0], "2 claims: 1 upheld, 1 refuted, 0 inconclusive, 0 not comparable on a chip.");
  std::string html = to_html(r.page);
  for (const char* part :
       {"It is &lt;twice&gt; as fast", "gain &gt;= 2", "gain = 1.5", "1.00 MiB", "out of memory", "abc",
        "Software Tune Up For The Best Performance", "Noise floor 2.0%", "crest lab run one --scale tiny",
        "<a href=\"#experiment-one\">one</a>", "<h3 id=\"experiment-one\">one</h3>", "1 refuted claim", "0.75",
        "<strong>gain 1.5 (1.4 to 1.6)</strong>"})
    EXPECT_TRUE(contains(html, part)) << part;
  EXPECT_FALSE(contains(html, "<twice>"));
}

TEST(LabReport, AnExperimentWithoutADocumentNamesNone) {
  RunRecord r = record("2026-01-02", "upheld");
  EXPECT_TRUE(contains(to_html(make_lab_report({r}).page), "(Stas Bekman), judged at scale tiny, a chip."));
  r.documents["lab"]["source"] = "";
  EXPECT_TRUE(contains(to_html(make_lab_report({r}).page), ">Judged at scale tiny, a chip."));
}

// Records with three verdicts stay readable next to records with four.
TEST(LabReport, AllVerdictsOldAndNew) {
  RunRecord cannot = record("2026-01-01", "cannot tell here"), not_here = record("2026-01-02", "not_comparable", "two");
  not_here.documents["lab"]["claims"][0]["reason"] = "the claim is about an H100; this is a CPU";
  not_here.documents["lab"]["claims"][0]["quote"] = "twice as fast";
  Report r = make_lab_report({cannot, not_here});
  EXPECT_EQ(r.json["summary"][0], "2 claims: 0 upheld, 0 refuted, 1 inconclusive, 1 not comparable on a chip.");
  EXPECT_EQ(r.json["experiments"][0]["cannot_tell"], 1);
  EXPECT_EQ(r.json["experiments"][1]["not_comparable"], 1);
  std::string html = to_html(r.page);
  for (const char* part :
       {"inconclusive:", "not comparable:", "the claim is about an H100; this is a CPU", "twice as fast"})
    EXPECT_TRUE(contains(html, part)) << part;
  EXPECT_FALSE(contains(html, "not_comparable"));
}

TEST(LabReport, AContinuedClaimHasTheClaimThatItContinues) {
  std::vector<std::string> claims = {"A", "... also B", "... or C", "D"};
  std::vector<std::string> whole = {"A", "A ... also B", "A ... or C", "D"};
  for (size_t i = 0; i < claims.size(); ++i) EXPECT_EQ(whole_text(claims, i), whole[i]);
  EXPECT_EQ(whole_text({"... alone"}, 0), "... alone");
}

// On a phone, an entry shows its question and how many claims hold.
TEST(LabReport, EntriesCanBeFolded) {
  Report r = make_lab_report({record("2026-01-01", "upheld")});
  std::string html = to_html(r.page);
  EXPECT_TRUE(contains(html, "<details class=\"entry\"><summary>1 upheld: claims, figures, measurements</summary>"));
  EXPECT_LT(html.find("<h3 id=\"experiment-one\">"), html.find("<details class=\"entry\">"));
  EXPECT_FALSE(contains(to_markdown(r.page, "").text, "claims, figures, measurements")) << "text has no screen";
}

size_t times(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
  return n;
}

// Refuted claims come first; buttons choose claims by verdict, without a script.
TEST(LabReport, RefutedClaimsComeFirst) {
  RunRecord r = record("2026-01-01", "upheld");
  Json claims = Json::array();
  for (auto [text, verdict] : {std::pair{"A", "upheld"}, {"... and B", "refuted"}, {"... and C", "upheld"}}) {
    Json claim = r.documents["lab"]["claims"][0];
    claim["text"] = text, claim["verdict"] = verdict;
    claims.push_back(claim);
  }
  r.documents["lab"]["claims"] = claims;
  std::string html = to_html(make_lab_report({r}).page);
  const std::vector<std::string> order = {">1 refuted claim</h2>", ">Overview</h2>",    ">Experiments</h2>",
                                          "id=\"only-refuted\"",   "A ... and B. Here", " A. Here",
                                          "A ... and C. Here"};
  size_t at = 0;
  for (auto& part : order) {
    size_t found = html.find(part, at);
    ASSERT_NE(found, html.npos) << part << " after " << at;
    at = found;
  }
  for (const char* part : {"refuted (1)</label>", "upheld (2)</label>",
                           ":root:has(#only-refuted:checked) .entry > :not(summary):not(.is-refuted) { display: none }",
                           "<details class=\"item is-refuted\">"})
    EXPECT_TRUE(contains(html, part)) << part;
  EXPECT_EQ(times(html, "<script"), 0u);
  EXPECT_FALSE(contains(to_html(make_lab_report({record("2026-01-01", "upheld")}).page), "class=\"filter\""))
      << "nothing to choose";
}

// On a CPU most claims are about GPUs: they are one closed line of the entry, and an experiment of
// nothing else is left out of the overview.
TEST(LabReport, ClaimsAboutOtherDevicesAreFoldedAway) {
  RunRecord r = record("2026-01-01", "upheld"), none = record("2026-01-01", "not_comparable", "two");
  Json other = r.documents["lab"]["claims"][0];
  other["verdict"] = "not_comparable", other["text"] = "It is faster on a GPU", other["source"] = "001";
  r.documents["lab"]["claims"].push_back(other);
  std::string html = to_html(make_lab_report({r, none}).page);
  size_t fold = html.find("not comparable:</strong> 1 claim."), claim = html.find("It is faster on a GPU");
  ASSERT_NE(fold, html.npos);
  EXPECT_LT(fold, claim);
  EXPECT_TRUE(contains(html, "1 experiment with no claim about this kind of device or scale"));
  size_t overview = html.find(">Overview</h2>"), table = html.find("</table>", overview);
  EXPECT_FALSE(contains(html.substr(overview, table - overview), "experiment-two"));
  for (const char* part : {">By document</h2>", "Diagnosing memory usage with tf32 (a conversation with Cursor)"})
    EXPECT_TRUE(contains(html, part)) << part;
  EXPECT_LT(html.find(">By document</h2>"), overview);
}

// The claim before it is in another group, so a continued claim has the claim that it continues.
TEST(LabReport, AContinuedClaimIsWholeInEachGroup) {
  RunRecord r = record("2026-01-01", "upheld");
  Json claims = Json::array();
  for (auto [text, verdict] : {std::pair{"A", "upheld"}, {"... and B", "not_comparable"}, {"... and C", "upheld"}}) {
    Json claim = r.documents["lab"]["claims"][0];
    claim["text"] = text, claim["verdict"] = verdict;
    claims.push_back(claim);
  }
  r.documents["lab"]["claims"] = claims;
  std::string html = to_html(make_lab_report({r}).page);
  for (const char* part : {"A ... and B", "A ... and C"}) EXPECT_TRUE(contains(html, part)) << part;
}

// One entry, led by the larger scale; the other is part of it.
TEST(LabReport, ScalesOfAnExperimentAreOneEntry) {
  RunRecord tiny = record("2026-01-02", "upheld"), full = record("2026-01-01", "refuted");
  full.documents["lab"]["scale"] = "full";
  Report r = make_lab_report({tiny, full});
  EXPECT_EQ(r.json["experiments"].size(), 2u);
  std::string html = to_html(r.page);
  EXPECT_EQ(times(html, "<h3 id=\"experiment-one\">"), 1u);
  for (const char* part : {"judged at scale full, a chip", "Also at scale tiny, a chip: 1 claim: 1 upheld",
                           "(<strong class=\"good\">upheld</strong> at scale tiny, a chip)", "aria-label=\"1 refuted\"",
                           "aria-label=\"1 upheld\"", "<dd class=\"bad\">1</dd>", "1 experiment on a chip"})
    EXPECT_TRUE(contains(html, part)) << part;
}

// A reader sees a sentence; the formula opens on demand.
TEST(LabReport, FormulasAreFolded) {
  std::string html = to_html(make_lab_report({record("2026-01-01", "upheld")}).page);
  size_t claim = html.find("<details class=\"item is-upheld\">"), summary = html.find("</summary>", claim),
         end = html.find("</details>", claim);
  ASSERT_NE(claim, html.npos);
  std::string sentence = html.substr(claim, summary - claim), rest = html.substr(summary, end - summary);
  EXPECT_TRUE(contains(sentence, "It is &lt;twice&gt; as fast. Here: <strong>gain 1.5")) << sentence;
  EXPECT_FALSE(contains(sentence, "gain &gt;= 2"));
  EXPECT_TRUE(contains(rest, "Holds if <code>gain &gt;= 2</code>")) << rest;
}

RunRecord with_rows(const std::string& key, const std::vector<std::string>& values) {
  RunRecord r = record("2026-01-01", "upheld");
  Json rows = Json::array();
  for (size_t i = 0; i < values.size(); ++i)
    rows.push_back({{"keys", {{key, values[i]}, {"fixed", "1"}}},
                    {"columns", {{"ms", 1.0 + double(i)}, {"planned_bytes", 1048576}}},
                    {"run", "abc"}});
  r.documents["lab"]["rows"] = rows;
  return r;
}

TEST(LabReport, MeasurementsAreASweepOrALadder) {
  std::string sweep = to_html(make_lab_report({with_rows("bytes", {"1MB", "10MB", "100MB"})}).page);
  EXPECT_TRUE(contains(sweep, "Sweep over bytes"));
  std::string ladder = to_html(make_lab_report({with_rows("variant", {"A fp32", "B TF32", "C bf16"})}).page);
  for (const char* part : {"Measurements", ">A fp32</text>", ">C bf16</text>"})
    EXPECT_TRUE(contains(ladder, part)) << part;
  std::string one = to_html(make_lab_report({with_rows("variant", {"A fp32"})}).page);
  EXPECT_FALSE(contains(one, "Measurements"));
}

TEST(LabReport, FiguresOfTheDocumentAreDrawnNextToThoseMeasured) {
  RunRecord r = record("2026-01-01", "upheld");
  r.documents["lab"]["then"].push_back({{"what", "step"}, {"unit", "ms"}, {"document", 340}, {"here", 170}});
  std::string html = to_html(make_lab_report({r}).page);
  for (const char* part : {"Claimed and measured", "340 \u2192 170 ms", "2 \u2192 1.5 x"})
    EXPECT_TRUE(contains(html, part)) << part;
}

TEST(LabReport, RecordsOfOtherKindsAreLeftOut) {
  RunRecord bench = record("2026-01-01", "upheld");
  bench.kind = "bench";
  EXPECT_THROW(make_lab_report({bench}), Error);
  EXPECT_THROW(make_lab_report({}), Error);
}

TEST(LabReport, DamagedDocumentsAreNoCrash) {
  const std::vector<Json> wrong = {
      Json(),        3,    "text",           Json::array(),
      {{"name", 4}}, true, {{"value", "x"}}, {{"keys", 1}, {"columns", "c"}, {"absent", 3}}};
  RunRecord whole = record("2026-01-01", "upheld");
  for (auto& [key, was] : whole.documents["lab"].items())
    for (auto& value : wrong) {
      RunRecord r = whole;
      r.documents["lab"][key] = value;
      if (key == "claims" && (!value.is_array() || value.empty())) {
        EXPECT_THROW(make_lab_report({r}), Error) << key;
        continue;
      }
      EXPECT_NO_THROW(to_html(make_lab_report({r}).page)) << key << " " << value;
      r.documents["lab"][key] = Json::array({value, value});
      EXPECT_NO_THROW(to_html(make_lab_report({r}).page)) << key << " [" << value << "]";
    }
}

}  // namespace
}  // namespace crest::lab
