// Ranks as processes on CPUs, with the Gloo library over TCP (Debian's libgloo-dev;
// CREST_HAVE_GLOO).
#pragma once
#include <memory>
#include <string>

#include "comm/comm.h"
#include "comm/control.h"

namespace crest {

// "" if this build has Gloo, else how to get it.
std::string gloo_problem();
std::string gloo_version();  // "0.5.0"; "" without it

// Connects ranks 0 .. ranks - 1 of `control`. All of them call it with the same name, unique in the
// run. seconds: how long a rank waits for others in a collective. start_seconds: the same for
// connecting. `control` must outlive the result.
std::unique_ptr<Communicator> make_gloo_communicator(Control& control, int ranks, const std::string& group,
                                                     double seconds, double start_seconds);

}  // namespace crest
