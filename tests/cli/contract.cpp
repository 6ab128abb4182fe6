// Every command's JSON has exactly the keys in docs/reference/contract.md.
#include <fstream>
#include <map>
#include <memory>
#include <set>

#include "cli/train_harness.h"

using namespace crest::test;
using nlohmann::json;

namespace {

// A shape as the page writes it: `a, b: {c, d: [{e}]}`. A key without a shape may have any value.
struct JsonShape {
  std::map<std::string, JsonShape> keys;
  bool empty() const { return keys.empty(); }
};

class ShapeReader {
 public:
  explicit ShapeReader(std::string text) : text_(std::move(text)) {}
  JsonShape read() {
    JsonShape shape = value();
    while (take(','))  // "a list of {..}, and, where it is known, ..": keys of the same object
      shape.keys.merge(value().keys);
    skip();
    EXPECT_EQ(at_, text_.size()) << "not a shape from here: " << text_.substr(at_) << "\nin " << text_;
    return shape;
  }

 private:
  void skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  bool take(char c) {
    skip();
    bool found = at_ < text_.size() && text_[at_] == c;
    at_ += found;
    return found;
  }
  std::string word() {
    skip();
    size_t start = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) || strchr("_.*/ -|\"", text_[at_])))
      ++at_;
    std::string w = text_.substr(start, at_ - start);
    while (!w.empty() && w.back() == ' ') w.pop_back();
    return w;
  }
  // {list}, [value], or a list of keys up to a bracket or the end.
  JsonShape value() {
    if (take('{')) {
      JsonShape s = keys();
      EXPECT_TRUE(take('}')) << text_;
      return s;
    }
    if (take('[')) {
      skip();
      bool objects = at_ < text_.size() && text_[at_] == '{';
      JsonShape s = objects ? value() : (keys(), JsonShape());  // a list of values with telling names
      EXPECT_TRUE(take(']')) << text_;
      return s;
    }
    return keys();
  }
  JsonShape keys() {
    JsonShape shape;
    do {
      std::string name = word();
      // A word in capitals and "..." stand for any key.
      bool any = name.empty() || name[0] == '.' || std::isupper(static_cast<unsigned char>(name[0]));
      if (take(':')) {
        skip();
        bool nested = at_ < text_.size() && (text_[at_] == '{' || text_[at_] == '[');
        JsonShape inner = nested ? value() : (word(), JsonShape());
        if (!any) shape.keys[name] = inner;
      } else if (!any) {
        shape.keys[name] = {};
      }
    } while (take(','));
    return shape;
  }

  std::string text_;
  size_t at_ = 0;
};

std::string page() {
  std::ifstream in(std::string(CREST_TEST_DIR) + "/../docs/reference/contract.md");
  return {std::istreambuf_iterator<char>(in), {}};
}

// The code of the sentence after `marker` in a section, without the text in brackets between the
// code; it ends with a period, a semicolon or `until`.
JsonShape documented(const std::string& section, const std::string& marker, const std::string& until = "") {
  static const std::string text = page();
  size_t at = text.find("\n## " + section + "\n");
  if (section.empty()) at = 0;
  EXPECT_NE(at, std::string::npos) << section;
  at = text.find(marker, at);
  EXPECT_NE(at, std::string::npos) << section << ": " << marker;
  if (at == std::string::npos) return {};
  at += marker.size();
  std::string code;
  bool inside = false;
  for (int depth = 0; at < text.size(); ++at) {
    char c = text[at];
    if (!inside && !until.empty() && text.compare(at, until.size(), until) == 0) break;
    if (c == '`')
      inside = !inside, code += inside && depth == 0 && !code.empty() && code.back() != ',' ? "," : "";
    else if (inside)
      code += depth == 0 ? std::string(1, c) : "";
    else if (c == '(' || c == ')')
      depth += c == '(' ? 1 : -1;
    else if (depth == 0 && (c == ';' || (c == '.' && std::isspace(static_cast<unsigned char>(text[at + 1])))))
      break;
  }
  // Code going on after a bracket begins with a comma of its own.
  for (size_t twice; (twice = code.find(",,")) != std::string::npos;) code.erase(twice, 1);
  std::string clean;
  for (size_t i = 0; i < code.size(); ++i) {
    size_t next = code.find_first_not_of(" \n", i + 1);
    if (code[i] == ',' && (next == std::string::npos || code[next] == ',')) continue;
    clean += code[i];
  }
  return ShapeReader(clean).read();
}

// absent: paths of optional keys.
void expect_keys(const json& value, const JsonShape& shape, const std::string& path,
                 const std::set<std::string>& absent) {
  if (value.is_array()) {
    for (size_t i = 0; i < std::min<size_t>(value.size(), 50); ++i) expect_keys(value[i], shape, path, absent);
    return;
  }
  if (shape.empty() || !value.is_object()) return;
  for (auto& [key, inner] : value.items()) {
    std::string where = path.empty() ? key : path + "." + key;
    auto known = shape.keys.find(key);
    if (known == shape.keys.end()) {
      ADD_FAILURE() << where << " is not in docs/reference/contract.md";
      continue;
    }
    expect_keys(inner, known->second, where, absent);
  }
  for (auto& [key, inner] : shape.keys) {
    std::string where = path.empty() ? key : path + "." + key;
    EXPECT_TRUE(value.contains(key) || absent.count(where))
        << where << " is in docs/reference/contract.md, but not printed";
  }
}

class Contract : public testing::Test {
 protected:
  // Input of the commands: data, a run, a store.
  static void SetUpTestSuite() {
    f_ = std::make_unique<TrainFolder>();
    RunResult r = f_->train("run", 2, {"--quiet", "--sample-every", "0"});
    ASSERT_EQ(r.code, 0) << r.err;
  }
  static void TearDownTestSuite() { f_.reset(); }

  static json run(std::vector<std::string> words) {
    RunResult r = run_crest(words, f_->options());
    EXPECT_EQ(r.code, 0) << r.err;
    return r.json();
  }
  static std::vector<std::string> tiny(std::vector<std::string> words, const std::vector<std::string>& more = {}) {
    for (const char* w : {"--model", "tiny.toml", "--batch", "1", "--seq", "16", "--threads", "1", "--json"})
      words.push_back(w);
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  static std::unique_ptr<TrainFolder> f_;
};
std::unique_ptr<TrainFolder> Contract::f_;

}  // namespace

TEST_F(Contract, WithoutACommand) {
  json bare = run({"--json"}), version = run({"--version", "--json"});
  JsonShape shape = documented("", "`crest --json`:");
  shape.keys["device"] = documented("", "- `device` (plan, devices):");
  expect_keys(bare, shape, "", {});
  expect_keys(version, documented("", "`crest --version --json`:"), "", {});
  EXPECT_EQ(run({"--json", "--version"}), version);
  EXPECT_EQ(bare["version"], version["version"]);
  json completions = run({"completions", "bash", "--json"});
  expect_keys(completions, documented("completions", "`--json`:"), "", {});
  EXPECT_EQ(completions["script"], run_crest({"completions", "bash"}).out);
}

TEST_F(Contract, Data) {
  JsonShape info = documented("data", "`--json` of `prepare` and `info`:");
  expect_keys(run({"data", "info", "data", "--json"}), info, "", {});
  for (const char* key : {"seconds", "bad_lines", "duplicates", "duplicate_bytes"}) info.keys[key] = {};
  expect_keys(run({"data", "prepare", "text.txt", "--out", "again", "--json"}), info, "", {});
}

TEST_F(Contract, TrainSampleEvalExportImport) {
  json trained = run({"train", "--data", "data", "--model", "tiny.toml", "--batch", "1", "--steps", "1", "--threads",
                      "1", "--out", "json", "--json", "--quiet", "--sample-every", "0"});
  expect_keys(trained, documented("train", "\n`--json`:"), "", {});
  std::ifstream log(f_->path() / "json/log.jsonl");
  JsonShape step = documented("train", "a row for each step ", ", and a row"),
            validation = documented("train", "a row for each validation ");
  int rows = 0;
  for (std::string line; std::getline(log, line); ++rows) {
    json row = json::parse(line);
    expect_keys(row, row.contains("val_loss") ? validation : step, "log.jsonl",
                {"log.jsonl.watts", "log.jsonl.clock_mhz", "log.jsonl.memory_bytes"});  // of some machines
  }
  EXPECT_GT(rows, 1);
  expect_keys(run({"sample", "--run", "run", "--prompt", "the", "--max-tokens", "2", "--json"}),
              documented("sample, eval", "`--json`:"), "", {});
  expect_keys(run({"eval", "--run", "run", "--data", "data", "--batches", "1", "--batch", "1", "--json"}),
              documented("sample, eval", "Its `--json`:"), "", {});
  f_->write("task.jsonl", "{\"goal\": \"a\", \"sol1\": \"b\", \"sol2\": \"c\", \"label\": 0}\n");
  expect_keys(run({"eval", "--run", "run", "--tasks", "task.jsonl", "--json"}),
              documented("sample, eval", "`--tasks` prints with `--json`:"), "", {});
  expect_keys(run({"eval", "--run", "run", "--text", "task.jsonl", "--json"}),
              documented("sample, eval", "`--text` prints with `--json`:"), "", {});
  f_->write("pairs.jsonl", "{\"context\": \"the king\", \"continuation\": \" of\"}\n");
  expect_keys(run({"score", "pairs.jsonl", "--run", "run", "--json"}), documented("score", "one document instead:"), "",
              {});
  RunOptions question = f_->options();
  question.input = "Hi\n";
  RunResult chat =
      run_crest({"chat", "--run", "run", "--chat-template", "plain", "--max-tokens", "2", "--json"}, question);
  EXPECT_EQ(chat.code, 0) << chat.err;
  expect_keys(chat.json(), documented("chat", "one object a line, for each answer:"), "", {});
  expect_keys(run({"export", "--run", "run", "--to", "llm.c", "--out", "llmc", "--json"}),
              documented("export", "`--json`:"), "", {});
  expect_keys(run({"import", "llmc/model.bin", "--out", "imported", "--json"}), documented("import", "`--json`:"), "",
              {});
}

TEST_F(Contract, PlanProgramDevices) {
  JsonShape plan = documented("plan", "`--json`:");
  plan.keys["device"] = documented("", "- `device` (plan, devices):");
  plan.keys["model"] = documented("", "- `model` (plan):");
  plan.keys["recipe"] = documented("", "- `recipe`:");
  expect_keys(run(tiny({"plan"})), plan, "", {});
  JsonShape explained = documented("plan", "`--json` of an explanation:"), advice = documented("advise", "`--json`:");
  for (JsonShape* s : {&explained, &advice})
    for (const char* key : {"device", "model", "recipe"}) s->keys[key] = plan.keys[key];
  for (const char* topic : {"memory", "flops", "batch", "traffic"})
    expect_keys(run(tiny({"plan"}, {"--explain", topic})), explained, "", {});
  expect_keys(run(tiny({"advise"}, {"--attention", "naive", "--measure", "--max-seconds", "0.02"})), advice, "", {});
  expect_keys(run(tiny({"program"})), documented("program", "`--json`:"), "",
              {"values.arena_offset", "instructions.body"});
  expect_keys(run({"program", "--passes", "--json"}), documented("program", "`--passes --json`: a list of"), "", {});
  expect_keys(run({"flops", "--model=nano", "--step-ms=1", "--batch=1", "--json"}), documented("flops", "`--json`:"),
              "", {});
  JsonShape tune = documented("tune", "`--json`:"), candidate = documented("tune", "A candidate is");
  candidate.keys["changes"] = {};
  for (const char* key : {"best", "start", "candidates"}) tune.keys[key] = candidate;
  tune.keys["finals"].keys["contenders"] = candidate;
  expect_keys(run({"tune", "--model=nano", "--vocab=256", "--seq=16", "--batch=1", "--attention=flash",
                   "--recompute=none", "--measure=2", "--max-seconds=0.02", "--json"}),
              tune, "", {});
  JsonShape longest = documented("tune", "`--json` of it:");
  longest.keys["best"] = longest.keys["start"] = candidate;
  expect_keys(run({"tune", "--longest-context", "--model=nano", "--vocab=256", "--threads=1", "--attention=flash",
                   "--recompute=none", "--memory-limit=20MB", "--json"}),
              longest, "", {});
  JsonShape devices = documented("devices", "\n`--json`:", ", and with");
  devices.keys["measured"] = {};
  devices.keys["devices"] = documented("", "- `device` (plan, devices):");
  expect_keys(run({"devices", "--json"}), devices, "", {"measured"});
  expect_keys(run({"devices", "--sheets", "--json"}), documented("devices", "With `--json`: a list of"), "", {"link"});
}

TEST_F(Contract, Bench) {
  JsonShape row = documented("bench", "`--json`: a list of");
  row.keys["pipeline"] = documented("bench", "- `pipeline`:");
  std::set<std::string> floors = {"noise_floor", "known_noise_floor", "pipeline", "data_sheet"};
  expect_keys(run(tiny({"bench"}, {"--samples", "2", "--no-mfu"})), row, "", floors);
  json stages = run(tiny({"bench"}, {"--samples", "2", "--no-mfu", "--mesh", "pipeline=2", "--data-parallel", "2"}));
  expect_keys(stages, row, "", {"noise_floor", "known_noise_floor", "data_sheet"});
  RunResult large = run_crest(
      {"bench", "--model", "tiny.toml", "--batch", "1000000", "--memory-limit", "1GiB", "--json"}, f_->options());
  EXPECT_EQ(large.code, 3) << large.err;
  expect_keys(large.json(), documented("bench", "A recipe that does not fit has"), "", {});
  expect_keys(
      run({"bench", "--product", "16x16x16", "--precision", "fp32", "--samples", "2", "--threads", "1", "--json"}),
      documented("bench", "Its `--json`:"), "", {});
  json ab = run(tiny({"bench"}, {"--samples", "4", "--no-mfu", "--peer", "echo '{\"ms\": 5}'"}));
  expect_keys(ab, documented("bench", "or `--noise`:"), "", {});
  expect_keys(ab["rows"][0], row, "rows",
              {"rows.noise_floor", "rows.known_noise_floor", "rows.pipeline", "rows.data_sheet"});
  JsonShape peer = documented("bench", "A peer's row:");
  peer.keys.erase("step_ms_*");
  for (auto& [key, shape] : row.keys)
    if (key.starts_with("step_ms_")) peer.keys[key] = {};
  expect_keys(ab["rows"][1], peer, "rows", {});
}

TEST_F(Contract, ProfileAndCompare) {
  const std::vector<std::string> short_run = {"--samples", "2", "--rates", "fp32=1e11,bandwidth=1e10,bf16=1e11"};
  auto named = [&](std::vector<std::string> more) {
    more.insert(more.end(), short_run.begin(), short_run.end());
    return more;
  };
  json profile = run(tiny({"profile"}, named({"--name", "a"})));
  JsonShape shape = documented("profile", "`--json`:");
  shape.keys["instrs"] = documented("profile", "- `instrs`:");
  shape.keys["memory"] = documented("profile", "- `memory`:");
  shape.keys["facts"] = documented("profile", "- `facts`:");
  shape.keys["memory_peak"] = documented("profile", "- `memory_peak`:");
  shape.keys["alternatives"] = documented("profile", "- `alternatives`:", ": recipes");
  JsonShape by = documented("profile", "- `by_*`:");
  for (auto key : {"by_phase", "by_class", "by_layer", "by_place", "by_kernel"}) shape.keys[key] = by;
  expect_keys(profile, shape, "", {});
  run(tiny({"profile"}, named({"--name", "b", "--attention", "naive"})));
  shape = documented("compare", "`--json`:");
  shape.keys["a"] = shape.keys["b"];
  JsonShape& cause = shape.keys["causes"];
  cause.keys["a"] = cause.keys["b"] = documented("compare", "`a` and `b` of a cause:");
  expect_keys(run({"compare", "a", "b", "--json"}), shape, "", {});
}

TEST_F(Contract, RunsAndReport) {
  run(tiny({"bench"}, {"--samples", "2", "--no-mfu", "--name", "bench"}));
  JsonShape record = documented("runs", "`--json` of `list`: a list of", "in a list");
  expect_keys(run({"runs", "list", "--json"}), record, "", {});
  JsonShape shown = record;
  for (auto& [key, shape] : documented("runs", "Of `show`: that object,").keys) shown.keys[key] = shape;
  expect_keys(run({"runs", "show", "bench", "--json"}), shown, "", {});
  expect_keys(run({"runs", "export", "bench", "-o", "runs.jsonl", "--json"}), documented("runs", "Of `export`:"), "",
              {});
  expect_keys(run({"runs", "import", "runs.jsonl", "--json"}),
              documented("runs", "Of `import`: a list of", ", of a log"), "", {});
  expect_keys(run({"report", "bench", "--json"}), documented("report", "the data of the report:"), "", {});
  expect_keys(run({"runs", "delete", "bench", "--yes", "--json"}), documented("runs", "Of `delete`: a list of"), "",
              {});
}

TEST_F(Contract, Lab) {
  f_->write(
      "mine.toml",
      "name = \"mine\"\ntitle = \"t\"\nquestion = \"q\"\nkind = \"bench\"\nshow = [\"ms\"]\n[recipe]\nmodel = "
      "\"tiny.toml\"\nbatch = 1\nseq = 16\nsamples = 2\nfusion = [\"off\", \"on\"]\n[[claim]]\ntext = \"x\"\nsubject = "
      "\"Crest\"\nsource = \"me\"\ncheck = \"value(ms, fusion=on) > 0\"\n");
  JsonShape experiment = documented("lab", "`list --json`:");
  expect_keys(run({"lab", "list", "--json"}), experiment, "", {});
  JsonShape shown = experiment;
  for (auto& [key, shape] : documented("lab", "\nthe same with").keys) shown.keys[key] = shape;
  expect_keys(run({"lab", "show", "mine.toml", "--json"}), shown, "", {"claims.quote", "claims.about"});
  expect_keys(run({"lab", "run", "mine.toml", "--json"}), documented("lab", "`run --json`:"), "",
              {"claims.quote", "claims.about"});
}

TEST_F(Contract, Comm) {
  RunResult r = run_crest(
      {"comm", "broadcast", "--nproc", "2", "--sizes", "1KB", "--samples", "2", "--link-rate", "1GB", "--json"},
      f_->options());
  if (r.code == 2 && r.err.find("gloo") != std::string::npos) GTEST_SKIP() << r.err;
  ASSERT_EQ(r.code, 0) << r.err;
  expect_keys(r.json(), documented("comm", "`--json`:"), "", {});
}
