// Runs a checker of tests/tools with the system's Python; skipped where there is none.
#pragma once
#include <gtest/gtest.h>

#include <string>

#include "host/external.h"

namespace crest::test {

// The script must succeed and print `want` somewhere.
inline void expect_python(const std::string& script, const std::string& file, const std::string& want) {
  if (run_command("python3 -c 'import json, pickletools'").exit_code != 0)
    GTEST_SKIP() << "python3 is missing: " << script << " was not run";
  CommandOutput r = run_command("python3 '" CREST_TEST_DIR "/tools/" + script + "' '" + file + "'");
  EXPECT_EQ(r.exit_code, 0) << r.out << r.err;
  EXPECT_NE(r.out.find(want), std::string::npos) << r.out << r.err;
}

}  // namespace crest::test
