#include "host/external.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/temporary_folder.h"
#include "core/timer.h"
#include "wait.h"

using namespace crest;

namespace {
std::string message_of(const std::string& command, ExternalOptions options = {}) {
  try {
    run_external(command, options);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}
}  // namespace

TEST(External, ReadsTheLastJsonLine) {
  ExternalResult r = run_external("echo warming up; echo '{\"ms\": 5}'; echo '{\"ms\": 7.5, \"B\": 4}'; echo done");
  EXPECT_DOUBLE_EQ(r.step_ms, 7.5);
  EXPECT_EQ(r.key, "ms");
  EXPECT_EQ(r.json, "{\"B\":4,\"ms\":7.5}");
  EXPECT_GT(r.seconds, 0);
}

TEST(External, ReadsABenchDocument) {
  std::string rows =
      "[{\"phase\": \"step\", \"step_ms_median\": 12.25, \"ms\": 1},\n {\"phase\": \"forward\", \"step_ms_median\": "
      "3}]";
  EXPECT_DOUBLE_EQ(parse_step_time(rows, "test").step_ms, 12.25);
  EXPECT_EQ(parse_step_time(rows, "test").key, "step_ms_median");
  EXPECT_DOUBLE_EQ(parse_step_time("{\n \"ms\": 4\n}\n", "test").step_ms, 4);
}

TEST(External, RefusesWhatIsNoTime) {
  for (const char* text : {"", "hello", "{\"ms\": \"3\"}", "{\"ms\": -1}", "{\"ms\": 0}", "{\"ms\": null}", "[1, 2]",
                           "{\"error\": \"out_of_memory\"}", "{\"ms\": 3"})
    EXPECT_THROW(parse_step_time(text, "test"), Error) << text;
  EXPECT_THROW(parse_step_time(std::string(1000000, '['), "test"), Error) << "deep nesting must not crash";
}

TEST(External, FailureShowsTheTailOfItsMessages) {
  std::string text = message_of("echo first >&2; echo 'no module named torch' >&2; exit 3");
  EXPECT_NE(text.find("exit code 3"), std::string::npos) << text;
  EXPECT_NE(text.find("no module named torch"), std::string::npos) << text;
  EXPECT_NE(message_of("kill -9 $$").find("signal 9"), std::string::npos);
  EXPECT_NE(message_of("no-such-program-here").find("not found"), std::string::npos);
  EXPECT_NE(message_of("printf 'plain \\033[31mtext'").find("\\x1b[31m"), std::string::npos);
}

TEST(External, TimeoutKillsTheWholeGroup) {
  TemporaryFolder folder;
  std::string file = folder / "child";
  Timer timer;
  pid_t child = 0;
  for (double seconds = 0.5; child == 0; seconds *= 4) {  // until the shell came so far
    ASSERT_LT(seconds, 300);
    std::string command = "(sleep 3600; true) & echo $! > '" + file + "'; wait";
    std::string text = message_of(command, {.timeout_seconds = seconds});
    EXPECT_NE(text.find("no result within"), std::string::npos) << text;
    std::ifstream(file) >> child;
  }
  EXPECT_LT(timer.seconds(), 1000) << "it did not wait for the sleep";
  auto gone = [&] {  // an unreaped zombie counts as gone
    std::ifstream stat("/proc/" + std::to_string(child) + "/stat");
    std::string pid, name, state;
    return !(stat >> pid >> name >> state) || state == "Z";
  };
  EXPECT_TRUE(crest::test::wait_until(gone));
}

TEST(External, CanBeCanceled) {
  int polls = 0;
  ExternalOptions options;
  options.canceled = [&] { return ++polls > 3; };
  try {
    run_external("sleep 3600", options);
    FAIL() << "must throw";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::interrupted);
  }
}

TEST(External, DoesNotWaitForBackgroundChildren) {
  ExternalResult r = run_external("sleep 3600 & echo '{\"ms\": 2, \"pid\": '$!'}'", {.timeout_seconds = 240});
  EXPECT_DOUBLE_EQ(r.step_ms, 2) << "and not that nothing came in time";
  kill(nlohmann::json::parse(r.json)["pid"].get<pid_t>(), SIGKILL);
}

TEST(External, LargeOutputAndClosedStdin) {
  CommandOutput r = run_command("cat; head -c 20000000 /dev/zero | tr '\\0' x; echo; echo '{\"ms\": 1}'");
  EXPECT_EQ(r.exit_code, 0);
  EXPECT_LE(r.out.size(), size_t(8 << 20));
  EXPECT_DOUBLE_EQ(parse_step_time(r.out, "test").step_ms, 1);
}
