// A fresh folder for what a test writes.
#pragma once
#include <stdlib.h>

#include <cerrno>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>

namespace crest::test {

// In TMPDIR (/tmp), or in `where`; says what is wrong when there can be none.
inline std::string make_temporary_folder(const std::string& name,
                                         const std::filesystem::path& where = std::filesystem::temp_directory_path()) {
  std::string pattern = (where / (name + "-XXXXXX")).string();
  if (mkdtemp(pattern.data())) return pattern;
  throw std::system_error(errno, std::generic_category(), "no folder for a test: " + pattern + " (set TMPDIR)");
}

}  // namespace crest::test
