// Reading that distinguishes a missing file from an unreadable one (path_exists and is_directory
// return false for both).
#pragma once
#include <string>
#include <vector>

#include "core/error.h"

namespace crest {

// A failed system call: about the file, not its content.
class SystemError : public Error {
 public:
  SystemError(int number, std::string what, std::string where, std::string advice);
  // Whether the path does not exist. Otherwise it could not be opened or read (permission, a
  // failing disk, too many open files), and its content is unknown.
  bool missing() const;

 private:
  int number_;
};

// The names in a folder, sorted, without . and ..; none if there is no such folder. Throws if it is
// unreadable.
std::vector<std::string> names_in(const std::string& folder);
// The target of a path, or of its link. Throws a SystemError if it is unknown.
enum class PathKind { nothing, file, folder, other };
PathKind kind_of(const std::string& path);

}  // namespace crest
