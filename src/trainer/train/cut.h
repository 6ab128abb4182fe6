// Why a rank ended its steps early, and the conclusion shared by all ranks.
#pragma once
#include <exception>

#include "comm/comm.h"

namespace crest {

struct Cut {
  enum Kind { none, stopped, failed } kind = none;
  std::exception_ptr error;  // a failed read of data

  struct Agreed {
    int signal;  // 0: none
    std::exception_ptr error;
  };
};

// All ranks call it after the same step. signal: the signal number received by this rank, or 0. The
// error is this rank's, else the lowest failed rank's. host: null with one process.
Cut::Agreed agree(Communicator* host, const Cut& own, int signal);

}  // namespace crest
