// Which process keeps a file locked, for messages.
#pragma once
#include <string>
#include <vector>

namespace crest {

// "process 1234 (sqlite3)" for another process that holds a lock on one of the files, as /proc/locks has it; "" when it
// cannot be told (another container or machine). Opens none of them: closing a file would end this process' own locks.
std::string lock_holder(const std::vector<std::string>& files);

}  // namespace crest
