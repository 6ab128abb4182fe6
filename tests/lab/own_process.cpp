// The end of a subcommand in a separate process becomes a document or one clear error.
#include "host/own_process.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.h"

namespace crest {
namespace {

Error process_error(const CommandOutput& output) {
  try {
    document_of(output, "crest bench");
  } catch (const Error& e) {
    return e;
  }
  return {Exit::ok, "no error"};
}

CommandOutput ended(int code, const std::string& out, const std::string& err = "") {
  CommandOutput o;
  o.exit_code = code, o.out = out, o.err = err;
  return o;
}

TEST(OwnProcess, ItsDocument) { EXPECT_EQ(document_of(ended(0, "[{\"ms\": 5}]\n"), "crest bench")[0]["ms"], 5); }

TEST(OwnProcess, OneLineSaysHowItEnded) {
  EXPECT_EQ(process_error(ended(1, "", "noise\ncrest: error: --model: no such file\n  Name another.\n")).problem(),
            "the process ended with exit code 1: --model: no such file");
  EXPECT_EQ(process_error(ended(139, "", "at work ...\n\n")).problem(),
            "the process was ended by signal 11 (Segmentation fault): at work ...");
  EXPECT_EQ(process_error(ended(4, "")).problem(), "the process ended with exit code 4");
  for (const char* garbage : {"", "hello", "{\"a\": ", "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["})
    EXPECT_NE(process_error(ended(0, garbage)).problem().find("printed no JSON"), std::string::npos) << garbage;
}

TEST(OwnProcess, MemoryAndCtrlCKeepTheirCodes) {
  EXPECT_EQ(process_error(ended(3, "", "crest: error: it does not fit\n")).code(), Exit::does_not_fit);
  EXPECT_EQ(process_error(ended(130, "")).code(), Exit::interrupted);
  CommandOutput canceled = ended(137, "");
  canceled.canceled = true;
  EXPECT_EQ(process_error(canceled).code(), Exit::interrupted);
}

// A process' messages reach a terminal.
TEST(OwnProcess, EscapesAreTakenOut) {
  EXPECT_EQ(process_error(ended(1, "", "crest: error: \x1b[2J\n")).problem().find('\x1b'), std::string::npos);
}

TEST(OwnProcess, VariablesAreOfTheProcessAlone) {
  CommandOutput o =
      run_program("/bin/sh", {"sh", "-c", "echo $CREST_TEST_VARIABLE; exit 7"}, {{"CREST_TEST_VARIABLE", "x y"}});
  EXPECT_EQ(o.out, "x y\n");
  EXPECT_EQ(o.exit_code, 7);
  EXPECT_EQ(std::getenv("CREST_TEST_VARIABLE"), nullptr);
  EXPECT_THROW(run_program("/nowhere/program", {"program"}), Error);
}

}  // namespace
}  // namespace crest
