// OMP_NUM_THREADS: OpenMP accepts any number, and the process dies if it cannot start so many
// threads.
#pragma once
#include <string>
#include <string_view>

namespace crest {

struct OpenmpThreads {
  std::string use;   // the value to set; "": unset the variable
  std::string note;  // the change, for people; "": nothing
};

// The reaction to a value of the variable on a machine with this many usable threads. Somewhat more
// threads than cores are accepted. Values OpenMP would reject are treated as unset.
OpenmpThreads checked_openmp_threads(std::string_view text, int usable);

}  // namespace crest
