// Progress of crest import and crest export.
#pragma once
#include <cstdint>
#include <functional>

namespace crest {

// Called with the finished and all bytes; both texts must outlive it. In a terminal it prints
// "DOING 42%" on one line. Throws `interrupted`, naming the command, after Ctrl-C.
std::function<void(uint64_t done, uint64_t all)> conversion_progress(const char* command, const char* doing);

}  // namespace crest
