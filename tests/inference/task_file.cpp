#include "inference/task_file.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "data/python_text.h"
#include "data/unicode.h"
#include "inference/evaluate_tasks.h"
#include "run/small.h"

using namespace crest;
using namespace crest::test;
using Json = nlohmann::json;

namespace {

const Json hellaswag = {{"ind", 4},
                        {"activity_label", "Removing ice from car"},
                        {"ctx_a", "Then [header] the man writes over the snow [title] He  smiles."},
                        {"ctx_b", "then HE"},
                        {"ctx", "not used"},
                        {"endings", {" runs [substeps] away. ", "[step]  waits.", "drives", "sits [title] Rests."}},
                        {"label", "2"}};
const Json arc = {{"id", "M_1"},
                  {"question", "What melts ice?"},
                  {"choices", {{"text", {"salt", "snow", "sand"}}, {"label", {"1", "2", "3"}}}},
                  {"answerKey", "1"}};
const Json piqa = {{"goal", "Cut bread"}, {"sol1", "with a knife."}, {"sol2", "with a spoon. "}, {"label", 0}};
const Json winogrande = {{"sentence", "The cup did not fit in the box because the _ was  too big. "},
                         {"option1", "cup"},
                         {"option2", "box"},
                         {"answer", "1"}};

Task task_of(const Json& json) { return parse_task(json.dump() + "\n", "dir/some_task.jsonl", 0); }

Json with(Json json, const char* key, const Json& value) {
  json[key] = value;
  return json;
}
Json without(Json json, const char* key) {
  json.erase(key);
  return json;
}

using Pairs = std::vector<std::pair<std::string, std::string>>;
Pairs pairs_of(const TaskItem& item) {
  Pairs out;
  for (const ScoredText& text : item.texts) out.emplace_back(text.context, text.continuation);
  return out;
}

}  // namespace

// The prompts are those that lm-evaluation-harness 0.4.13 logs for these lines.
TEST(TaskFile, PromptsOfHellaswag) {
  const Task task = task_of(hellaswag);
  EXPECT_EQ(task.name, "some_task");
  EXPECT_EQ(task.layout, "hellaswag");
  EXPECT_TRUE(task.normalized);
  const std::string context = "Removing ice from car: Then the man writes over the snow. He smiles. Then he";
  EXPECT_EQ(pairs_of(task.items.at(0)),
            (Pairs{{context, " runs away."}, {context, "  waits."}, {context, " drives"}, {context, " sits. Rests."}}));
  EXPECT_EQ(task.items[0].choices, (std::vector<std::string>{"runs away.", " waits.", "drives", "sits. Rests."}));
  EXPECT_EQ(task.items[0].answer, 2u);
  EXPECT_EQ(task_of(with(hellaswag, "label", 3)).items[0].answer, 3u);
}

TEST(TaskFile, PromptsOfArc) {
  const Task task = task_of(arc);
  EXPECT_EQ(task.layout, "arc");
  const std::string context = "Question: What melts ice?\nAnswer:";
  EXPECT_EQ(pairs_of(task.items.at(0)), (Pairs{{context, " salt"}, {context, " snow"}, {context, " sand"}}));
  EXPECT_EQ(task.items[0].answer, 0u);
}

TEST(TaskFile, PromptsOfPiqa) {
  const Task task = task_of(piqa);
  EXPECT_EQ(task.layout, "piqa");
  const std::string context = "Question: Cut bread\nAnswer:";
  EXPECT_EQ(pairs_of(task.items.at(0)), (Pairs{{context, " with a knife."}, {context, " with a spoon. "}}));
  EXPECT_EQ(task.items[0].answer, 0u);
}

// The contexts differ, and the end of the sentence is scored.
TEST(TaskFile, PromptsOfWinogrande) {
  const Task task = task_of(winogrande);
  EXPECT_EQ(task.layout, "winogrande");
  EXPECT_FALSE(task.normalized);
  EXPECT_EQ(pairs_of(task.items.at(0)), (Pairs{{"The cup did not fit in the box because the cup", " was  too big."},
                                               {"The cup did not fit in the box because the box", " was  too big."}}));
  EXPECT_EQ(task.items[0].answer, 0u);
  EXPECT_EQ(task_of(with(winogrande, "answer", "2")).items[0].answer, 1u);
}

TEST(TaskFile, LinesAndLimit) {
  const std::string lines = piqa.dump() + "\n\n" + with(piqa, "label", 1).dump() + "\r\n" + piqa.dump();
  const Task task = parse_task(lines, "piqa.jsonl", 0);
  ASSERT_EQ(task.items.size(), 3u);
  EXPECT_EQ(task.items[1].answer, 1u);
  EXPECT_EQ(task.items[2].line, 3u);
  EXPECT_EQ(parse_task(lines + "\nnot JSON", "piqa.jsonl", 2).items.size(), 2u);
}

TEST(TaskFile, BadLinesAreNamed) {
  const std::string good = hellaswag.dump() + "\n";
  for (auto& [lines, parts] : std::vector<std::pair<std::string, std::vector<std::string>>>{
           {"", {"there are no questions", "f.jsonl"}},
           {"{\"a\": 1, \"b\": 2}",
            {"no known task: 'a', 'b'", "line 1", "piqa (goal, sol1, sol2, label)", "hellaswag"}},
           {"{}", {"no fields", "line 1"}},
           {good + "[1]", {"not an object", "line 2"}},
           {good + "{", {"f.jsonl, line 2"}},
           {good + without(hellaswag, "endings").dump(), {"no 'endings'", "line 2"}},
           {with(hellaswag, "label", "").dump(), {"no answer", "'label' is empty", "line 1", "validation"}},
           {with(piqa, "label", -1).dump(), {"no answer", "'label' is -1"}},
           {with(piqa, "label", nullptr).dump(), {"no answer", "null"}},
           {with(piqa, "label", 2).dump(), {"'label' is 2", "0 to 1"}},
           {with(winogrande, "answer", "").dump(), {"no answer", "'answer' is empty"}},
           {with(winogrande, "answer", "3").dump(), {"'answer' is 3", "1 to 2"}},
           {with(winogrande, "answer", "x").dump(), {"'answer' is 'x'"}},
           {with(winogrande, "sentence", "no gap").dump(), {"no '_'"}},
           {with(arc, "answerKey", "").dump(), {"no answer", "'answerKey' is empty"}},
           {with(arc, "answerKey", "A").dump(), {"'answerKey' is 'A'", "none of the labels"}},
           {with(arc, "choices", {{"text", {"a", "b"}}, {"label", {"1", "2", "3"}}}).dump(), {"3 labels for 2 texts"}},
           {with(arc, "choices", {{"text", {"a", "b"}}}).dump(), {"no 'choices.label'"}},
           {with(arc, "question", 7).dump(), {"'question' is not a text"}},
           {with(hellaswag, "endings", "one").dump(), {"'endings' is not a list"}},
           {with(hellaswag, "endings", {"one", 2}).dump(), {"'endings[1]' is not a text"}}})
    expect_error([&, &lines = lines] { parse_task(lines, "f.jsonl", 0); }, parts);
}

TEST(TaskFile, AParquetFileIsNamed) {
  TemporaryFolder folder;
  write_text(folder / "a.jsonl", std::string("PAR1\x15\x04\x00\x00", 8));
  expect_error([&] { read_task(folder / "a.jsonl", 0); }, {"a.jsonl", "Parquet", "to_json"});
}

// Python's functions; the expected values are Python's.
TEST(PythonText, StripCapitalizeLength) {
  EXPECT_EQ(strip(" \t\x1c\xc2\xa0"
                  "a b\xe2\x80\x83\n"),
            "a b");
  EXPECT_EQ(strip_right(" a \x1f"), " a");
  EXPECT_EQ(strip(" \n"), "");
  EXPECT_EQ(capitalize("hELLO World"), "Hello world");
  EXPECT_EQ(capitalize("\xc3\xa9TE"), "\xc3\x89te");
  EXPECT_EQ(capitalize("\xc7\x86x"), "\xc7\x85x");
  EXPECT_EQ(capitalize(""), "");
  EXPECT_EQ(characters("n\xc3\xa4h"), 3u);
}

// statistics.stdev(right) / sqrt(n) of Python.
TEST(TaskScores, AccuraciesAndErrors) {
  EXPECT_DOUBLE_EQ(accuracy({1, 0, 0, 1, 1}).value, 0.6);
  EXPECT_NEAR(accuracy({1, 0, 0, 1, 1}).error, 0.24494897427831783, 1e-15);
  EXPECT_TRUE(std::isnan(accuracy({1}).error));
  TaskScores s;
  // By characters the second choice is the best, by bytes the third.
  s.task.items.resize(1);
  s.task.items[0].choices = {"a", "abcd", "\xc3\xa4\xc3\xa4\xc3\xa4"};
  s.logprobs = {{-2, -4, -3.3}};
  for (size_t answer : {0, 1, 2}) {
    s.task.items[0].answer = answer;
    judge(s);
    EXPECT_EQ(s.plain.value, answer == 0);
    EXPECT_EQ(s.by_characters.value, answer == 1);
    EXPECT_EQ(s.by_bytes.value, answer == 2);
  }
}
