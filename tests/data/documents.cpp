// Documents of JSON lines and Parquet: lines that cannot be used, duplicates, and rows.
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "contains.h"
#include "data/bad_lines.h"
#include "data/helpers.h"
#include "data/json_lines.h"
#include "data/prepare.h"
#include "host/external.h"

using namespace crest;
using namespace crest::test;
namespace fs = std::filesystem;

namespace {

struct PreparedDocuments {
  PrepareResult result;
  std::vector<std::string> messages;
  std::string text;  // of both splits; '|' for the end-of-text token of the tokenizer `bytes`
};

PreparedDocuments prepared_documents(const DataFolder& dir, std::vector<std::string> inputs, PrepareOptions o = {}) {
  PreparedDocuments p;
  o.inputs = std::move(inputs), o.out = dir / "out", o.overwrite = true;
  o.message = [&](const std::string& m) { p.messages.push_back(m); };
  p.result = prepare(o);
  for (const char* name : {"train-000000.bin", "val-000000.bin"}) {
    const std::string shard = read_file(dir / "out" / name);
    for (size_t i = ShardHeader::bytes; i + 1 < shard.size(); i += 2) p.text += shard[i + 1] ? '|' : shard[i];
  }
  return p;
}

bool told(const std::vector<std::string>& messages, const std::string& part) {
  return std::any_of(messages.begin(), messages.end(), [&](auto& m) { return contains(m, part); });
}

// Sets a variable for its own lifetime.
class SetVariable {
 public:
  SetVariable(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    ::setenv(name, value.c_str(), 1);
  }
  ~SetVariable() { before_ ? ::setenv(name_, before_->c_str(), 1) : ::unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

std::string python_with_pyarrow() {
  const char* named = std::getenv("CREST_PYTHON");
  return named ? named : "python3";
}

int exit_of_python(const std::string& code, const std::string& argument = "") {
  return run_program("/usr/bin/env", {"env", python_with_pyarrow(), "-c", code, argument}).exit_code;
}

}  // namespace

TEST(BadLines, AreNamedWithLineAndColumn) {
  auto where = [](const std::string& line) -> std::string {
    JsonLines lines("f.jsonl", "text");
    try {
      lines.add("{\"text\": \"fine\"}\n" + line + "\n", true, [](const JsonDocument&) {});
    } catch (const Error& e) {
      return e.where() + ": " + e.problem();
    }
    return "";
  };
  EXPECT_EQ(where("{\"text\": 5}"), "f.jsonl, line 2, column 10: \"text\" is not a string");
  EXPECT_EQ(where("  {\"body\": \"a\"}"), "f.jsonl, line 2, column 3: the line has no key \"text\"");
  EXPECT_EQ(where("{\"a\": {\"text\": 1}, \"b\": \"\\\"text\\\": \", \"text\" : [1]}"),
            "f.jsonl, line 2, column 51: \"text\" is not a string")
      << "a key of another object, and a string that looks like one";
  EXPECT_EQ(where("{\"prompt\": \"a\", \"answer\": \"\"}"), "f.jsonl, line 2, column 27: \"answer\" is empty");
  EXPECT_EQ(where("{\"messages\": [{\"role\": \"x\", \"content\": \"a\"}]}").substr(0, 35),
            "f.jsonl, line 2, column 14: \"messag");
  EXPECT_EQ(where("{\"text\": tru}").substr(0, 27), "f.jsonl, line 2, column 13:");
}

TEST(BadLines, SomeMayBeSkippedAndOneMoreFails) {
  DataFolder dir;
  std::string file, text;
  for (int i = 0; i < 60; ++i) {
    file += "{\"text\": \"document " + std::to_string(i) + "\"}\n";
    text += (i ? "|document " : "document ") + std::to_string(i);
    if (i % 20 == 10) file += i == 30 ? "{\"text\": null}\n" : "not JSON\n";
  }
  write_file(dir / "a.jsonl", file);
  const std::string path = dir / "a.jsonl";
  EXPECT_ERROR(prepared_documents(dir, {path}), path + ", line 12, column 2: not valid JSON");
  EXPECT_ERROR(prepared_documents(dir, {path}), "--skip-bad-lines N skips up to N bad lines");
  PrepareOptions o;
  o.skip_bad_lines = 2;
  EXPECT_ERROR(prepared_documents(dir, {path}, o), path + ", line 54, column 2");
  EXPECT_ERROR(prepared_documents(dir, {path}, o), "Before it, --skip-bad-lines skipped 2 bad lines.");
  EXPECT_FALSE(fs::exists(dir / "out"));
  o.skip_bad_lines = 3;
  for (size_t block : {size_t(7), size_t(8) << 20}) {
    o.block_bytes = block;
    PreparedDocuments p = prepared_documents(dir, {path}, o);
    EXPECT_EQ(p.text, text);
    EXPECT_EQ(p.result.bad_lines, 3u) << "each counts once, though files are read twice";
    EXPECT_TRUE(told(p.messages, "skipped " + path + ", line 33, column 10: \"text\" is null"));
    EXPECT_TRUE(told(p.messages, "3 bad lines skipped"));
  }
  // A line too long for the memory.
  BadLines one(1);
  JsonLines lines("x.jsonl", "text", {"", nullptr}, &one);
  std::string block(1 << 20, 'x');
  std::vector<std::string> found;
  auto use = [&](const JsonDocument& d) { found.emplace_back(d.text); };
  lines.add("{\"text\": \"a\"}\n", false, use);
  for (int i = 0; i < 130; ++i) lines.add(block, false, use);
  lines.add("x\n{\"text\": \"b\"}\n{", true, [&](const JsonDocument& d) {
    use(d);
    EXPECT_EQ(one.skipped(), 1u);
  });
}

TEST(Deduplicate, OnlyTheFirstOfEqualDocumentsStays) {
  DataFolder dir;
  auto line = [](int i) { return "{\"text\": \"document " + std::to_string(i) + "\"}\n"; };
  std::string file, text;
  for (int i = 0; i < 50; ++i) {
    file += line(i) + line(i / 2) + "{\"text\": \"\"}\n";
    text += (i ? "|document " : "document ") + std::to_string(i);
  }
  write_file(dir / "a.jsonl", file + line(3));
  PrepareOptions o;
  o.deduplicate = true;
  PreparedDocuments p = prepared_documents(dir, {dir / "a.jsonl"}, o);
  EXPECT_EQ(p.text, text) << "also across the splits";
  EXPECT_EQ(p.result.duplicates, 51u);
  EXPECT_EQ(p.result.info.documents, 50u);
  EXPECT_EQ(p.result.info.text_bytes, text.size() - 49);
  EXPECT_TRUE(told(p.messages, "51 duplicates of 101 documents left out")) << p.messages[0];
  // Whole files, the parts of a file, and other kinds of files with the same text.
  write_file(dir / "t/1.txt", text + "|" + text);
  write_file(dir / "t/2.jsonl", file);
  write_file(dir / "t/3.txt", "the last text");
  write_file(dir / "t/4.txt", "the last text");
  for (size_t block : {size_t(5), size_t(8) << 20}) {
    o.separator = "|", o.block_bytes = block;
    EXPECT_EQ(prepared_documents(dir, {dir / "t"}, o).text, text + "|the last text") << block;
  }
  // The validation split is cut from what is left: a copy of the corpus leaves it as it was.
  o = {};
  o.deduplicate = true;
  write_file(dir / "one/a.txt", text), write_file(dir / "two/a.txt", text), write_file(dir / "two/b.txt", text);
  const uint64_t val = prepared_documents(dir, {dir / "one"}, o).result.info.val_tokens;
  EXPECT_GT(val, 0u);
  EXPECT_EQ(prepared_documents(dir, {dir / "two"}, o).result.info.val_tokens, val);
}

TEST(Deduplicate, RecordsDifferByTheirParts) {
  DataFolder dir;
  const std::string one = "{\"prompt\": \"ab\", \"answer\": \"cd\"}\n",
                    other = "{\"prompt\": \"abc\", \"answer\": \"d\"}\n";
  std::string file = one + other + one + "{\"text\": \"abcd\"}\n" + other;
  for (int i = 0; i < 20; ++i) file += "{\"text\": \"document " + std::to_string(i) + "\"}\n";
  write_file(dir / "a.jsonl", file);
  PrepareOptions o;
  o.deduplicate = true;
  PreparedDocuments p = prepared_documents(dir, {dir / "a.jsonl"}, o);
  EXPECT_EQ(p.result.duplicates, 2u);
  EXPECT_EQ(p.text.substr(0, 25), "abcd|abcd|abcd|document 0") << p.text;
}

TEST(Parquet, WithoutPythonOrPyarrowIsOneClearError) {
  DataFolder dir;
  write_file(dir / "a.parquet", "PAR1 something PAR1");
  const std::string path = dir / "a.parquet";
  {
    SetVariable missing("CREST_PYTHON", dir / "no-such-python");
    EXPECT_ERROR(prepared_documents(dir, {path}),
                 path + ": Parquet files are read by Python with pyarrow, but there is no");
    EXPECT_ERROR(prepared_documents(dir, {path}), "python3 -m pip install pyarrow");
  }
  auto interpreter = [&](const std::string& script) {
    write_file(dir / "python", "#!/bin/sh\n" + script);
    fs::permissions(dir / "python", fs::perms::owner_all);
    return (dir / "python").string();
  };
  {
    SetVariable without("CREST_PYTHON",
                        interpreter("echo 'crest:{\"kind\": \"import\", \"error\": \"No module\"}' >&2\nexit 3\n"));
    EXPECT_ERROR(prepared_documents(dir, {path}), "reading Parquet files needs pyarrow");
    EXPECT_ERROR(prepared_documents(dir, {path}), (dir / "python").string() + " -m pip install pyarrow");
  }
  {
    SetVariable failing("CREST_PYTHON", interpreter("echo a reason >&2\nexit 7\n"));
    EXPECT_ERROR(prepared_documents(dir, {path}), "failed with exit code 7");
    EXPECT_ERROR(prepared_documents(dir, {path}), "a reason");
  }
  {
    SetVariable other("CREST_PYTHON", interpreter("echo hello, this is no interpreter of Python\n"));
    EXPECT_ERROR(prepared_documents(dir, {path}), "CREST_PYTHON must name a Python interpreter");
  }
  EXPECT_FALSE(fs::exists(dir / "out"));
  write_file(dir / "half.parquet", "PAR1\x15\x04\x15");
  EXPECT_ERROR(prepared_documents(dir, {dir / "half.parquet"}), "reads a whole file by its name");
}

// Rows as pyarrow returns them: strings of each kind in several row groups, slices, empty texts.
TEST(Parquet, RowsAreThoseOfPyarrow) {
  if (exit_of_python("import pyarrow.parquet") != 0)
    GTEST_SKIP() << "needs pyarrow: python3 -m venv V && V/bin/pip install pyarrow, CREST_PYTHON=V/bin/python3";
  DataFolder dir;
  const std::string make = R"(
import json, pyarrow as pa, pyarrow.parquet as pq, sys
folder = sys.argv[1] + "/"
texts = ["row %d %s \u00e4\U0001F600\n" % (i, "x" * (i * 7919 % 400)) for i in range(1500)]
texts[3] = texts[700] = ""
def write(name, column, **options):
    pq.write_table(pa.table({"id": list(range(len(column))), "text": column}), folder + name, **options)
write("plain.parquet", pa.array(texts), row_group_size=400)
write("large.parquet", pa.array(texts, pa.large_string())[100:900], compression="zstd")
write("dict.parquet", pa.array(texts[:20] * 30).dictionary_encode())
write("empty.parquet", pa.array([], pa.string()))
write("nulls.parquet", pa.array(["a", None, "b", None, "c"] * 20))
write("nested.parquet", pa.array([["a"], ["b"]]))
write("bytes.parquet", pa.array([b"a"]))
write("damaged.parquet", pa.array(texts))
data = bytearray(open(folder + "damaged.parquet", "rb").read())
data[2000:6000] = b"\xff" * 4000
open(folder + "damaged.parquet", "wb").write(data)
rows = []
for name in ("plain", "large", "dict", "empty"):
    rows += pq.read_table(folder + name + ".parquet").column("text").to_pylist()
open(folder + "expected.txt", "w", newline="").write("|".join(row for row in rows if row))
)";
  ASSERT_EQ(exit_of_python(make, dir.path().string()), 0);
  auto path = [&](const char* name) { return (dir / name).string() + ".parquet"; };
  PrepareOptions o;
  PreparedDocuments p = prepared_documents(dir, {path("plain"), path("large"), path("dict"), path("empty")}, o);
  EXPECT_TRUE(p.text == read_file(dir / "expected.txt"));
  EXPECT_EQ(p.result.info.sources.size(), 4u);
  write_file(dir / "web/sub/a.parquet", read_file(path("plain")));
  write_file(dir / "web/b.txt", "a text next to it");
  EXPECT_TRUE(contains(prepared_documents(dir, {dir / "web"}, o).text, "a text next to it|row 0 ")) << "in a folder";

  EXPECT_ERROR(prepared_documents(dir, {path("nulls")}), "row 2, column \"text\": the row has no text (null)");
  o.skip_bad_lines = 40;
  p = prepared_documents(dir, {path("nulls")}, o);
  EXPECT_EQ(p.text.substr(0, 8), "a|b|c|a|");
  EXPECT_EQ(p.result.bad_lines, 40u);
  EXPECT_ERROR(prepared_documents(dir, {path("nested")}), "not strings");
  EXPECT_ERROR(prepared_documents(dir, {path("bytes")}), "the column holds binary, not strings");
  o.text_key = "body";
  EXPECT_ERROR(prepared_documents(dir, {path("plain")}, o),
               "column \"body\": the file has no such column. Its columns: id, text.");
  EXPECT_ERROR(prepared_documents(dir, {path("damaged")}), "pyarrow cannot read the file: ");
  write_file(dir / "fake.parquet", "PAR1 something PAR1");
  EXPECT_ERROR(prepared_documents(dir, {path("fake")}), "pyarrow cannot read the file: ");
}
