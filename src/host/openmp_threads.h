// OMP_NUM_THREADS: OpenMP takes any number, and the process dies when it cannot start so many threads.
#pragma once
#include <string>
#include <string_view>

namespace crest {

struct OpenmpThreads {
  std::string use;   // the value to set; "": the variable is not set
  std::string note;  // what was changed, for people; "": nothing
};

// What becomes of a value of the variable on a machine with so many usable threads. More threads than cores are
// accepted up to a point; what OpenMP would not take counts as not set.
OpenmpThreads mend_openmp_threads(std::string_view text, int usable);

}  // namespace crest
