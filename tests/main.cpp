// The main function of every test program. CREST_TEST_CLASS=NAME runs the tests as this class of
// processors (docs/develop/testing.md). Exit code 77: nothing to run, because the machine lacks the
// class, or because it is the machine's own class, tested without the variable.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "host/isa.h"

int main(int argc, char** argv) {
  constexpr int skipped = 77;
  std::string best(crest::name(crest::best_isa()));
  if (const char* wanted = std::getenv("CREST_TEST_CLASS")) {
    auto isa = crest::isa_named(wanted);
    if (!isa) return std::fprintf(stderr, "CREST_TEST_CLASS=%s names no class of processors\n", wanted), 2;
    if (*isa == crest::best_isa()) return std::printf("skipped: %s is this machine's own class\n", wanted), skipped;
    setenv("CREST_ISA", wanted, 1);
  }
  if (crest::active_isa() > crest::best_isa())
    return std::printf("skipped: this machine is of class %s and does not have %s\n", best.c_str(),
                       std::string(crest::name(crest::active_isa())).c_str()),
           skipped;
  // Signals ignored by a caller (nohup, a shell's background jobs) would be ignored by the tests'
  // processes.
  for (int number : {SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGTERM}) std::signal(number, SIG_DFL);
  // After the class is settled: lists of cases ask for it.
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
