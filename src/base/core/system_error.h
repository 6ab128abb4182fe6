// Reading where "it is not there" and "it cannot be looked at" must not be the same (path_exists
// and is_directory say no to both).
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
  // failing disk, too many open files), with no conclusion about its content.
  bool missing() const;

 private:
  int number_;
};

// The names in a folder, sorted, without . and ..; none where there is no such folder. Throws if it
// cannot be read.
std::vector<std::string> names_in(const std::string& folder);
// The target of a path, or of the link there. Throws a SystemError if it cannot be found out.
enum class PathKind { nothing, file, folder, other };
PathKind kind_of(const std::string& path);

}  // namespace crest
