// Temporary folders and files for the tests of data/.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "core/error.h"
#include "core/temporary_folder.h"

namespace crest::test {

// Paths of std::filesystem, as these tests use them.
class DataFolder : public TemporaryFolder {
 public:
  std::filesystem::path path() const { return TemporaryFolder::path(); }
  std::filesystem::path operator/(const std::string& name) const { return path() / name; }
};

inline void write_file(const std::filesystem::path& path, const std::string& content) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << content;
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The message of the Error thrown by `action`; fails the test without one.
template <class Action>
std::string error_of(Action&& action) {
  try {
    action();
  } catch (const Error& e) {
    return e.what();
  }
  ADD_FAILURE() << "no error was thrown";
  return "";
}

#define EXPECT_ERROR(action, part)                                                  \
  do {                                                                              \
    std::string message = crest::test::error_of([&] { action; });                   \
    EXPECT_NE(message.find(part), std::string::npos) << "message was: " << message; \
  } while (0)

}  // namespace crest::test
