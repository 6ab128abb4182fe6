// crest runs export --to wandb, with a package of that name that records the calls it gets.
#include <sstream>

#include "host/external.h"
#include "run.h"

using namespace crest::test;
using nlohmann::json;

namespace {

constexpr const char* recording_package = R"py(
import json, os

__version__ = "0.0-recording"
calls = os.environ["CALLS"]


def write(**call):
    with open(calls, "a") as file:
        file.write(json.dumps(call) + "\n")


class Run:
    def __init__(self, given):
        self.dir = os.path.join(given["dir"], "wandb", "offline-run-" + given["id"], "files")
        self.summary = self

    def log(self, values, step):
        write(call="log", values=values, step=step)

    def update(self, values):
        write(call="summary", values=values)

    def finish(self, exit_code):
        write(call="finish", exit_code=exit_code)


def init(**given):
    write(call="init", **given, environment=os.environ["WANDB_MODE"])
    if given["name"] == os.environ.get("FAILS"):
        raise RuntimeError("the disk is full")
    return Run(given)
)py";

class CliRunsTracker : public testing::Test {
 protected:
  void SetUp() override {
    if (crest::run_command("python3 --version").exit_code != 0) GTEST_SKIP() << "there is no python3";
    // A folder of data, as the real package leaves one: it must not hide the package.
    std::filesystem::create_directories(folder_.path() / "wandb");
    folder_.write("packages/wandb/__init__.py", recording_package);
    const std::string a = folder_.write(
        "a.log", "step 2 | loss 3.25 | dt 12ms\nstep 1 | loss 3.5 | dt 10ms\n{\"step\": 2, \"val_loss\": 3.0}\n");
    const std::string b = folder_.write("b.log", "iter 5: loss 2.5, time 20ms\n");
    run({"import", a, "--name", "first", "--model", "gpt2-124M"});
    run({"import", b, "--name", "second"});
  }
  RunResult run(std::vector<std::string> flags, std::vector<std::pair<std::string, std::string>> more = {}) {
    flags.insert(flags.begin(), "runs");
    RunOptions options{.folder = folder_.path().string(), .environment = environment()};
    options.environment.insert(options.environment.end(), more.begin(), more.end());
    return run_crest(flags, options);
  }
  void fails(std::vector<std::string> flags, int code, const std::vector<std::string>& said,
             std::vector<std::pair<std::string, std::string>> more = {}) {
    flags.insert(flags.begin(), "runs");
    RunOptions options{.folder = folder_.path().string(), .environment = environment()};
    options.environment.insert(options.environment.end(), more.begin(), more.end());
    expect_error(flags, code, said, options);
  }
  std::vector<std::pair<std::string, std::string>> environment() const {
    return {{"PYTHONPATH", folder_ / "packages"},
            {"CALLS", folder_ / "calls"},
            {"CREST_PYTHON", "python3"},
            {"WANDB_PROJECT", ""},
            {"WANDB_MODE", "online"}};
  }
  std::vector<json> calls() const {
    std::vector<json> list;
    std::istringstream lines(folder_.read("calls"));
    for (std::string line; std::getline(lines, line);) list.push_back(json::parse(line));
    return list;
  }

  TempFolder folder_;
};

}  // namespace

TEST_F(CliRunsTracker, PassesSettingsRowsAndResult) {
  RunResult r = run({"export", "first", "second", "--to", "wandb", "-o", "out", "--project", "mine", "--json"});
  ASSERT_EQ(r.code, 0) << r.err;
  const json printed = r.json(), shown = run({"show", "first", "--json"}).json();
  EXPECT_EQ(printed["tracker"], "wandb");
  EXPECT_EQ(printed["version"], "0.0-recording");
  ASSERT_EQ(printed["runs"].size(), 2u);
  const std::string uid = shown["uid"], out = folder_ / "out";
  EXPECT_EQ(printed["runs"][0],
            (json{{"uid", uid}, {"name", "first"}, {"folder", out + "/wandb/offline-run-" + uid}, {"rows", 3}}));

  const std::vector<json> made = calls();
  ASSERT_EQ(made.size(), 10u);
  EXPECT_EQ(made[0]["call"], "init");
  EXPECT_EQ(made[0]["mode"], "offline");
  EXPECT_EQ(made[0]["environment"], "offline") << "nothing may be sent";
  EXPECT_EQ(made[0]["dir"], out);
  EXPECT_EQ(made[0]["project"], "mine");
  EXPECT_EQ(made[0]["id"], uid);
  EXPECT_EQ(made[0]["name"], "first");
  EXPECT_EQ(made[0]["job_type"], "log");
  EXPECT_EQ(made[0]["config"]["crest"]["status"], "done");
  json recipe = made[0]["config"];
  recipe.erase("crest");
  EXPECT_EQ(recipe, shown["recipe"].is_null() ? json::object() : shown["recipe"]);
  // In the order of the steps, with the values of the log alone.
  EXPECT_EQ(made[1], (json{{"call", "log"}, {"step", 1}, {"values", {{"loss", 3.5}, {"step_ms", 10.0}}}}));
  EXPECT_EQ(made[2], (json{{"call", "log"}, {"step", 2}, {"values", {{"loss", 3.25}, {"step_ms", 12.0}}}}));
  EXPECT_EQ(made[3], (json{{"call", "log"}, {"step", 2}, {"values", {{"val_loss", 3.0}}}}));
  EXPECT_EQ(made[4], (json{{"call", "summary"}, {"values", shown["result"]}}));
  EXPECT_EQ(made[5], (json{{"call", "finish"}, {"exit_code", 0}}));
  EXPECT_EQ(made[6]["name"], "second");
}

TEST_F(CliRunsTracker, SaysWhatIsMissing) {
  const std::vector<std::string> to_wandb = {"export", "first", "--to", "wandb"};
  fails(to_wandb, 1, {"/no/python", "apt-get install python3", "CREST_PYTHON"}, {{"CREST_PYTHON", "/no/python"}});
  folder_.write("none/wandb/__init__.py", "raise ModuleNotFoundError('none', name='wandb')\n");
  fails(to_wandb, 1, {"python3 has no package wandb", "python3 -m pip install wandb"},
        {{"PYTHONPATH", folder_ / "none"}});
  folder_.write("empty/wandb/__init__.py", "");
  fails(to_wandb, 1, {"pip install wandb"}, {{"PYTHONPATH", folder_ / "empty"}});
  fails({"export", "first", "second", "--to", "wandb"}, 1, {"after 1 of 2 runs", "the disk is full"},
        {{"FAILS", "second"}});
}

TEST_F(CliRunsTracker, WrongUsage) {
  fails({"export", "first", "--to", "wanbd"}, 2, {"unknown tracker 'wanbd'", "Did you mean 'wandb'"});
  fails({"export", "first", "--to", "wandb", "--project", "a/b", "-o", "y"}, 2, {"--project", "a/b"});
  fails({"export", "first", "--project", "x", "-o", "y"}, 2, {"--project", "--to wandb"});
  fails({"export", "first", "--to", "wandb", "-o", "-"}, 2, {"-o DIR"});
  fails({"export", "first", "--to", "wandb", "--overwrite"}, 2, {"--overwrite"});
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "calls"));
}
