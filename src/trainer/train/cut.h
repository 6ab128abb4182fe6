// Why the steps of a rank ended before their time, and the common conclusion of all ranks.
#pragma once
#include <exception>

#include "comm/comm.h"

namespace crest {

struct Cut {
  enum Kind { none, stopped, failed } kind = none;
  std::exception_ptr error;  // why data could not be read

  struct Agreed {
    int signal;  // 0: none
    std::exception_ptr error;
  };
};

// All ranks call it after the same step. signal: the number
// received by this rank, or 0. The error is the rank's own,
// else the lowest failed rank's. host: null for one process.
Cut::Agreed agree(Communicator* host, const Cut& own, int signal);

}  // namespace crest
