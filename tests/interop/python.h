// Runs a Python script of this folder with the real programs (transformers, safetensors, NumPy,
// torch). The interpreter is $CREST_PYTHON, else python3; missing packages skip the test.
#pragma once
#include "cli/run.h"

namespace crest::test {

struct PythonResult {
  int code = -1;
  std::string output;
};

inline std::string python() {
  const char* given = std::getenv("CREST_PYTHON");
  return given && *given ? given : "python3";
}

// Standard output and error together.
inline PythonResult run_python(const std::vector<std::string>& arguments) {
  TempFolder streams;
  std::string out = streams / "out", command = "PYTHONDONTWRITEBYTECODE=1 '" + python() + "'";
  for (auto& a : arguments) command += " '" + a + "'";
  int status = std::system((command + " > '" + out + "' 2>&1").c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128, streams.read("out")};
}

// Found without importing them: torch alone takes seconds.
inline bool has_modules(const std::string& modules) {
  std::string code = "import sys, importlib.util as u; sys.exit(any(u.find_spec(m) is None for m in sys.argv[1:]))";
  std::vector<std::string> arguments = {"-c", code};
  std::istringstream words(modules);
  for (std::string word; words >> word;) arguments.push_back(word);
  return run_python(arguments).code == 0;
}

#define CREST_NEED_PYTHON(modules)                                                                       \
  if (!has_modules(modules))                                                                             \
  GTEST_SKIP() << python() << " lacks one of: " << (modules) << " (see docs/reference/interop.md); set " \
               << "CREST_PYTHON to an interpreter that has them"

inline std::string script(const std::string& name) { return std::string(CREST_TEST_DIR) + "/interop/" + name; }

}  // namespace crest::test
