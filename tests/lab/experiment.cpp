// Experiment files: all files of Crest, grids, and mistakes with line and column.
#include "lab/experiment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "core/error.h"
#include "core/io.h"
#include "lab/columns.h"
#include "lab/sources.h"

namespace crest::lab {

namespace {

const char* head = "name = \"x\"\ntitle = \"t\"\nkind = \"bench\"\nshow = [\"ms\"]\n";

std::string error_of(const std::string& text) {
  try {
    parse_experiment(text, "x.toml");
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::usage);
    return e.what();
  }
  return "";
}

}  // namespace

TEST(Experiment, EveryRowOfTheMissionIsThere) {
  std::vector<std::string> names;
  for (auto& e : all_experiments()) {
    names.push_back(e.name);
    EXPECT_EQ(e.file, "experiments/" + e.name + ".toml");
    if (!e.unavailable.empty()) continue;
    EXPECT_FALSE(e.claims.empty()) << e.name;
    EXPECT_FALSE(e.question.empty()) << e.name;
    for (auto& scale : scale_names)
      for (const char* device : {"cpu", "cuda"})
        EXPECT_EQ(measurements_of(e, scale, device).empty(), e.kind == Kind::arithmetic) << e.name << " " << scale;
  }
  for (const char* name :
       {"precision-ladder",     "tf32-memory",      "vocab-alignment", "alignment-sweep", "batch-sweep",
        "software-versions",    "self-consistency", "gpt-sizes",       "trace-vs-timer",  "mixed-precision",
        "accumulate-precision", "kernel-table",     "memory-timeline", "attention-sweep", "fusion",
        "flash-leaderboard",    "all-reduce",       "ddp-ladder",      "methods",         "flops",
        "memory-anatomy",       "context-memory",   "fragmentation",   "accumulation",    "recompute",
        "optimizers",           "data-loader",      "backward-ratio",  "precision-table", "pipeline-bubble"})
    EXPECT_EQ(std::count(names.begin(), names.end(), name), 1) << name;
}

TEST(Experiment, GridsAreProductsInTheOrderOfTheFile) {
  Experiment e = parse_experiment(std::string(head) +
                                      "[recipe]\nmodel = \"nano\"\nbatch = [1, 2]\n[scale.tiny]\nseq = [16, 32]\n"
                                      "[scale.tiny.cuda]\nseq = 64\n[scale.full]\nbatch = [1, 2, 3]\n"
                                      "[[variant]]\nname = \"a\"\nprecision = \"fp32\"\n"
                                      "[[variant]]\nname = \"b\"\nbatch = 9\n",
                                  "x.toml");
  std::vector<MeasurementSpec> measurements = measurements_of(e, "tiny", "cpu");
  ASSERT_EQ(measurements.size(), 4u + 2u);
  EXPECT_EQ(measurements[1].label, "a, batch 1, seq 32");
  EXPECT_EQ(measurements[1].keys.at("precision"), "fp32");
  EXPECT_EQ(measurements[4].keys.at("batch"), "9");
  EXPECT_EQ(measurements_of(e, "tiny", "cuda").size(), 2u + 1u);
  EXPECT_EQ(measurements_of(e, "full", "cpu").size(), 3u + 1u);
  EXPECT_THROW(measurements_of(e, "small", "cpu"), Error);
  EXPECT_THROW(measurements_of(e, "tny", "cpu"), Error);
}

TEST(Experiment, AVariantMayExistOnlyAtAScaleOrOnADevice) {
  auto names = [](const std::string& only, const char* scale, const char* device) {
    Experiment e = parse_experiment(std::string(head) + "[recipe]\nmodel = \"nano\"\n[[variant]]\nname = \"a\"\n" +
                                        "[[variant]]\nname = \"b\"\nonly = \"" + only + "\"\n",
                                    "x.toml");
    return measurements_of(e, scale, device).size();
  };
  EXPECT_EQ(names("tiny.cpu", "tiny", "cpu"), 2u);
  EXPECT_EQ(names("tiny.cpu", "tiny", "cuda"), 1u);
  EXPECT_EQ(names("tiny.cpu", "full", "cpu"), 1u);
  EXPECT_EQ(names("cuda", "full", "cuda"), 2u);
  EXPECT_EQ(names("full", "full", "cpu"), 2u);
  std::string error = error_of(std::string(head) + "[[variant]]\nname = \"b\"\nonly = \"gpu\"\n");
  EXPECT_NE(error.find("'gpu' is not a scale or device"), std::string::npos) << error;
  EXPECT_NE(error.find("line 7"), std::string::npos) << error;
}

TEST(Experiment, MistakesNameLineAndColumn) {
  struct Case {
    std::string text;
    std::vector<const char*> said;
  };
  const std::string grid = std::string(head) + "[recipe]\nbatch = [1, 2]\n";
  const std::string claim = grid + "[[claim]]\ntext = \"c\"\nsubject = \"s\"\nsource = \"d\"\n";
  for (auto& c : std::vector<Case>{
           {"title = \"t\"\nkind = \"bench\"", {"missing key 'name'"}},
           {"name = \"x\"\ntitle = \"t\"\nkind = \"bensh\"", {"line 3", "'bench'"}},
           {std::string(head) + "recpe = 1\n", {"line 5", "'recipe'"}},
           {std::string(head) + "[scale.tny]\nbatch = 1\n", {"'tiny'"}},
           {std::string(head) + "[recipe]\nbatch = []\n", {"line 6", "empty"}},
           {claim + "check = \"value(ms, batch=1) >\"\n", {"line 11, column 30", "expected a"}},
           {claim + "check = \"value(msec, batch=1) > 1\"\n", {"line 11, column 16", "'ms'"}},
           {claim + "check = 'value(ms, bach=1) > 1'\n", {"line 11, column 20", "'batch'"}},
           {claim + "check = \"\"\"\nvalue(ms, batch=1)\n  > 1 +\"\"\"\n", {"line 13, column 8"}},
           {claim + "check = \"1 > 0\"\nneeds = \"cudaa\"\n", {"line 12, column 10", "'cuda'"}},
           {claim, {"missing key 'check'"}},
           {claim + "check = \"1 > 0\"\nconditions = \"gpu\"\n", {"line 12", "no [conditions.gpu]"}},
           {grid + "[conditions.gpu]\nneeds = \"cuda\"\n", {"missing key 'about'"}},
           {grid + "[conditions.gpu]\nabout = \"a\"\nneeds = \"cuda and\"\n", {"line 9, column 18"}},
           {grid + "[conditions.gpu]\nabout = \"a\"\nwhere = { bach = 1 }\n", {"line 9", "'batch'"}},
           {grid + "[conditions.gpu]\nabout = \"a\"\navailable = \"never\"\n", {"line 9", "no: REASON"}},
           {grid + "[conditions.gpu]\nabout = \"a\"\nneeds = \"cuda\"\n[[claim]]\ntext = \"c\"\nsubject = \"s\"\n" +
                "source = \"d\"\ncheck = \"1 > 0\"\nneeds = \"cpu\"\nconditions = \"gpu\"\n",
            {"line 15", "not both"}},
           {grid + "[columns]\nshare = \"sum(ms)\"\n", {"'ms' is not a column"}},
           {grid + "[quantities]\na = \"b + 1\"\nb = \"1\"\n", {"line 8, column 6", "'b' is not a quantity"}},
           {"name = \"x\"\ntitle = \"t\"\nkind = \"plan\"\nshow = [\"ms\"]\n", {"'ms' is not a column of a plan"}},
           {std::string(head) + "available = \"later\"\n", {"no: REASON"}},
           {std::string(head) + "[[then]]\nwhat = \"w\"\nhere = \"1\"\n", {"document must be"}},
           {"name = ", {"TOML", "line 1"}}}) {
    std::string said = error_of(c.text);
    for (auto* text : c.said) EXPECT_NE(said.find(text), std::string::npos) << c.text << "\n--- said:\n" << said;
  }
}

TEST(Experiment, ColumnsReadTheTableBehindAMeasurement) {
  Experiment e = parse_experiment(
      "name = \"x\"\ntitle = \"t\"\nkind = \"profile\"\n[columns]\n"
      "share = \"sum(ms, class=contraction) / sum(ms)\"\ntwice = \"2 * share\"\n",
      "x.toml");
  ASSERT_EQ(e.columns.size(), 2u);
  EXPECT_TRUE(e.uses_column("ms"));
  EXPECT_FALSE(e.uses_column("largest_batch"));
}

namespace {

// Without markup, and with single blanks.
std::string plain(const std::string& text) {
  std::string words;
  for (char c : text) {
    if (c == '*' || c == '`' || c == '\\') continue;
    bool blank = std::isspace(static_cast<unsigned char>(c)) != 0;
    if (!blank)
      words += c;
    else if (!words.empty() && words.back() != ' ')
      words += ' ';
  }
  return words;
}

// A quote may leave out words: " ... ".
bool contains_quote(const std::string& source, const std::string& quote) {
  const std::string ellipsis = " ... ";
  for (size_t at = 0, from = 0; at <= quote.size();) {
    size_t end = std::min(quote.find(ellipsis, at), quote.size());
    size_t found = source.find(plain(quote.substr(at, end - at)), from);
    if (found == std::string::npos) return false;
    from = found + 1, at = end + ellipsis.size();
  }
  return true;
}

}  // namespace

TEST(Experiment, ClaimsQuoteTheirSource) {
  std::map<std::string, std::string> texts;
  if (const char* folder = std::getenv("CREST_SOURCES"))  // files with the keys at the beginning of their names
    for (auto& file : std::filesystem::directory_iterator(folder))
      texts[file.path().filename().string().substr(0, 3)] = plain(read_file(file.path().string(), 1 << 24));
  for (auto& e : all_experiments())
    for (auto& c : e.claims) {
      std::vector<std::string> keys = source_keys(c.source);
      EXPECT_EQ(c.quote.empty(), keys.empty()) << e.name << ": " << c.text;
      if (std::none_of(keys.begin(), keys.end(), [&](auto& key) { return texts.count(key); })) continue;  // not here
      EXPECT_TRUE(std::any_of(keys.begin(), keys.end(), [&](auto& key) { return contains_quote(texts[key], c.quote); }))
          << e.name << ": " << c.source << ": " << c.quote;
    }
}

TEST(Experiment, AnUnknownNameGivesTheNearest) {
  try {
    find_experiment("precision-lader");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::usage);
    EXPECT_NE(std::string(e.what()).find("'precision-ladder'"), std::string::npos) << e.what();
  }
}

}  // namespace crest::lab
