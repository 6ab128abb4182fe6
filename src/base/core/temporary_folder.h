// A temporary folder with the lifetime of the object. Tests use it too.
#pragma once
#include <stdlib.h>

#include <filesystem>
#include <string>

#include "core/error.h"
#include "core/text.h"

namespace crest {

class TemporaryFolder {
 public:
  // In TMPDIR (/tmp), or in `where`.
  explicit TemporaryFolder(const std::string& where = "") : path_(pattern(where)) {
    if (!::mkdtemp(path_.data()))
      fail("cannot create a temporary folder", printable(path_), "Set TMPDIR to a writable folder.");
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  static std::string pattern(const std::string& where) {
    if (!where.empty()) return where + "/crest-XXXXXX";
    std::error_code error;
    std::filesystem::path folder = std::filesystem::temp_directory_path(error);
    if (error) fail("the folder for temporary files is missing", "TMPDIR", "Set it to a writable folder.");
    return (folder / "crest-XXXXXX").string();
  }

  std::string path_;  // mkdtemp fills in the last characters
};

}  // namespace crest
