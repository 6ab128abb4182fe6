// Finds the holder of a file lock, for messages.
#pragma once
#include <string>
#include <vector>

namespace crest {

// "process 1234 (sqlite3)" for another process with a lock on one of the files, according to
// /proc/locks; "" if it is unknown (another container or machine). Opens none of the files: closing
// one would release this process's own locks.
std::string lock_holder(const std::vector<std::string>& files);

}  // namespace crest
