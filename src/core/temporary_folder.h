// A folder of its own in the system's temporary folder, for as long as the object lives.
#pragma once
#include <stdlib.h>

#include <filesystem>
#include <string>

#include "core/error.h"
#include "core/text.h"

namespace crest {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    if (!::mkdtemp(path_.data())) fail("no temporary folder can be made", printable(path_), "Set TMPDIR.");
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  static std::string pattern() {
    std::error_code error;
    std::filesystem::path folder = std::filesystem::temp_directory_path(error);
    if (error) fail("the folder for temporary files is missing", "TMPDIR", "Set it to a folder that can be written.");
    return (folder / "crest-XXXXXX").string();
  }

  std::string path_ = pattern();  // mkdtemp fills in the last letters
};

}  // namespace crest
