// Temporary folders and expected errors.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "core/error.h"
#include "core/temporary_folder.h"

class ModelFolder : public crest::TemporaryFolder {
 public:
  std::string path(const std::string& name = "") const { return name.empty() ? TemporaryFolder::path() : *this / name; }
  std::string write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    std::ofstream(path(name), std::ios::binary) << text;
    return path(name);
  }
};

// The function must throw a crest::Error with every one of `parts` in its text; returns the text.
inline std::string expect_error(const std::function<void()>& f, const std::vector<std::string>& parts,
                                crest::Exit code = crest::Exit::usage) {
  try {
    f();
  } catch (const crest::Error& e) {
    for (auto& p : parts)
      EXPECT_NE(std::string(e.what()).find(p), std::string::npos) << "no '" << p << "' in\n" << e.what();
    EXPECT_EQ(e.code(), code) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "no error" << (parts.empty() ? "" : " with " + parts[0]);
  return "";
}
