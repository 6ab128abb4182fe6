// Small values between processes over the control channel: what ranks on GPUs agree on. It needs no
// library, and host memory is enough.
#pragma once
#include <memory>

#include "comm/comm.h"
#include "comm/control.h"

namespace crest {

// All ranks of the control channel; split() makes groups of them. Calls wait without limit; they
// throw PeerLost when a rank ends.
std::unique_ptr<Communicator> make_control_communicator(Control& control);

}  // namespace crest
