// Runs the crest binary, by a shell, on a small saved model.
#pragma once
#include <sys/wait.h>

#include <cstdlib>

#include "contains.h"
#include "crest_binary.h"
#include "inference/saved_model.h"

namespace crest::test {

struct CommandResult {
  int code;
  std::string out, err;
};

inline std::string read_all(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// `arguments` is shell text.
inline CommandResult run_crest(const std::string& arguments, const TemporaryFolder& folder) {
  std::string out = folder / "stdout", err = folder / "stderr";
  std::string command =
      "'" + std::string(test::crest_binary()) + "' " + arguments + " > '" + out + "' 2> '" + err + "'";
  int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128, read_all(out), read_all(err)};
}

}  // namespace crest::test
