// The program under test: beside the test programs, or one folder above them.
#pragma once
#include <filesystem>
#include <string>

namespace crest::test {

inline const char* crest_binary() {
  static const std::string path = [] {
    auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
    auto beside = folder / "crest";
    return std::filesystem::exists(beside) ? beside.string() : (folder.parent_path() / "crest").string();
  }();
  return path.c_str();
}

}  // namespace crest::test
