// Ranks as processes on CPUs: the library Gloo over TCP (Debian's libgloo-dev; CREST_HAVE_GLOO).
#pragma once
#include <memory>
#include <string>

#include "comm/comm.h"
#include "comm/control.h"

namespace crest {

// "" when this build has Gloo, else what is missing and how to get it.
std::string gloo_problem();
std::string gloo_version();  // "0.5.0"; "" without it

// Ranks 0 .. ranks - 1 of `control` connect to each other; all of them call this with the same name, which no other
// group of the run has. seconds: that a rank waits for the others before it gives up, in every collective.
// `control` must outlive it.
std::unique_ptr<Communicator> make_gloo_communicator(Control& control, int ranks, const std::string& group,
                                                     double seconds);

}  // namespace crest
